"""DescribeShareGroupOffsets (key 90, versions 0-1): the start offsets of share groups, from the share coordinators.

Served with `share` in group.coordinator.rebalance.protocols.  Without topics, all partitions that the group has begun
are described.  The lag needs the end of the partition, so that it is known only for partitions that this broker leads.

Version notes: 1 the lag (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestedGroup,
    ShareGroup,
    SharePartition,
    ShareTopic,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.coordination.share_groups.group import ShareGroup as StoredShareGroup
from kctl.server.coordination.share_groups.ports import GroupShareStates
from kctl.server.coordination.share_state.state import ShareState
from kctl.server.loop.slices import Slices
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.values import NO_OFFSET, ShareKey

DESCRIBED_PARTITIONS_MAX = bound(
    Subject.COORDINATION,
    "share-partitions that one request for start offsets describes",
    10_000,
    "partitions",
    on_excess="INVALID_REQUEST for the groups after them",
)
_PER_SLICE = 100
_NO_LAG = -1


class DescribeShareGroupOffsetsHandler:
    """Serves DescribeShareGroupOffsets requests.  Owner: event loop."""

    def __init__(
        self, coordinator: GroupCoordinator, states: GroupShareStates, topics: ClusterTopics, replicas: ReplicaManager
    ) -> None:
        self._coordinator = coordinator
        self._states = states
        self._topics = topics
        self._replicas = replicas

    async def handle(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> DescribeShareGroupOffsetsResponse:
        """Serve one request and return the response."""
        slices = Slices(_PER_SLICE)
        groups: list[ShareGroup] = []
        left = DESCRIBED_PARTITIONS_MAX
        async for requested in slices.of(request.groups):
            group = ShareGroup(group_id=requested.group_id, topics=[], error_code=ErrorCode.NONE)
            groups.append(group)
            try:
                context.check(Operation.DESCRIBE, ResourceType.GROUP, requested.group_id)
                wanted = self._wanted(requested, context)
                left -= sum(len(numbers) for _, _, numbers in wanted)
                if left < 0:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "too many partitions for one request")
            except ApiError as error:
                group.error_code, group.error_message = error.code, error.message or error.code.description
                continue
            for name, topic_id, numbers in wanted:
                partitions = [
                    await self._partition(ShareKey(requested.group_id, topic_id, number), name)
                    async for number in slices.of(numbers)
                ]
                group.topics.append(ShareTopic(topic_name=name, topic_id=topic_id, partitions=partitions))
        return DescribeShareGroupOffsetsResponse(groups=groups)

    def _wanted(self, requested: RequestedGroup, context: RequestContext) -> list[tuple[str, UUID, list[int]]]:
        known: dict[str, tuple[UUID, frozenset[int]]] = {}
        # Kafka describes a group that does not exist as one that has begun nothing.
        if not self._coordinator.is_missing(requested.group_id):
            share = self._coordinator.find(requested.group_id, StoredShareGroup)
            known = {name: (topic_id, numbers) for topic_id, (name, numbers) in share.partitions.initialized.items()}
        names: Iterable[tuple[str, list[int]]] = ((name, sorted(numbers)) for name, (_, numbers) in known.items())
        if requested.topics is not None:
            names = ((topic.topic_name, topic.partitions) for topic in requested.topics)
        wanted = list(names)
        denied = context.denied(
            Operation.DESCRIBE,
            ResourceType.TOPIC,
            [name for name, _ in wanted],
            is_logged=requested.topics is not None,
        )
        return [
            (name, known[name][0] if name in known else self._topics.topic_id(name), list(dict.fromkeys(numbers)))
            for name, numbers in wanted
            if name not in denied
        ]

    async def _partition(self, key: ShareKey, topic: str) -> SharePartition:
        described = SharePartition(
            partition_index=key.partition,
            start_offset=NO_OFFSET,
            leader_epoch=0,
            lag=_NO_LAG,
            error_code=ErrorCode.NONE,
        )
        if key.topic_id == ZERO_UUID:
            return described
        try:
            state = await self._states.summary(key)
        except ApiError as error:
            described.error_code, described.error_message = error.code, error.message or error.code.description
            return described
        if state is not None:
            described.start_offset, described.leader_epoch = state.start_offset, state.leader_epoch
            described.lag = self._lag(TopicPartition(topic, key.partition), state)
        return described

    def _lag(self, topic_partition: TopicPartition, state: ShareState) -> int:
        led = self._replicas.partitions.get(topic_partition)
        if led is None or not led.is_leader or NO_OFFSET in {state.start_offset, state.delivery_complete_count}:
            return _NO_LAG
        return max(led.high_watermark - state.start_offset - state.delivery_complete_count, 0)
