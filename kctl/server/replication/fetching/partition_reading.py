"""Reads one partition for the client of a Fetch request, and decides what it may see of it.

A consumer sees records up to the high watermark, or up to the last stable offset with read_committed; a follower sees
records up to the log end.  Since version 11, consumers may read from followers, up to those followers' own high
watermark (KIP-392).  A follower that is throttled and not in sync gets no records for now.

Owner: event loop.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from kctl.protocol.source import constructor
from kctl.records.allowance import decompressed_size_max
from kctl.records.header import CorruptBatch
from kctl.records.old_formats.conversion import downgrade
from kctl.server.replication.fetching.fetch_session import FetchPosition
from kctl.server.replication.fetching.replica_selector import NO_REPLICA, ReplicaSelector
from kctl.server.replication.partition import ANY_EPOCH, Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationQuota
from kctl.server.requests.record_work import RecordWork
from kctl.storage.log.log import Log
from kctl.storage.log.lookup import RecordsSlice
from kctl.system.environment import Clock

# Down-conversion for Fetch versions 0 to 3, whose clients do not support magic 2.
#
# Records are converted to magic 0 or 1 in memory, in a thread; one response converts at most SOURCE_BYTES_MAX of the
# log. A batch that exceeds the bounds of kctl.limits gets CORRUPT_MESSAGE. Batches without any convertible record,
# mostly transaction markers, are skipped: a client that got an empty response would fetch the same offset again.


LAST_VERSION_FOR_MAGIC_0 = 1
LAST_VERSION_WITH_HARD_LIMITS = 2
LAST_VERSION_FOR_MAGIC_1 = 3
FIRST_VERSION_WITH_ZSTD = 10

SOURCE_BYTES_MAX = 512 << 10
"""Bounds conversions in threads, which compete with the event loop; the first batch may be larger."""

_CUT_OFF_SIZE = 64
_ENTRY = struct.Struct(">qi")


def magic_for(version: int) -> int | None:
    """Return the newest message format that a client with this Fetch version supports; None for magic 2."""
    if version > LAST_VERSION_FOR_MAGIC_1:
        return None
    return 0 if version <= LAST_VERSION_FOR_MAGIC_0 else 1


def check_allowed(log: Log, version: int, *, is_follower: bool) -> None:
    """Raise ApiError if the topic's configuration does not allow clients of this Fetch version."""
    if version < FIRST_VERSION_WITH_ZSTD and log.config.compression_type == "zstd":
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if version <= LAST_VERSION_FOR_MAGIC_1 and not is_follower and not log.config.message_downconversion_enable:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")


async def messages_in(
    log: Log,
    records: RecordsSlice,
    magic: int,
    work: RecordWork,
    *,
    fetch_offset: int,
    max_bytes: int,
    max_offset: int,
) -> bytes:
    """Convert the slice, or the next one that has convertible records.  Raises ApiError, LogDirFailure."""
    offset = fetch_offset
    while True:
        memory_bytes = len(records) + decompressed_size_max(len(records))
        try:
            messages, next_offset = await work.run(memory_bytes, partial(_convert, records, magic, offset, max_bytes))
        except OSError as error:
            raise log.log_directory.fail(error) from error
        except CorruptBatch as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
        if messages or not offset < next_offset < max_offset:
            return messages
        offset = next_offset
        records = log.read(offset, SOURCE_BYTES_MAX, max_offset=max_offset)


def _convert(records: RecordsSlice, magic: int, first_offset: int, max_bytes: int) -> tuple[bytes, int]:
    return downgrade(records.read(), magic, first_offset=first_offset, size_max=max_bytes)


def cut_off(fetch_offset: int, max_bytes: int) -> bytes:
    """Return the start of a message larger than `max_bytes`: up to version 2, it makes a client raise its limit."""
    return _ENTRY.pack(fetch_offset, max(max_bytes, _CUT_OFF_SIZE)).ljust(min(max_bytes, _CUT_OFF_SIZE), b"\0")


FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_THAT_READS_FROM_FOLLOWERS = 11
EMPTY = b""
_partition_data = constructor(PartitionData)
_NO_ERROR = ErrorCode.NONE
"""A constant, because Python 3.11 takes 0.1 us to find a member of an enum."""
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


def is_of_one_history(log: Log, position: FetchPosition) -> bool:
    """Return whether a follower that fetches at this offset has the same records before it as the leader.

    If not, the follower is about to truncate and to fetch at an earlier offset; its fetch does not advance its log end
    offset until then.  Kafka: ReplicaManager.updateFollowerFetchState, which skips such partitions.
    """
    is_in_range = log.log_start_offset <= position.fetch_offset <= log.log_end_offset
    is_in_latest_epoch = position.last_fetched_epoch == log.leader_epochs.latest_epoch
    return is_in_range and (is_in_latest_epoch or _diverging_epoch(log, position) is None)


def _diverging_epoch(log: Log, position: FetchPosition) -> EpochEndOffset | None:
    """Return the end of the reader's last epoch in this log, if that is before the fetch offset.  KIP-595."""
    if position.last_fetched_epoch < 0:
        return None
    if position.last_fetched_epoch == log.leader_epochs.latest_epoch and position.fetch_offset <= log.log_end_offset:
        return None  # The usual case: the latest epoch ends at the log end.
    epoch, end_offset = log.end_offset_for_epoch(position.last_fetched_epoch)
    if epoch >= 0 and (epoch < position.last_fetched_epoch or end_offset < position.fetch_offset):
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def is_sent_at_once(result: PartitionData) -> bool:
    """Return whether the result is sent at once: an error, a diverging epoch, or a preferred replica."""
    return (
        result.error_code != _NO_ERROR
        or result.diverging_epoch is not None
        or result.preferred_read_replica != NO_REPLICA
    )


