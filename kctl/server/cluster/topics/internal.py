"""The internal topics for the coordinators: appending to and loading their logs, and their partition leaders.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial

from kctl.errors import ApiError, ErrorCode, LogDirFailure, NoNodeError
from kctl.model import (
    GROUP_METADATA_TOPIC,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    ProducerIdAndEpoch,
    TopicPartition,
)
from kctl.records.salvage import BatchCutter, Piece
from kctl.server.cluster.topics.automatic import AutoTopics
from kctl.server.coordination.ports import ALL_IN_SYNC, AppendOutcome, CoordinatorNode
from kctl.server.loop.tasks import in_thread
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.accounts import RequestAccount
from kctl.storage.files import File
from kctl.storage.log.log import Log
from kctl.storage.segments.segment import Segment
from kctl.zookeeper import paths
from kctl.zookeeper.operations import ZooKeeper

# Reads a log from its start to its end by file position, so that damaged indexes or batches cannot stop it.
#
#     reading = FrontToBack(log, buffer_bytes)
#     while (read := reading.next_read()) is not None:      loop: choose the segment and position
#         piece = read()                                    thread: valid batches and the damage between them
#
# Appends during the reading are read as well. If the cleaner replaces the segment, reading continues in its
# replacement after the last offset that was read.
#
# Owner: event loop, except for the callables that `next_read` returns.


class FrontToBack:
    """One reading; each read must complete before the next one is requested."""

    def __init__(self, log: Log, buffer_bytes: int) -> None:
        """Read `buffer_bytes` at a time, more for a larger batch."""
        self._log = log
        self._buffer_bytes = buffer_bytes
        self._enter(log.log_start_offset)

    def next_read(self) -> Callable[[], Piece] | None:
        """Return a callable that reads the next piece, for a thread; None at the end of the log.

        Both raise OSError.
        """
        while True:
            segments = self._log.segments
            if self._segment not in segments:
                self._enter(self._cutter.expected_offset)
                continue
            index = segments.index(self._segment) + 1
            following = segments[index].base_offset if index < len(segments) else None
            if self._position < self._segment.size:
                end_offset = self._log.log_end_offset if following is None else following
                return partial(self._read, self._segment.file, self._segment.size, end_offset)
            if following is None:
                return None
            self._enter(following)

    def _enter(self, offset: int) -> None:
        """Continue in the segment that holds `offset`."""
        segments = self._log.segments
        self._segment: Segment = max(
            (segment for segment in segments if segment.base_offset <= offset),
            key=lambda segment: segment.base_offset,
            default=segments[0],
        )
        self._cutter = BatchCutter(self._segment.base_offset, start_offset=offset)
        self._position = self._needed = 0

    def _read(self, file: File, size: int, end_offset: int) -> Piece:
        left = size - self._position
        read_size = min(max(self._buffer_bytes, self._needed), left)
        # A file truncated by another process is read as if it ended with zeros.
        data = file.read_at(self._position, read_size).ljust(read_size, b"\0")
        cut = self._cutter.cut(data, left=left, end_offset=end_offset)
        self._position, self._needed = self._position + cut.consumed, cut.needed
        return Piece(data, cut.batches, cut.damage)


_NEWEST_PRODUCE_VERSION = 9
_REPLICATION_CHECK_MS = 30_000


class CoordinatorAppends:
    """transactions.ports.PartitionAppends: appends of this broker to the partitions that it leads."""

    def __init__(self, replicas: ReplicaManager, purgatory: Purgatory[TopicPartition]) -> None:
        self._replicas = replicas
        self._purgatory = purgatory

    def is_hosted(self, partition: TopicPartition) -> bool:
        """Return whether this broker has a replica."""
        return partition in self._replicas.partitions

    def is_open(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Return whether a transaction of this id and epoch is open in the partition."""
        replica = self._replicas.partitions.get(partition)
        return replica is not None and replica.log.producer_state.is_open(*producer)

    def may_begin(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the next records of this id and epoch begin a transaction in the partition."""
        replica = self._replicas.partitions.get(partition)
        return replica is not None and replica.log.producer_state.may_begin(*producer)

    def append(
        self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Append a batch; see coordinators.ports.CoordinatorLog.append."""
        topic, index = partition
        try:
            led = self._replicas.partition(topic, index)
            result = self._replicas.append(
                led,
                memoryview(bytearray(batch)),
                required_acks=required_acks,
                request_version=_NEWEST_PRODUCE_VERSION,
                from_client=False,
            )
        except ApiError as error:
            return AppendOutcome(error.code)
        self._replicas.partition_moved(partition)
        append = _DelayedAppend(
            led,
            result.base_offset,
            result.last_offset + 1,
            min_insync_replicas=self._replicas.min_insync_replicas(topic),
        )
        if required_acks != ALL_IN_SYNC:
            return AppendOutcome(ErrorCode.NONE, result.base_offset)
        outcome = append.outcome()
        if outcome is not None:
            return outcome
        append.future = asyncio.get_running_loop().create_future()
        self._purgatory.complete_or_watch(append, [partition], timeout_ms)
        return append.future


class InternalLog:
    """coordinators.ports.CoordinatorLog over the partitions of this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        purgatory: Purgatory[TopicPartition],
        *,
        load_buffer_bytes: int,
        topic: str = GROUP_METADATA_TOPIC,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._purgatory = purgatory
        self._appends = CoordinatorAppends(replicas, purgatory)
        self._load_buffer_bytes = load_buffer_bytes
        self._topic = topic

    def partition_count(self) -> int | None:
        """Return the number of partitions of the topic; None if it does not exist."""
        return self._metadata.partition_count(self._topic)

    def batch_bytes_max(self, partition: int) -> int:
        """See coordinators.ports.CoordinatorLog.batch_bytes_max."""
        return self._replicas.partition(self._topic, partition).log.config.max_message_bytes

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """Append a batch; see coordinators.ports.CoordinatorLog.append."""
        topic_partition = TopicPartition(self._topic, partition)
        return self._appends.append(topic_partition, batch, required_acks=required_acks, timeout_ms=timeout_ms)

    async def read_all(self, partition: int) -> AsyncIterator[Piece]:
        """Read batches in a thread, since a coordinator's partition may be large and not in the page cache."""
        log = self._replicas.partition(self._topic, partition).log
        try:
            reading = FrontToBack(log, self._load_buffer_bytes)
            while (read := reading.next_read()) is not None:
                yield await in_thread(read)
        except OSError as error:
            failure = log.log_directory.fail(error)
            self._replicas.log_dir_failed(failure)
            raise failure from error

    def cut(self, partition: int, offset: int) -> None:
        """Delete the records before the offset; see coordinators.ports.PrunedLog.cut."""
        with contextlib.suppress(ApiError, LogDirFailure):
            led = self._replicas.partition(self._topic, partition)
            led.check_leader()
            led.log.increment_log_start_offset(min(offset, led.high_watermark))

    async def until_replicated(self, partition: int) -> None:
        """Return when the high watermark has reached the current end of the log; see coordinators.ports."""
        led = self._replicas.partition(self._topic, partition)
        end = led.log.log_end_offset
        while led.high_watermark < end:
            wait = _DelayedReplication(led, end)
            self._purgatory.complete_or_watch(wait, [led.topic_partition], _REPLICATION_CHECK_MS)
            await wait.future


class _DelayedReplication:
    """Waits until the high watermark has reached an offset, or for a timeout.

    A change of the role does not complete it: the coordinator is told of that, and cancels the load.
    """

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._partition = partition
        self._required_offset = required_offset

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        """Complete if the high watermark has reached the offset."""
        if self._partition.high_watermark < self._required_offset:
            return False
        self.on_timeout()
        return True

    def on_timeout(self) -> None:
        """Complete, so that the caller checks again."""
        if not self.future.done():
            self.future.set_result(None)


class _DelayedAppend:
    """An append that waits until the high watermark has passed it."""

    def __init__(
        self, partition: Partition, base_offset: int, required_offset: int, *, min_insync_replicas: int
    ) -> None:
        self.future: asyncio.Future[AppendOutcome] | None = None
        self._partition = partition
        self._base_offset = base_offset
        self._required_offset = required_offset
        self._min_insync_replicas = min_insync_replicas

    def outcome(self) -> AppendOutcome | None:
        """Return the result, or None if it is not known yet."""
        if not self._partition.is_leader:
            return AppendOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self._partition.log.log_directory.is_online:
            return AppendOutcome(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._partition.high_watermark < self._required_offset or not self._partition.may_lead:
            return None  # The coordinator has the record in its log, and learns what becomes of it.
        if len(self._partition.isr) < self._min_insync_replicas:
            return AppendOutcome(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return AppendOutcome(ErrorCode.NONE, self._base_offset)

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        """Complete if the result is known."""
        outcome = self.outcome()
        if outcome is None:
            return False
        self._respond(outcome)
        return True

    def on_timeout(self) -> None:
        """Complete with REQUEST_TIMED_OUT."""
        self._respond(AppendOutcome(ErrorCode.REQUEST_TIMED_OUT))

    def _respond(self, outcome: AppendOutcome) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(outcome)


class InternalTopicsView:
    """coordinators.ports.InternalTopics from the metadata cache."""

    def __init__(self, metadata: MetadataCache, auto_topics: AutoTopics) -> None:
        self._metadata = metadata
        self._auto_topics = auto_topics

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of the topic; None if it does not exist."""
        return self._metadata.partition_count(topic)

    def leader_of(self, topic: str, partition: int, listener: str) -> CoordinatorNode | None:
        """Return the leader's endpoint on this listener; None if there is none."""
        info = self._metadata.partition(TopicPartition(topic, partition))
        broker = self._metadata.brokers.get(info.leader) if info is not None else None
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            return None
        return CoordinatorNode(broker.broker_id, endpoint.host, endpoint.port)

    def ensure_topic(self, topic: str, account: RequestAccount | None) -> None:
        """Start creating the topic, which counts for the quota of the client."""
        self._auto_topics.request(topic, account)


class PartitionLeadersView:
    """transactions.ports.PartitionLeaders from the metadata cache."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the leader's id, NO_LEADER, or None if the partition does not exist."""
        info = self._metadata.partition(partition)
        if info is None:
            return None
        return info.leader if info.leader in self._metadata.brokers else NO_LEADER

    @property
    def is_informed(self) -> bool:
        """True if the metadata has been received."""
        return self._metadata.partition_count(TRANSACTION_STATE_TOPIC) is not None


class OffsetsInZooKeeper:
    """groups.ports.ConsumerOffsetsInZooKeeper: commits of consumers older than 0.9."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def get(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return the committed offset, or None.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        try:
            data, _ = await self._zookeeper.get(_offset_path(group_id, topic, partition))
            return int(data)
        except (NoNodeError, ValueError):
            return None

    async def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Commit the offset.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        path = _offset_path(group_id, topic, partition)
        data = str(offset).encode()
        try:
            await self._zookeeper.set(path, data)
        except NoNodeError:
            await self._zookeeper.create(path, data, make_parents=True)


def _offset_path(group_id: str, topic: str, partition: int) -> str:
    """Return the znode of an offset.

    Raises ApiError(INVALID_GROUP_ID) for a group id that would name another znode.
    """
    if "/" in group_id or group_id in {"", ".", ".."}:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    return paths.consumer_offset(group_id, topic, partition)
