"""DeleteRecords (key 21, versions 0-2): deletes records by advancing the log start offset of partitions.  KIP-107.

The leader responds with the low watermark, the smallest log start offset of the live replicas.  It waits until that has
reached the requested offset, for at most timeout_ms.  Offset -1 means the high watermark; records above it cannot be
deleted.  Topics with cleanup.policy=compact get POLICY_VIOLATION, internal ones INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import INTERNAL_TOPICS, TopicPartition
from kctl.protocol.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import Slices, sliced_batches
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.server.requests.purgatory import Purgatory

HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


@dataclass(slots=True)
class _Deletion:
    """One partition whose log start offset was advanced; it is complete when its live replicas have followed."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult

    def try_complete(self, metadata: MetadataCache) -> bool:
        """Fill in the result if it is known; return True if it is final."""
        if self.result.error_code != ErrorCode.REQUEST_TIMED_OUT:
            return True
        if not self.partition.may_lead:
            self.result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        low_watermark = self.partition.low_watermark(list(metadata.brokers))
        if low_watermark < self.offset:
            return False
        self.result.error_code = ErrorCode.NONE
        self.result.low_watermark = low_watermark
        return True


class _Wait:
    """A DelayedOperation that completes when all partitions of a request are complete."""

    def __init__(self, deletions: Sequence[_Deletion], metadata: MetadataCache, done: asyncio.Future[None]) -> None:
        self._waiting: dict[TopicPartition, list[_Deletion]] = {}
        for deletion in deletions:
            self._waiting.setdefault(deletion.partition.topic_partition, []).append(deletion)
        self._metadata = metadata
        self.future = done

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        for topic_partition in changed:
            deletions = self._waiting.pop(topic_partition, [])
            waiting = [deletion for deletion in deletions if not deletion.try_complete(self._metadata)]
            if waiting:
                self._waiting[topic_partition] = waiting
        if self._waiting:
            return False
        self.on_timeout()
        return True

    def on_timeout(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class DeleteRecordsHandler:
    """Serves DeleteRecords; `purgatory` is one that is checked when a partition moves.  Owner: event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        configs: ConfigView,
        purgatory: Purgatory[TopicPartition],
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._configs = configs
        self._purgatory = purgatory

    async def handle(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
        """Serve one request and return the response."""
        slices = Slices()
        deletions: list[_Deletion] = []
        topics: list[DeleteRecordsTopicResult] = []
        denied = context.denied(Operation.DELETE, ResourceType.TOPIC, (topic.name for topic in request.topics))
        async for topic in slices.of(request.topics):
            topic_result = DeleteRecordsTopicResult(name=topic.name, partitions=[])
            topics.append(topic_result)
            async for requested in slices.of(topic.partitions):
                result = DeleteRecordsPartitionResult(
                    partition_index=requested.partition_index,
                    low_watermark=_NO_LOW_WATERMARK,
                    error_code=ErrorCode.REQUEST_TIMED_OUT,
                )
                topic_result.partitions.append(result)
                try:
                    if topic.name in denied:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    partition, offset = self._delete(topic.name, requested.partition_index, requested.offset)
                    deletions.append(_Deletion(partition, offset, result))
                except ApiError as error:
                    result.error_code = error.code
        waits = [
            self._replicated(batch, request.timeout_ms)
            async for batch in sliced_batches(deletions, REQUEST_ELEMENTS_PER_SLICE_MAX)
        ]
        await asyncio.gather(*waits)
        return DeleteRecordsResponse(topics=topics)

    def _delete(self, topic: str, index: int, requested_offset: int) -> tuple[Partition, int]:
        """Advance the log start offset here; return the partition and the offset.  Raises ApiError."""
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._replicas.partition(topic, index)
        partition.check_leader()
        if not self._configs.topic(topic).deletes:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        offset = partition.high_watermark if requested_offset == HIGH_WATERMARK else requested_offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            partition.log.increment_log_start_offset(offset)
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure
        return partition, offset

    def _replicated(self, deletions: Sequence[_Deletion], timeout_ms: int) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys = [deletion.partition.topic_partition for deletion in deletions]
        self._purgatory.complete_or_watch(_Wait(deletions, self._metadata, done), keys, timeout_ms)
        return done
