"""OffsetCommit (key 8, versions 0-8): commits the offsets of a group, or of a client with manual assignment.

The response is sent when the commits are replicated.  A partition that does not exist, or whose metadata is too large,
does not affect the others.

Version notes: 0 stores in ZooKeeper, as consumers of 0.8 did; 1 member and generation, and optionally a commit
timestamp; 2-4 optionally a retention time, which replaces offsets.retention.minutes; 6 leader epochs; 7 static members.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterator, Mapping
from dataclasses import replace

from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.committing import java_length
from kctl.server.coordination.groups.config import ConsumerOffsetsInZooKeeper, GroupConfig
from kctl.server.coordination.groups.coordinator import GroupCoordinator, commit_in_pieces, is_long
from kctl.server.coordination.groups.events import CommitRequest
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.ports import TopicExistence
from kctl.server.coordination.replies import then
from kctl.server.loop.slices import at_once, begin, end_of
from kctl.server.requests.context import RequestContext
from kctl.system.environment import Clock

TIMESTAMP_MS_MAX = (1 << 63) - 1
"""The largest timestamp that fits a record: a commit with a later expiry never expires."""
NOW = -1
"""commit_timestamp of clients that do not set one."""
DEFAULT_RETENTION = -1
STORED_IN_ZOOKEEPER = 0


class OffsetCommitHandler:
    """Serves OffsetCommit requests.  Owner: event loop."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        topics: TopicExistence,
        zookeeper: ConsumerOffsetsInZooKeeper,
        *,
        config: GroupConfig,
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._zookeeper = zookeeper
        self._config = config
        self._clock = clock

    def handle(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        """Serves one request: returns the response, or an awaitable if it has to wait."""
        return begin(self._steps(request, context))

    def _steps(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Generator[None, None, OffsetCommitResponse | Awaitable[OffsetCommitResponse]]:
        """Yields after each partition."""
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return (yield from _response(request, {}, missing=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        topics = (topic.name for topic in request.topics)
        denied = context.denied(Operation.READ, ResourceType.TOPIC, topics)
        existing: dict[TopicPartition, OffsetCommitRequestPartition] = {}
        refused: dict[TopicPartition, ErrorCode] = {}
        for tp, partition in _partitions(request):
            if tp.topic in denied:
                refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif self._topics.has_partition(tp.topic, tp.partition):
                existing[tp] = partition
            yield
        if not existing:
            return (yield from _response(request, refused))
        if context.api_version == STORED_IN_ZOOKEEPER:
            return self._store_in_zookeeper(request, existing, refused)
        event = CommitRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            offsets=(yield from self._offsets(request, existing)),
        )
        if is_long(event.offsets):
            return self._commit_in_pieces(request, event, refused)
        outcome = self._coordinator.commit(request.group_id, event)
        return then(outcome, lambda errors: at_once(_response(request, {**errors, **refused})))

    async def _commit_in_pieces(
        self, request: OffsetCommitRequest, event: CommitRequest, refused: Mapping[TopicPartition, ErrorCode]
    ) -> OffsetCommitResponse:
        errors = await commit_in_pieces(
            event.offsets, lambda some: self._coordinator.commit(request.group_id, replace(event, offsets=some))
        )
        return await end_of(_response(request, {**errors, **refused}), REQUEST_ELEMENTS_PER_SLICE_MAX)

    def _offsets(
        self, request: OffsetCommitRequest, partitions: Mapping[TopicPartition, OffsetCommitRequestPartition]
    ) -> Generator[None, None, dict[TopicPartition, OffsetAndMetadata]]:
        """Yields after each partition."""
        now_ms = self._clock.now_ms()
        has_retention = request.retention_time_ms != DEFAULT_RETENTION
        expire_ms = min(now_ms + request.retention_time_ms, TIMESTAMP_MS_MAX) if has_retention else None
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp, partition in partitions.items():
            offsets[tp] = OffsetAndMetadata(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp_ms=now_ms if partition.commit_timestamp == NOW else partition.commit_timestamp,
                expire_timestamp_ms=expire_ms,
            )
            yield
        return offsets

    async def _store_in_zookeeper(
        self,
        request: OffsetCommitRequest,
        partitions: Mapping[TopicPartition, OffsetCommitRequestPartition],
        refused: Mapping[TopicPartition, ErrorCode],
    ) -> OffsetCommitResponse:
        errors = dict(refused)
        for tp, partition in partitions.items():
            if java_length(partition.committed_metadata or "") > self._config.offset_metadata_max_bytes:
                errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            try:
                await self._zookeeper.set(request.group_id, tp.topic, tp.partition, partition.committed_offset)
                errors[tp] = ErrorCode.NONE
            except ApiError as error:
                errors[tp] = error.code
            except ZooKeeperError:
                errors[tp] = ErrorCode.UNKNOWN_SERVER_ERROR
        return await end_of(_response(request, errors), REQUEST_ELEMENTS_PER_SLICE_MAX)


def _partitions(request: OffsetCommitRequest) -> Iterator[tuple[TopicPartition, OffsetCommitRequestPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition


def _response(
    request: OffsetCommitRequest,
    errors: Mapping[TopicPartition, ErrorCode],
    *,
    missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> Generator[None, None, OffsetCommitResponse]:
    """The response in request order; partitions without a result get `missing`.  Yields after each partition."""
    response = OffsetCommitResponse(topics=[])
    for topic in request.topics:
        results: list[OffsetCommitResponsePartition] = []
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=results))
        for partition in topic.partitions:
            error = errors.get(TopicPartition(topic.name, partition.partition_index), missing)
            results.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error))
            yield
    return response
