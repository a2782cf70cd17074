"""ShareGroupHeartbeat (key 76, version 1): a member of a share group (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols.  The response waits until what the heartbeat changes is
replicated.  A client needs to be allowed to describe each topic to which it subscribes.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kctl.errors import ErrorCode
from kctl.protocol.apis.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.replies import then
from kctl.server.coordination.share_groups.requests import ShareHeartbeat, ShareOutcome
from kctl.server.requests.context import RequestContext


class ShareGroupHeartbeatHandler:
    """Serves ShareGroupHeartbeat requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return _response(ShareOutcome(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        names = request.subscribed_topic_names
        if names and context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names):
            return _response(ShareOutcome(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        event = ShareHeartbeat(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            topic_names=None if names is None else tuple(names),
            client_id=context.client_id,
            client_host=context.client_host,
        )
        return then(self._coordinator.share_heartbeat(request.group_id, event), _response)


def _response(outcome: ShareOutcome) -> ShareGroupHeartbeatResponse:
    if outcome.error is not ErrorCode.NONE:
        message = outcome.message or outcome.error.description
        return ShareGroupHeartbeatResponse(error_code=outcome.error, error_message=message)
    response = ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=outcome.member_id,
        member_epoch=outcome.member_epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
    )
    if outcome.assignment is not None:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in outcome.assignment.items()
            ]
        )
    return response
