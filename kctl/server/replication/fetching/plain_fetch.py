"""Answers a Fetch request that was read into flat values (kctl.records.compiled.fetch_frame), if it need not wait.

It does what kctl/server/handlers/fetch.py does with fewer calls, for consumers without a session whose partitions have
nothing unusual, and enough records.  Anything else is left to that handler: reading changes nothing.

Owner: event loop.
"""

from __future__ import annotations

from kctl.errors import ApiError, LogDirFailure
from kctl.limits import READ_PER_SLICE_MAX
from kctl.records.compiled.fetch_frame import PlainFetch, PlainPosition, ReadPartition, write_fetch_response
from kctl.security.acls import Operation, ResourceType
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.dispatch import PlainReply
from kctl.server.replication.partition import ANY_EPOCH
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import EVERYTHING_ALLOWED, AccessControl, Peer
from kctl.storage.log.lookup import RecordsSlice

_READ, _TOPIC = Operation.READ, ResourceType.TOPIC


class PlainFetchHandler:
    """Serves Fetch requests that were read into flat values."""

    def __init__(self, replicas: ReplicaManager, *, fetch_max_bytes: int) -> None:
        self._replicas = replicas
        self._fetch_max_bytes = fetch_max_bytes

    def handle(self, request: PlainFetch, frame: memoryview, peer: Peer, access: AccessControl) -> PlainReply | None:
        """Serve one request: return the reply, or None for what is left to the other handler."""
        del frame
        version, correlation_id, _, is_committed, max_wait_ms, min_bytes, max_bytes, topics, positions = request
        if len(positions) + len(topics) > READ_PER_SLICE_MAX or len({position[:2] for position in positions}) < len(
            positions
        ):
            return None
        if len(topics) > 1 and len({name for name, _ in topics}) < len(topics):
            return None
        max_bytes = min(max_bytes, self._fetch_max_bytes)
        slices: list[RecordsSlice] = []
        read = self._read(positions, peer, access, max_bytes, slices, is_committed=is_committed)
        if read is None:
            return None
        total = 0
        for records in slices:
            total += records.size
        if max_wait_ms > 0 and total < min(min_bytes, max_bytes):
            return None
        pieces = write_fetch_response(version, correlation_id, is_committed, topics, read)
        counters = self._replicas.traffic.found
        for position, partition in zip(positions, read, strict=True):
            traffic = counters(position[0])
            traffic.fetch_requests += 1
            traffic.bytes_out += partition[4]
        return _with_records(pieces, slices), 1 + len(read)

    def _read(
        self,
        positions: list[PlainPosition],
        peer: Peer,
        access: AccessControl,
        max_bytes: int,
        slices: list[RecordsSlice],
        *,
        is_committed: bool,
    ) -> list[ReadPartition] | None:
        """Return what is known of each partition, and add the records of those that have any to `slices`.

        Return None if something is unusual.
        """
        granted = None
        if access is not EVERYTHING_ALLOWED:
            granted = access.granted.get((peer.principal, peer.client_host, _READ, _TOPIC))
            if granted is None or access.audited.allowed:
                return None
        replicas = self._replicas.partitions
        read: list[ReadPartition] = []
        left = max_bytes
        for topic, index, leader_epoch, offset, partition_max_bytes in positions:
            partition = replicas.get((topic, index))  # type: ignore[call-overload]
            if (
                partition is None
                or (granted is not None and topic not in granted)
                or (leader_epoch not in (partition.leader_epoch, ANY_EPOCH))
                or not partition.may_lead
            ):
                return None
            log, high_watermark = partition.log, partition.high_watermark
            if log.log_directory.failure is not None or not log.log_start_offset <= offset <= log.log_end_offset:
                return None
            size = 0
            last_stable_offset = partition.last_stable_offset
            end = last_stable_offset if is_committed else high_watermark
            limit = min(left, partition_max_bytes)
            if offset < end and (limit > 0 or not slices):
                try:
                    records = log.read(offset, max(limit, 0), max_offset=end, min_one_batch=not slices)
                    if is_committed and records.size and log.aborted_transactions(offset, records.upper_bound(end)):
                        return None
                except LogDirFailure as failure:
                    self._replicas.log_dir_failed(failure)
                    return None
                except ApiError:
                    return None
                size = records.size
                if size:
                    slices.append(records)
                    left -= size
            read.append((index, high_watermark, last_stable_offset, log.log_start_offset, size))
        return read


def _with_records(pieces: list[bytes], slices: list[RecordsSlice]) -> list[Chunk]:
    """Return the chunks of a response: the records of a partition come after each piece, while there are any."""
    chunks: list[Chunk] = []
    for piece, records in zip(pieces, slices, strict=False):
        chunks.append(piece)
        chunks.append(records)
    if len(pieces) > len(slices):
        chunks.append(pieces[-1])
    return chunks
