"""The internal topics as the coordinators see them: a log to append to and to load from, and who leads which partition.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kctl.errors import ApiError, ErrorCode, NoNodeError
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition
from kctl.records.batch import iterate_batches
from kctl.server.auto_topics import AutoTopics
from kctl.server.groups.ports import AppendOutcome, CoordinatorNode
from kctl.server.metadata_cache import MetadataCache
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.purgatory import Purgatory
from kctl.zookeeper import paths
from kctl.zookeeper.operations import ZooKeeper

ALL_IN_SYNC = -1
_NEWEST_PRODUCE_VERSION = 9


class InternalLog:
    """groups.ports.OffsetsLog over the partitions of this broker."""

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
        self._load_buffer_bytes = load_buffer_bytes
        self._topic = topic

    def partition_count(self) -> int | None:
        return self._metadata.partition_count(self._topic)

    def append(
        self, partition: int, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        try:
            led = self._replicas.partition(self._topic, partition)
            result = self._replicas.append(
                led,
                memoryview(bytearray(batch)),
                required_acks=required_acks,
                request_version=_NEWEST_PRODUCE_VERSION,
                from_client=False,
            )
        except ApiError as error:
            return AppendOutcome(error.code)
        self._replicas.partition_moved(led.topic_partition)
        append = _DelayedAppend(led, result.base_offset, result.last_offset + 1)
        if required_acks != ALL_IN_SYNC or append.try_complete():
            return AppendOutcome(ErrorCode.NONE, result.base_offset)
        append.future = asyncio.get_running_loop().create_future()
        self._purgatory.complete_or_watch(append, [led.topic_partition], timeout_ms)
        return append.future

    async def read_all(self, partition: int) -> AsyncIterator[bytes]:
        """Reads in a thread: a coordinator's partition may be large and cold."""
        log = self._replicas.partition(self._topic, partition).log
        loop = asyncio.get_running_loop()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, self._load_buffer_bytes, max_offset=log.log_end_offset)
            if not len(records):
                return
            data = await loop.run_in_executor(None, records.read)
            yield data
            for header in iterate_batches(data):
                offset = header.last_offset + 1


class _DelayedAppend:
    """An append until the high watermark has passed it."""

    def __init__(self, partition: Partition, base_offset: int, required_offset: int) -> None:
        self.future: asyncio.Future[AppendOutcome] | None = None
        self._partition = partition
        self._base_offset = base_offset
        self._required_offset = required_offset

    def try_complete(self) -> bool:
        if not self._partition.is_leader:
            self._answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if self._partition.high_watermark < self._required_offset:
            return False
        self._answer(ErrorCode.NONE)
        return True

    def on_timeout(self) -> None:
        self._answer(ErrorCode.REQUEST_TIMED_OUT)

    def _answer(self, error: ErrorCode) -> None:
        if self.future is not None and not self.future.done():
            offset = self._base_offset if error is ErrorCode.NONE else -1
            self.future.set_result(AppendOutcome(error, offset))


class InternalTopicsView:
    """groups.ports.InternalTopics from the metadata cache."""

    def __init__(self, metadata: MetadataCache, auto_topics: AutoTopics) -> None:
        self._metadata = metadata
        self._auto_topics = auto_topics

    def partition_count(self, topic: str) -> int | None:
        return self._metadata.partition_count(topic)

    def leader_of(self, topic: str, partition: int, listener: str) -> CoordinatorNode | None:
        info = self._metadata.partition(TopicPartition(topic, partition))
        broker = self._metadata.brokers.get(info.leader) if info is not None else None
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            return None
        return CoordinatorNode(broker.broker_id, endpoint.host, endpoint.port)

    def ensure_topic(self, topic: str) -> None:
        self._auto_topics.request(topic)


class OffsetsInZooKeeper:
    """groups.ports.ConsumerOffsetsInZooKeeper: where consumers of before 0.9 commit."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def get(self, group_id: str, topic: str, partition: int) -> int | None:
        try:
            data, _ = await self._zookeeper.get(paths.consumer_offset(group_id, topic, partition))
            return int(data)
        except (NoNodeError, ValueError):
            return None

    async def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        path = paths.consumer_offset(group_id, topic, partition)
        data = str(offset).encode()
        try:
            await self._zookeeper.set(path, data)
        except NoNodeError:
            await self._zookeeper.create(path, data, make_parents=True)
