"""Heartbeat (key 12, versions 0-4): extends a member's session; REBALANCE_IN_PROGRESS requests that it joins again.

Version notes: 3 static members (KIP-345).
"""

from __future__ import annotations

from collections.abc import Awaitable

from kctl.errors import ErrorCode
from kctl.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.replies import then
from kctl.server.requests.context import RequestContext


class HeartbeatHandler:
    """Serves Heartbeat requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self, request: HeartbeatRequest, context: RequestContext
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
        """Serve one request: return the response, or an awaitable if the group is busy."""
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error = self._coordinator.heartbeat(
            request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
        return then(error, _response)


def _response(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)
