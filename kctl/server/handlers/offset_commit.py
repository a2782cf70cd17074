"""OffsetCommit (key 8, versions 0-10): commits the offsets of a group, or of a client with manual assignment.

The response is sent when the commits are replicated.  A partition that does not exist, or whose metadata is too large,
does not affect the others.

Version notes: 0 stores in ZooKeeper, as consumers of 0.8 did; 1 member and generation, and optionally a commit
timestamp; 2-4 optionally a retention time, which replaces offsets.retention.minutes; 6 leader epochs; 7 static members;
9 members of the consumer protocol, which commit with their epoch (KIP-848); 10 topic
ids, UNKNOWN_TOPIC_ID if there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace

from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.actions import CommitOutcome
from kctl.server.coordination.groups.config import ConsumerOffsetsInZooKeeper, GroupConfig
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import CommitRequest
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.offsets_writer import Offsets, commit_sliced
from kctl.server.coordination.groups.rules.committing import java_length
from kctl.server.coordination.ports import TopicNames
from kctl.server.coordination.replies import Reply
from kctl.server.loop.slices import Slices, started
from kctl.server.requests.context import RequestContext
from kctl.system.environment import Clock

TIMESTAMP_MS_MAX = (1 << 63) - 1
"""The largest timestamp that fits a record: a commit with a later expiry never expires."""
NOW = -1
"""commit_timestamp of clients that do not set one."""
DEFAULT_RETENTION = -1
STORED_IN_ZOOKEEPER = 0
FIRST_WITH_MEMBER_EPOCHS = 9
FIRST_WITH_TOPIC_IDS = 10
_NO_TOPIC = ""
"""In place of the name of a topic whose id is unknown."""


class OffsetCommitHandler:
    """Serves OffsetCommit requests.  Owner: event loop."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        topics: TopicNames,
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
        """Serve one request: return the response, or an awaitable if it has to wait."""
        return started(self._respond(request, context))

    async def _respond(self, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
        slices = Slices()
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return await _response(request, {}, slices, missing=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if context.api_version >= FIRST_WITH_TOPIC_IDS:
            async for topic in slices.of(request.topics):
                topic.name = self._topics.topic_name(topic.topic_id) or _NO_TOPIC
        topics = (topic.name for topic in request.topics if topic.name != _NO_TOPIC)
        denied = context.denied(Operation.READ, ResourceType.TOPIC, topics)
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        refused: dict[TopicPartition, ErrorCode] = {}
        now_ms = self._clock.now_ms()
        has_retention = request.retention_time_ms != DEFAULT_RETENTION
        expire_ms = min(now_ms + request.retention_time_ms, TIMESTAMP_MS_MAX) if has_retention else None
        async for tp, partition in slices.of(_partitions(request)):
            if tp.topic in denied:
                refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif self._topics.has_partition(tp.topic, tp.partition):
                offsets[tp] = OffsetAndMetadata(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    commit_timestamp_ms=now_ms if partition.commit_timestamp == NOW else partition.commit_timestamp,
                    expire_timestamp_ms=expire_ms,
                )
        if not offsets:
            return await _response(request, refused, slices)
        if context.api_version == STORED_IN_ZOOKEEPER:
            stored = await self._store_in_zookeeper(request.group_id, offsets)
            return await _response(request, {**stored, **refused}, slices)
        event = CommitRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            knows_epochs=context.api_version >= FIRST_WITH_MEMBER_EPOCHS,
            offsets=offsets,
        )

        def commit(some: Offsets) -> Reply[CommitOutcome]:
            return self._coordinator.commit(request.group_id, replace(event, offsets=some))

        errors = await commit_sliced(offsets, commit)
        return await _response(request, {**errors, **refused}, slices)

    async def _store_in_zookeeper(self, group_id: str, offsets: Offsets) -> dict[TopicPartition, ErrorCode]:
        errors: dict[TopicPartition, ErrorCode] = {}
        for tp, committed in offsets.items():
            if java_length(committed.metadata) > self._config.offset_metadata_max_bytes:
                errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            try:
                await self._zookeeper.set(group_id, tp.topic, tp.partition, committed.offset)
                errors[tp] = ErrorCode.NONE
            except ApiError as error:
                errors[tp] = error.code
            except ZooKeeperError:
                errors[tp] = ErrorCode.UNKNOWN_SERVER_ERROR
        return errors


def _partitions(request: OffsetCommitRequest) -> Iterator[tuple[TopicPartition, OffsetCommitRequestPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition


async def _response(
    request: OffsetCommitRequest,
    errors: Mapping[TopicPartition, ErrorCode],
    slices: Slices,
    *,
    missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> OffsetCommitResponse:
    """Return the response in request order; partitions without a result get `missing`."""
    response = OffsetCommitResponse(topics=[])
    for topic in request.topics:
        results: list[OffsetCommitResponsePartition] = []
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
        is_unknown = topic.name == _NO_TOPIC and topic.topic_id != ZERO_UUID
        async for partition in slices.of(topic.partitions):
            error = errors.get(TopicPartition(topic.name, partition.partition_index), missing)
            if is_unknown and missing is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            results.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error))
    return response
