"""OffsetDelete (key 47, version 0): deletes committed offsets of a group.  KIP-496.

Partitions of topics to which members subscribe get GROUP_SUBSCRIBED_TO_TOPIC; a group of another protocol type than
"consumer" must have no members, else NON_EMPTY_GROUP for all.  Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.ports import TopicExistence
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext


class OffsetDeleteHandler:
    """Serves OffsetDelete requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator, topics: TopicExistence) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def handle(self, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
        """Serve one request and return the response."""
        if not context.allows(Operation.DELETE, ResourceType.GROUP, request.group_id):
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
        denied = context.denied(Operation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics))
        slices = Slices()
        partitions = (
            TopicPartition(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
        )
        requested = [tp async for tp in slices.of(partitions)]
        existing = [
            tp
            async for tp in slices.of(requested)
            if tp.topic not in denied and self._topics.has_partition(tp.topic, tp.partition)
        ]
        outcome = await self._coordinator.delete_offsets(request.group_id, existing)
        if outcome.error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=outcome.error, topics=[])
        topics: dict[str, OffsetDeleteResponseTopic] = {}
        async for tp in slices.of(requested):
            topic = topics.setdefault(tp.topic, OffsetDeleteResponseTopic(name=tp.topic, partitions=[]))
            error = (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if tp.topic in denied
                else outcome.partitions.get(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
            topic.partitions.append(OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=error))
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=list(topics.values()))
