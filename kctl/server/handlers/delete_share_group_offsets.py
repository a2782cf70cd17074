"""DeleteShareGroupOffsets (key 92, version 0): forgets the topics of a share group without members (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.coordination.share_groups.group import ShareGroup
from kctl.server.requests.context import RequestContext


class DeleteShareGroupOffsetsHandler:
    """Serves DeleteShareGroupOffsets requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator, topics: ClusterTopics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def handle(
        self, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> DeleteShareGroupOffsetsResponse:
        """Serve one request and return the response."""
        results: list[TopicResult] = []
        try:
            context.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
            share = self._coordinator.find(request.group_id, ShareGroup)
            if not share.is_empty:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            known = {named.name: topic_id for topic_id, named in share.partitions.known().items()}
            names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
            denied = context.denied(Operation.READ, ResourceType.TOPIC, names)
            chosen = []
            for name in names:
                topic_id = known.get(name, self._topics.topic_id(name))
                error = ErrorCode.NONE
                if name in denied:
                    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif name not in known:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    chosen.append(topic_id)
                message = None if error is ErrorCode.NONE else error.description
                results.append(TopicResult(topic_name=name, topic_id=topic_id, error_code=error, error_message=message))
            if chosen:
                await self._coordinator.delete_share_states(request.group_id, chosen)
        except ApiError as error:
            message = error.message or error.code.description
            return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=message, responses=[])
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=results)
