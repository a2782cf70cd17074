"""Reads the partitions of one Fetch request, within the limits of the request and what its reader may see.

A consumer sees records up to the high watermark, or up to the last stable offset with read_committed; a follower sees
records up to the log end.  A fetch that waits for min_bytes is completed by the rules of Kafka's DelayedFetch:

    A-E  this broker does not lead the partition, does not have it, its log directory is offline, or the reader has
         another leader epoch: an error, sent at once
    F    the fetch offset is in an older segment than the reader's upper bound.  A read ends with its segment, so
         waiting would not add records.  (Kafka also completes a fetch at an offset in a newer segment, which occurs
         after a leader truncated its log.  Here such an offset is out of range, which is an error, or above a high
         watermark that is about to advance, where an empty response would make the reader repeat the request.)
    G    min_bytes are available, or as much as max_bytes allows
    H    the reader's last epoch ends before its fetch offset

A new high watermark alone completes no fetch of a follower: the follower gets it with the next records, at the latest
after max_wait_ms.  Otherwise each append would cost each follower a second fetch (KAFKA-9952).

Since version 11, consumers may read from followers, up to those followers' own high watermark (KIP-392).  A follower
that is throttled and not in sync gets no records for now.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kctl.environment import Clock
from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.limits import READ_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from kctl.server.replication import old_formats
from kctl.server.replication.fetch_session import FetchPosition, FetchSession
from kctl.server.replication.partition import ANY_EPOCH, Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.replica_selector import NO_REPLICA, ReplicaSelector
from kctl.server.replication.throttles import ReplicationQuota
from kctl.server.requests.record_work import RecordWork
from kctl.server.requests.slices import pieces
from kctl.storage.log import Log
from kctl.storage.lookup import RecordsSlice

FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_THAT_READS_FROM_FOLLOWERS = 11
FetchKey = TopicPartition | FetchSession
"""The key that a waiting fetch watches: each of its partitions or, to be independent of their number, its session."""
EMPTY = b""
_EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)
"""Errors that are not counted as failed requests, as in Kafka's ReplicaManager.readFromLocalLog."""


@dataclass(slots=True)
class Reader:
    """The client of a Fetch request."""

    version: int
    """Version of the Fetch request."""
    replica_id: int = -1
    """Broker id of a follower; negative for a consumer."""
    is_committed_only: bool = False
    rack: str = ""
    listener: str = ""
    is_follower: bool = field(init=False)
    """True for a replica fetch."""
    needs_leader: bool = field(init=False)
    """True if only the leader may serve this reader: followers, and consumers before version 11."""

    def __post_init__(self) -> None:
        self.is_follower = self.replica_id >= 0
        self.needs_leader = self.is_follower or self.version < FIRST_VERSION_THAT_READS_FROM_FOLLOWERS

    @property
    def kind(self) -> tuple[int, bool]:
        """A reader of another kind may be sent something else."""
        return (self.replica_id, self.needs_leader)


@dataclass(slots=True)
class Reading:
    """The result of reading all partitions once."""

    results: dict[TopicPartition, PartitionData]
    record_bytes: dict[TopicPartition, int]
    total_bytes: int = 0
    is_urgent: bool = False
    """The response must be sent now: an error, a diverging epoch, or a preferred replica."""
    is_on_older_segment: bool = False
    """Some records end with their segment and more follow in the next: waiting would not add records.  Only determined
    while there are less than min_bytes.
    """


def is_of_one_history(log: Log, position: FetchPosition) -> bool:
    """True if a follower that fetches at this offset has the same records before it as the leader.

    If not, the follower is about to truncate and to fetch at an earlier offset; its fetch does not advance its log end
    offset until then.  Kafka: ReplicaManager.updateFollowerFetchState, which skips such partitions.
    """
    is_in_range = log.log_start_offset <= position.fetch_offset <= log.log_end_offset
    is_in_latest_epoch = position.last_fetched_epoch == log.leader_epochs.latest_epoch
    return is_in_range and (is_in_latest_epoch or _diverging_epoch(log, position) is None)


