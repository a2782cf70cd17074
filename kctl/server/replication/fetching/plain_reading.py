"""Reads the partitions of a Fetch request that was read into flat values, and writes its response.

It does what fetch_reading and fetch_replies do with fewer calls, as long as all partitions are usual: they can be read
here by this client, which has no reason to be told anything but offsets and records.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import ApiError, LogDirFailure
from kctl.records.compiled.fetch_frame import FetchedTopic, PlainFetch, ReadPartition, write_fetch_response
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.dispatch import PlainReply
from kctl.server.replication.fetching.fetch_reading import rest_if_complete
from kctl.server.replication.fetching.fetch_session import NO_SESSION, FetchPosition, FetchSession
from kctl.server.replication.partition import ANY_EPOCH, Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationQuota
from kctl.storage.log.lookup import RecordsSlice

FIRST_VERSION_WITH_IDS = 13


def requested_ids(request: PlainFetch) -> dict[str, bytes]:
    """Return the ids of the topics that the request names, by their names; none before version 13."""
    ids: dict[str, bytes] = {}
    if request[0] >= FIRST_VERSION_WITH_IDS:
        at = 0
        for topic_id, count in request[10]:
            ids[request[11][at][0]] = topic_id
            at += count
    return ids


class PlainReading:
    """One reading of the partitions of a request; `max_bytes` is the limit of the response."""

    __slots__ = (
        "_complete",
        "_is_committed",
        "_max_bytes",
        "_quota",
        "_replica_id",
        "_replicas",
        "_request",
        "_results",
        "has_more",
        "total_bytes",
    )

    def __init__(
        self, replicas: ReplicaManager, quota: ReplicationQuota, request: PlainFetch, *, max_bytes: int
    ) -> None:
        """`quota` is that of the leader for throttled followers."""
        self._replicas = replicas
        self._quota = quota
        self._request = request
        self._replica_id = request[3]
        self._is_committed = request[6]
        self._max_bytes = max_bytes
        self.total_bytes = 0
        self.has_more = False
        """Whether a partition has records for the reader, be they within the limits or not."""
        self._results: list[tuple[FetchPosition, Partition, ReadPartition, RecordsSlice | None]] = []
        """What is sent, in a session if it has changed."""
        self._complete: list[tuple[FetchPosition, Partition]] = []
        """The positions whose reader has all that it may see."""

    def read(self, positions: Iterable[FetchPosition]) -> bool:
        """Read all; return False if something is unusual."""
        replicas, replica_id, is_committed = self._replicas.partitions, self._replica_id, self._is_committed
        is_follower = replica_id >= 0
        for position in positions:
            partition = replicas.get(position.topic_partition)
            if (
                partition is None
                or position.current_leader_epoch not in (partition.leader_epoch, ANY_EPOCH)
                or partition.leader != partition.broker_id
                or (
                    (replica_id not in partition.isr or replica_id in partition.adding_replicas)
                    if is_follower
                    else not partition.lease.covers(partition.role_broker_epoch)
                )
            ):
                return False
            log, offset = partition.log, position.fetch_offset
            start, log_end = log.log_start_offset, log.log_end_offset
            if (
                log.log_directory.failure is not None
                or not start <= offset <= log_end
                or position.last_fetched_epoch not in (ANY_EPOCH, log.leader_epochs.latest_epoch)
            ):
                return False
            high_watermark, last_stable = partition.high_watermark, partition.last_stable_offset
            end = log_end if is_follower else last_stable if is_committed else high_watermark
            records: RecordsSlice | None = None
            size = 0
            if offset < end:
                self.has_more = True
                limit = min(self._max_bytes - self.total_bytes, position.partition_max_bytes)
                if limit > 0 or not self.total_bytes:
                    records = read_records(
                        self._replicas, partition, offset, limit, end, not self.total_bytes, is_committed
                    )
                    if records is None or (is_follower and self._quota.is_throttled(position.topic_partition)):
                        return False
                    size = records.size
                    self.total_bytes += size
            else:
                self._complete.append((position, partition))
                if high_watermark == position.sent_high_watermark and start == position.sent_log_start_offset:
                    continue
            values = (partition.topic_partition.partition, high_watermark, last_stable, start, size)
            self._results.append((position, partition, values, records if size else None))
        return True

    def is_enough(self, min_bytes: int) -> bool:
        """Return whether the response is sent before the time is over."""
        enough_bytes = min(min_bytes, self._max_bytes)
        return self.total_bytes >= enough_bytes and (self.has_more or enough_bytes <= 0)

    def watch(self) -> None:
        """Let the positions, which are complete, be notified of changes."""
        for position, partition in self._complete:
            position.watch(partition)

    def _topic_ids(self, session: FetchSession | None, topics: Iterable[str]) -> dict[str, bytes]:
        """Return the ids of these topics of the request by their names; none before version 13."""
        request = self._request
        if request[0] < FIRST_VERSION_WITH_IDS:
            return {}
        if session is not None:
            return {topic: session.topic_ids[topic].bytes for topic in topics}
        return requested_ids(request)

    def reply(self, session: FetchSession | None) -> PlainReply:
        """Return the reply; in a session with what has changed, and its complete positions rest."""
        topics: dict[str, list[tuple[ReadPartition, RecordsSlice | None]]] = {}
        is_follower = self._replica_id >= 0
        for position, partition, values, records in self._results:
            _, high_watermark, _, log_start_offset, size = values
            traffic = partition.traffic
            traffic.fetch_requests += 1
            if is_follower:
                traffic.replication_bytes_out += size
            else:
                traffic.bytes_out += size
            if session is None or session.note_sent(
                position, high_watermark, log_start_offset, has_records=records is not None
            ):
                topics.setdefault(position.topic_partition.topic, []).append((values, records))
        if session is not None:
            for position, partition in self._complete:
                rest_if_complete(session, position, partition, replica_id=self._replica_id)
        ids = self._topic_ids(session, topics)
        named: list[FetchedTopic] = [
            (ids[topic] if ids else topic.encode(), len(results)) for topic, results in topics.items()
        ]
        sent = [result for results in topics.values() for result in results]
        version, correlation_id = self._request[:2]
        session_id = NO_SESSION if session is None else session.session_id
        pieces = write_fetch_response(
            version, correlation_id, session_id, self._is_committed, named, [values for values, _ in sent]
        )
        return with_records(pieces, [records for _, records in sent if records is not None]), 1 + len(sent)


def read_records(
    replicas: ReplicaManager,
    partition: Partition,
    offset: int,
    limit: int,
    end: int,
    is_first: bool,
    is_committed: bool,
) -> RecordsSlice | None:
    """Return records, or None if they cannot be read, or some are of aborted transactions."""
    log = partition.log
    try:
        records = log.read(offset, max(limit, 0), max_offset=end, min_one_batch=is_first)
        if is_committed and records.size and log.aborted_transactions(offset, records.upper_bound(end)):
            return None
    except LogDirFailure as failure:
        replicas.log_dir_failed(failure)
        return None
    except ApiError:
        return None
    return records


def with_records(pieces: list[bytes], slices: list[RecordsSlice]) -> list[Chunk]:
    """Return the chunks of a response: the records of a partition come after each piece, while there are any."""
    chunks: list[Chunk] = []
    for piece, records in zip(pieces, slices, strict=False):
        chunks.append(piece)
        chunks.append(records)
    if len(pieces) > len(slices):
        chunks.append(pieces[-1])
    return chunks