class PartitionReading:
    """Reads partitions for one client, each for itself; `denied` are the topics that it may not read."""

    def __init__(
        self,
        replicas: ReplicaManager,
        reader: Reader,
        *,
        quota: ReplicationQuota,
        selector: ReplicaSelector,
        clock: Clock,
        denied: frozenset[str],
    ) -> None:
        self._replicas = replicas
        self._reader = reader
        self._is_follower = reader.is_follower
        self._needs_leader = reader.needs_leader
        self._quota = quota
        self._selector = selector
        self._clock = clock
        self._denied = denied

    def upper_bound_of(self, topic_partition: TopicPartition) -> int:
        """Return the offset up to which the reader may see records of the partition; -1 for an unknown partition."""
        partition = self._replicas.partitions.get(topic_partition)
        return -1 if partition is None else self._upper_bound(partition)

    def could_have_more(self, position: FetchPosition) -> bool:
        """Check cheaply, before reading, for records beyond the fetch offset and for a change of the partition's role
        or log.
        """
        partition = self._replicas.partitions.get(position.topic_partition)
        if partition is None or not self._may_read(partition, position):
            return True
        log, offset = partition.log, position.fetch_offset
        if log.log_directory.failure is not None or not log.log_start_offset <= offset <= log.log_end_offset:
            return True
        if (
            offset < log.log_end_offset
            and (self._is_follower or self._upper_bound(partition) > offset)
            and not (self._reader.replica_id not in partition.isr and self._is_throttled(partition))
        ):
            return True
        is_in_latest_epoch = position.last_fetched_epoch == log.leader_epochs.latest_epoch
        return not is_in_latest_epoch and _diverging_epoch(log, position) is not None

    def is_unchanged(self, position: FetchPosition) -> bool:
        """Return whether the reader of a session has everything of the partition."""
        partition = self._replicas.partitions.get(position.topic_partition)
        return partition is not None and self.is_sent(partition, position) and not self.could_have_more(position)

    @staticmethod
    def is_sent(partition: Partition, position: FetchPosition) -> bool:
        """Return whether the reader has the high watermark and the start of the log."""
        return (
            partition.high_watermark == position.sent_high_watermark
            and partition.log.log_start_offset == position.sent_log_start_offset
        )

    def is_on_older_segment(self, position: FetchPosition, result: PartitionData) -> bool:
        """Return whether the records of this answer end with their segment, and more follow in the next."""
        if not isinstance(result.records, RecordsSlice):
            return False
        partition = self._replicas.partitions.get(position.topic_partition)
        if partition is None:
            return False
        return partition.log.is_on_older_segment(result.records, self._upper_bound(partition))

    def read(self, position: FetchPosition, max_bytes: int, *, is_first: bool) -> PartitionData:
        """Read at most `max_bytes`, but the whole first batch if `is_first`; the result may be an error."""
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

    async def convert(
        self,
        position: FetchPosition,
        result: PartitionData,
        records: RecordsSlice,
        magic: int,
        *,
        max_bytes: int,
        work: RecordWork,
    ) -> PartitionData:
        """Return the result with the records as messages of an old format, or the error that prevents that."""
        try:
            partition = self._replicas.partition(*position.topic_partition)
            result.records = await messages_in(
                partition.log,
                records,
                magic,
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

    def _read_replica(
        self, partition: Partition, position: FetchPosition, max_bytes: int, *, is_first: bool
    ) -> PartitionData:
        log = partition.log
        offset = position.fetch_offset
        result = _partition_data(
            partition_index=partition.topic_partition.partition,
            error_code=_NO_ERROR,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._reader.is_committed_only else None,
            records=EMPTY,
        )
        if self._reader.rack and not self._is_follower:
            result.preferred_read_replica = self._preferred_replica(partition, offset)
            if result.preferred_read_replica != NO_REPLICA:
                return result
        result.diverging_epoch = _diverging_epoch(log, position)
        if result.diverging_epoch is not None:
            return result
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self._reader.version < FIRST_VERSION_WITH_ZSTD:
            check_allowed(log, self._reader.version, is_follower=self._is_follower)
        upper_bound = self._upper_bound(partition)
        limit = min(max_bytes, position.partition_max_bytes)
        if offset >= upper_bound or (limit <= 0 and not is_first) or self._is_throttled(partition):
            return result
        records = log.read(offset, max(limit, 0), max_offset=upper_bound, min_one_batch=is_first)
        if self._reader.version <= LAST_VERSION_WITH_HARD_LIMITS and (
            len(records) > position.partition_max_bytes or (not len(records) and limit == position.partition_max_bytes)
        ):
            result.records = cut_off(offset, position.partition_max_bytes)
            return result
        if not records.size:
            return result
        result.records = records
        if self._reader.is_committed_only:
            result.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_transactions(offset, records.upper_bound(upper_bound))
            ]
        return result

    def _upper_bound(self, partition: Partition) -> int:
        if self._is_follower:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self._reader.is_committed_only else partition.high_watermark

    def _preferred_replica(self, partition: Partition, offset: int) -> int:
        return self._selector.preferred_replica(
            partition,
            offset,
            rack=self._reader.rack,
            listener=self._reader.listener,
            now_ms=self._clock.monotonic_ms(),
        )

    def _is_throttled(self, partition: Partition) -> bool:
        """Return whether the replication throttle applies to this follower, because it is not in sync."""
        return (
            self._is_follower
            and self._reader.replica_id not in partition.isr
            and self._quota.is_throttled(partition.topic_partition)
            and self._quota.is_exceeded(self._clock.monotonic_ms())
        )

    def _may_read(self, partition: Partition, position: FetchPosition) -> bool:
        """Return whether this replica may serve this reader in the reader's leader epoch.

        A leader without a valid registration serves its followers only.
        """
        if position.current_leader_epoch not in (partition.leader_epoch, ANY_EPOCH):
            return False
        if partition.leader == partition.broker_id:
            return self._is_follower or partition.lease.covers(partition.role_broker_epoch)
        return not self._needs_leader

    def _check_readable(self, partition: Partition, position: FetchPosition) -> None:
        """Raise the error for a reader that `_may_read` refuses."""
        partition.check_epoch(position.current_leader_epoch)
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refusal(self, index: int, error: ApiError) -> PartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._reader.version < FIRST_VERSION_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # Old versions do not define KAFKA_STORAGE_ERROR.
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=EMPTY,
        )