def _diverging_epoch(log: Log, position: FetchPosition) -> EpochEndOffset | None:
    """The end of the reader's last epoch in this log, if that is before the fetch offset.  KIP-595."""
    if position.last_fetched_epoch < 0:
        return None
    if position.last_fetched_epoch == log.leader_epochs.latest_epoch and position.fetch_offset <= log.log_end_offset:
        return None  # The usual case: the latest epoch ends at the log end.
    epoch, end_offset = log.end_offset_for_epoch(position.last_fetched_epoch)
    if epoch >= 0 and (epoch < position.last_fetched_epoch or end_offset < position.fetch_offset):
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _is_urgent(result: PartitionData) -> bool:
    return (
        result.error_code != ErrorCode.NONE
        or result.diverging_epoch is not None
        or result.preferred_read_replica != NO_REPLICA
    )


class Fetch:
    """The partitions of one request, and the limits and quotas for reading them."""

    def __init__(
        self,
        replicas: ReplicaManager,
        positions: list[FetchPosition],
        reader: Reader,
        *,
        session: FetchSession | None = None,
        quota: ReplicationQuota,
        selector: ReplicaSelector,
        clock: Clock,
        min_bytes: int,
        max_bytes: int,
        denied: frozenset[str] = frozenset(),
    ) -> None:
        """`denied` are the topics that the client may not read.

        With a session, the positions are its active ones, which may be others at each reading.
        """
        self._denied = denied
        self._session = session
        self.positions = positions
        self._has_partitions = bool(positions if session is None else session.positions)
        self.reader = reader
        self._is_follower = reader.is_follower
        self._needs_leader = reader.needs_leader
        self._may_skip = (
            not denied
            and (self._is_follower or not reader.rack)
            and reader.version >= old_formats.FIRST_VERSION_WITH_ZSTD
        )
        """Whether partitions without anything new need not be read: other readers may get an error or a replica."""
        self._replicas = replicas
        self._quota = quota
        self._selector = selector
        self._clock = clock
        self._min_bytes = min_bytes
        self._available: dict[TopicPartition, int] = {}
        """Bytes that a waiting fetch could get from each partition."""
        self._available_bytes = 0
        self._magic = old_formats.magic_for(reader.version)
        self._response_max_bytes = max_bytes
        self._max_bytes = max_bytes if self._magic is None else min(max_bytes, old_formats.SOURCE_BYTES_MAX)

    def is_enough(self, reading: Reading) -> bool:
        """True if the response is sent now, without waiting for more records."""
        has_bytes = reading.total_bytes >= min(self._min_bytes, self._max_bytes) or reading.is_on_older_segment
        return not self._has_partitions or reading.is_urgent or has_bytes

    @property
    def needs_bytes(self) -> bool:
        """False if the reader accepts a response without records at once: its min_bytes or max_bytes is 0."""
        return min(self._min_bytes, self._max_bytes) > 0

    @property
    def is_long(self) -> bool:
        """True if more partitions are to be read than one slice has."""
        count = len(self.positions) if self._session is None else self._session.active_count
        return count > READ_PER_SLICE_MAX

    @property
    def is_converted(self) -> bool:
        """True if the reader supports only old message formats: the response is a reading after `convert`."""
        return self._magic is not None

    def upper_bounds(self) -> dict[TopicPartition, int]:
        """The end offset of what the reader may see, per partition; -1 for an unknown partition."""
        return {tp: self.upper_bound_of(tp) for tp in (position.topic_partition for position in self.positions)}

    def upper_bound_of(self, topic_partition: TopicPartition) -> int:
        """The end offset of what the reader may see of the partition; -1 for an unknown partition."""
        partition = self._replicas.partitions.get(topic_partition)
        return -1 if partition is None else self._upper_bound(partition)

    def has_nothing_new(self) -> bool:
        """A cheap check before the first reading: True if it would find neither records nor an error, so that the fetch
        waits.
        """
        return (
            self._may_skip
            and self.needs_bytes
            and self._has_partitions
            and not any(map(self._could_have_more, self.positions))
        )

    @property
    def watched_keys(self) -> Sequence[FetchKey]:
        """The keys that a waiting fetch watches; call `watch` for its positions too."""
        if self._session is not None:
            return (self._session,)
        return [position.topic_partition for position in self.positions]

    def watch(self, positions: Iterable[FetchPosition]) -> None:
        """Lets these positions of a session be notified of changes; those that rest are already."""
        if self._session is not None:
            for position in positions:
                partition = self._replicas.partitions.get(position.topic_partition)
                if partition is not None and position.watched is not partition.watchers:
                    position.watch(partition)

    def moved(self, keys: Iterable[FetchKey]) -> list[FetchPosition]:
        """The positions that have changed, of a fetch that waits."""
        if self._session is None:
            waiting = self._waiting_positions
            return [waiting[key] for key in keys if key in waiting]
        return self._session.take_moved()

    def rest(self, session: FetchSession, positions: Iterable[FetchPosition], reading: Reading) -> None:
        """Called when a reading is sent: the positions with nothing to send before a change rest."""
        if self._may_skip:
            for position in positions:
                if position.topic_partition not in reading.record_bytes:
                    self._rest(session, position)

    def _rest(self, session: FetchSession, position: FetchPosition) -> None:
        partition = self._replicas.partitions.get(position.topic_partition)
        if (
            partition is None
            or position.session is not session
            or not self._is_sent(partition, position)
            or self._could_have_more(position)
        ):
            return
        high_watermark, follower = partition.high_watermark, None
        if not self._is_follower:
            # A transaction may be complete before the high watermark moves again.
            if position.fetch_offset < high_watermark:
                return
        else:
            # While one of these differs, each fetch may advance the high watermark or add the follower to the ISR.
            follower = partition.followers.get(self.reader.replica_id)
            end = partition.log.log_end_offset
            if (
                follower is None
                or not position.fetch_offset == follower.log_end_offset == high_watermark == end
                or follower.log_start_offset != position.log_start_offset
                or self.reader.replica_id not in partition.isr
                or partition.pending_isr is not None
            ):
                return
        session.rest(position, partition, follower)

    def wait_after(self, reading: Reading) -> None:
        """The reading was not enough: counts what it found, for `read_if_enough`."""
        self._available = dict(reading.record_bytes)
        self._available_bytes = reading.total_bytes

    def read_if_enough(self, keys: Iterable[FetchKey]) -> Reading | None:
        """A new reading when these keys have changed, or None if there is not enough for a response.

        Reads all partitions only in the first case.
        """
        changed = self.moved(keys)
        if self._session is not None:
            self.positions = self._session.active()
        if len(self.positions) == 1:
            if not self._could_have_more(self.positions[0]):
                return None
            reading = self._read_all()
            return reading if self.is_enough(reading) else None
        if not self.has_become_enough(changed):
            return None
        reading = self._read_all()
        self.wait_after(reading)
        return reading

    def has_become_enough(self, changed: Iterable[FetchPosition]) -> bool:
        """Whether there is enough for a response, when these positions have changed.

        As in Kafka, what is available is counted by partition: the next reading may be smaller, if max_bytes do not
        hold a batch of each.
        """
        is_due = False
        for position in changed:
            if self._could_have_more(position):
                topic_partition = position.topic_partition
                answer = self._read_one(position, self._max_bytes, is_first=True)
                size = len(answer.records) if answer.records is not None else 0
                self._available_bytes += size - self._available.get(topic_partition, 0)
                self._available[topic_partition] = size
                is_due = is_due or _is_urgent(answer) or self._is_on_older_segment(position, answer)
        return is_due or self._available_bytes >= min(self._min_bytes, self._max_bytes)

    @cached_property
    def _waiting_positions(self) -> dict[TopicPartition, FetchPosition]:
        return {position.topic_partition: position for position in self.positions}

    def _could_have_more(self, position: FetchPosition) -> bool:
        """A cheap check before reading: records beyond the fetch offset, or a partition whose role or log changed."""
        partition = self._replicas.partitions.get(position.topic_partition)
        if partition is None or not self._may_read(partition, position):
            return True
        log, offset = partition.log, position.fetch_offset
        if log.log_directory.failure is not None or not log.log_start_offset <= offset <= log.log_end_offset:
            return True
        if (
            offset < log.log_end_offset
            and (self._is_follower or self._upper_bound(partition) > offset)
            and not (self.reader.replica_id not in partition.isr and self._is_throttled(partition))
        ):
            return True
        is_in_latest_epoch = position.last_fetched_epoch == log.leader_epochs.latest_epoch
        return not is_in_latest_epoch and _diverging_epoch(log, position) is not None

    def _is_unchanged(self, position: FetchPosition) -> bool:
        """Whether the reader of a session has everything of the partition."""
        partition = self._replicas.partitions.get(position.topic_partition)
        return partition is not None and self._is_sent(partition, position) and not self._could_have_more(position)

    @staticmethod
    def _is_sent(partition: Partition, position: FetchPosition) -> bool:
        """Whether the reader has the high watermark and the start of the log."""
        return (
            partition.high_watermark == position.sent_high_watermark
            and partition.log.log_start_offset == position.sent_log_start_offset
        )

    def note_sent(
        self, results: Mapping[TopicPartition, PartitionData], record_bytes: Mapping[TopicPartition, int]
    ) -> None:
        """Called when these results of a reading are sent: counts them for throttles and metrics."""
        if not self._is_follower:
            self._count_consumed(results, record_bytes)
            return
        throttled_bytes = 0
        for topic_partition in results:
            partition = self._replicas.partitions.get(topic_partition)
            size = record_bytes.get(topic_partition, 0)
            if partition is not None:
                partition.traffic.fetch_requests += 1
                partition.traffic.replication_bytes_out += size
                if self.reader.replica_id in partition.adding_replicas:
                    partition.traffic.reassignment_bytes_out += size
            if size and self._quota.is_throttled(topic_partition):
                throttled_bytes += size
        if throttled_bytes:
            self._quota.record(throttled_bytes, self._clock.monotonic_ms())

    def _count_consumed(self, results: Iterable[TopicPartition], sizes: Mapping[TopicPartition, int]) -> None:
        traffic = self._replicas.traffic
        for topic_partition in results:
            counters = traffic.found(topic_partition.topic)
            counters.fetch_requests += 1
            counters.bytes_out += sizes.get(topic_partition, 0)

    def read(self) -> Reading:
        """Reads all partitions in order until max_bytes is used up."""
        if self._session is not None:
            self.positions = self._session.active()
        return self._read_all()

    def _read_all(self) -> Reading:
        reading = Reading({}, {})
        self._read_into(reading, self.positions)
        return reading

    def read_in_slices(self) -> Generator[None, None, Reading]:
        """As `read`, for many partitions: each is read in the state that it has in its slice."""
        if self._session is not None:
            self.positions = self._session.active()
        reading = Reading({}, {})
        for piece in pieces(self.positions, READ_PER_SLICE_MAX):
            self._read_into(reading, piece)
            yield
        return reading

    def _read_into(self, reading: Reading, positions: Sequence[FetchPosition]) -> None:
        results, record_bytes, total = reading.results, reading.record_bytes, reading.total_bytes
        is_urgent, is_on_older_segment = reading.is_urgent, reading.is_on_older_segment
        enough = min(self._min_bytes, self._max_bytes)
        for position in positions:
            if self._may_skip and self._is_unchanged(position):
                continue
            # Only the first partition with records may exceed the limit, so that every reader makes progress.
            left = self._max_bytes - total
            result = self._read_one(position, left, is_first=total == 0)
            results[position.topic_partition] = result
            size = len(result.records) if result.records is not None else 0
            if size:
                record_bytes[position.topic_partition] = size
                total += size
            is_urgent = is_urgent or _is_urgent(result)
            if total < enough:
                is_on_older_segment = is_on_older_segment or self._is_on_older_segment(position, result)
        reading.total_bytes, reading.is_urgent, reading.is_on_older_segment = total, is_urgent, is_on_older_segment

    def _is_on_older_segment(self, position: FetchPosition, result: PartitionData) -> bool:
        if not isinstance(result.records, RecordsSlice):
            return False
        partition = self._replicas.partitions.get(position.topic_partition)
        if partition is None:
            return False
        return partition.log.is_on_older_segment(result.records, self._upper_bound(partition))

    def _is_throttled(self, partition: Partition) -> bool:
        """True if the replication throttle applies to this follower, because it is not in sync."""
        return (
            self._is_follower
            and self.reader.replica_id not in partition.isr
            and self._quota.is_throttled(partition.topic_partition)
            and self._quota.is_exceeded(self._clock.monotonic_ms())
        )

    def _may_read(self, partition: Partition, position: FetchPosition) -> bool:
        """True if this replica may serve this reader in the reader's leader epoch."""
        epoch = position.current_leader_epoch
        return epoch in (partition.leader_epoch, ANY_EPOCH) and (
            not self._needs_leader or partition.leader == partition.broker_id
        )

    def _check_readable(self, partition: Partition, position: FetchPosition) -> None:
        if self._needs_leader:
            partition.check_leader(position.current_leader_epoch)
        else:
            partition.check_epoch(position.current_leader_epoch)

    async def convert(self, reading: Reading, work: RecordWork) -> bool:
        """Replaces the records of the reading by messages of an old format, or by the error that prevents that.

        Returns False if nothing remains to send, since some record types do not exist in old formats.
        """
        assert self._magic is not None
        reading.total_bytes = 0
        for position in self.positions:
            result = reading.results[position.topic_partition]
            if isinstance(result.records, RecordsSlice):
                left = self._response_max_bytes - reading.total_bytes
                if left <= 0 and reading.total_bytes:
                    result.records = EMPTY
                else:
                    began_ms = self._clock.monotonic_ms()
                    result = await self._convert_one(position, result, result.records, max(left, 0), work)
                    self._replicas.traffic.fetch_conversion_times.record(self._clock.monotonic_ms() - began_ms)
                    reading.results[position.topic_partition] = result
                    reading.is_urgent = reading.is_urgent or result.error_code != ErrorCode.NONE
                partition_traffic = self._replicas.traffic.found(position.topic_partition.topic)
                partition_traffic.fetch_conversions += 1
            size = len(result.records) if result.records is not None else 0
            reading.record_bytes[position.topic_partition] = size
            reading.total_bytes += size
        return reading.is_urgent or reading.total_bytes > 0

    async def _convert_one(
        self, position: FetchPosition, result: PartitionData, records: RecordsSlice, max_bytes: int, work: RecordWork
    ) -> PartitionData:
        assert self._magic is not None
        try:
            partition = self._replicas.partition(*position.topic_partition)
            result.records = await old_formats.messages_in(
                partition.log,
                records,
                self._magic,
                work,
                fetch_offset=position.fetch_offset,
                max_bytes=min(position.partition_max_bytes, max_bytes),
                max_offset=self._upper_bound(partition),
            )
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
            return self._refusal(result.partition_index, ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
        except ApiError as error:
            return self._refusal(result.partition_index, error)
        return result

    def _upper_bound(self, partition: Partition) -> int:
        if self._is_follower:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self.reader.is_committed_only else partition.high_watermark

    def _read_one(self, position: FetchPosition, max_bytes: int, *, is_first: bool) -> PartitionData:
        topic, index = position.topic_partition
        if topic in self._denied:
            return self._refusal(index, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        try:
            partition = self._replicas.partition(topic, index)
            if not self._may_read(partition, position):
                self._check_readable(partition, position)
            return self._read_replica(partition, position, max_bytes, is_first=is_first)
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
            return self._refusal(index, ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
        except ApiError as error:
            if error.code not in _EXPECTED:
                self._replicas.traffic.found(topic).failed_fetch_requests += 1
            return self._refusal(index, error)

    def _read_replica(
        self, partition: Partition, position: FetchPosition, max_bytes: int, *, is_first: bool
    ) -> PartitionData:
        log = partition.log
        offset = position.fetch_offset
        result = PartitionData(
            partition_index=partition.topic_partition.partition,
            error_code=ErrorCode.NONE,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self.reader.is_committed_only else None,
            records=EMPTY,
        )
        if self.reader.rack and not self._is_follower:
            result.preferred_read_replica = self._preferred_replica(partition, offset)
            if result.preferred_read_replica != NO_REPLICA:
                return result
        result.diverging_epoch = _diverging_epoch(log, position)
        if result.diverging_epoch is not None:
            return result
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.reader.version < old_formats.FIRST_VERSION_WITH_ZSTD:
            old_formats.check_allowed(log, self.reader.version, is_follower=self.reader.is_follower)
        upper_bound = self._upper_bound(partition)
        limit = min(max_bytes, position.partition_max_bytes)
        if offset >= upper_bound or (limit <= 0 and not is_first) or self._is_throttled(partition):
            return result
        records = log.read(offset, max(limit, 0), max_offset=upper_bound, min_one_batch=is_first)
        if self.reader.version <= old_formats.LAST_VERSION_WITH_HARD_LIMITS and (
            len(records) > position.partition_max_bytes or (not len(records) and limit == position.partition_max_bytes)
        ):
            result.records = old_formats.cut_off(offset, position.partition_max_bytes)
            return result
        if not records.size:
            return result
        result.records = records
        if self.reader.is_committed_only:
            result.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_transactions(offset, records.upper_bound(upper_bound))
            ]
        return result

    def _preferred_replica(self, partition: Partition, offset: int) -> int:
        return self._selector.preferred_replica(
            partition,
            offset,
            rack=self.reader.rack,
            listener=self.reader.listener,
            now_ms=self._clock.monotonic_ms(),
        )

    def _refusal(self, index: int, error: ApiError) -> PartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.reader.version < FIRST_VERSION_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # Old versions do not define KAFKA_STORAGE_ERROR.
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=EMPTY,
        )
