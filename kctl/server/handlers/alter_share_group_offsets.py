"""AlterShareGroupOffsets (key 91, version 0): sets the start offsets of a share group without members (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols.  What leaders have acquired or acknowledged after the new
start is forgotten: the group's epoch increases, with which their state is fenced.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    TopicResult,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.coordination.share_groups.group import ShareGroup
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.values import ShareKey


class AlterShareGroupOffsetsHandler:
    """Serves AlterShareGroupOffsets requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator, topics: ClusterTopics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def handle(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> AlterShareGroupOffsetsResponse:
        """Serve one request and return the response."""
        offsets: dict[ShareKey, tuple[str, int]] = {}
        results: list[TopicResult] = []
        try:
            context.check(Operation.READ, ResourceType.GROUP, request.group_id)
            # Kafka creates a group that does not exist.
            is_missing = self._coordinator.is_missing(request.group_id)
            if not is_missing and not self._coordinator.find(request.group_id, ShareGroup).is_empty:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            denied = context.denied(Operation.READ, ResourceType.TOPIC, [topic.topic_name for topic in request.topics])
            for topic in request.topics:
                topic_id = self._topics.topic_id(topic.topic_name)
                count = self._topics.partition_count(topic.topic_name) or 0
                result = TopicResult(topic_name=topic.topic_name, topic_id=topic_id, partitions=[])
                results.append(result)
                for partition in topic.partitions:
                    number, error = partition.partition_index, ErrorCode.NONE
                    if topic.topic_name in denied:
                        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    elif topic_id == ZERO_UUID or not 0 <= number < count:
                        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    elif partition.start_offset < 0:
                        error = ErrorCode.INVALID_REQUEST
                    else:
                        key = ShareKey(request.group_id, topic_id, number)
                        offsets[key] = topic.topic_name, partition.start_offset
                    message = None if error is ErrorCode.NONE else error.description
                    result.partitions.append(
                        PartitionResult(partition_index=number, error_code=error, error_message=message)
                    )
            if offsets:
                await self._coordinator.reset_share_states(request.group_id, offsets)
        except ApiError as error:
            message = error.message or error.code.description
            return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=message, responses=[])
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=results)
