"""SyncGroup (key 14, versions 0-5): returns a member's assignment; the leader's request carries all assignments.

The response is sent when the leader's assignment is stored.

Version notes: 3 static members (KIP-345); 5 protocol type and protocol in request and response; a request without them
gets INCONSISTENT_GROUP_PROTOCOL (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable

from kctl.errors import ErrorCode
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.actions import SyncOutcome
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import SyncRequest
from kctl.server.coordination.replies import then
from kctl.server.requests.context import RequestContext

FIRST_WITH_PROTOCOL = 5


class SyncGroupHandler:
    """Serves SyncGroup requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self, request: SyncGroupRequest, context: RequestContext
    ) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if context.api_version >= FIRST_WITH_PROTOCOL and None in {request.protocol_type, request.protocol_name}:
            return _response(SyncOutcome(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return _response(SyncOutcome(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        event = SyncRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={assignment.member_id: assignment.assignment for assignment in request.assignments},
        )
        outcome = self._coordinator.sync(request.group_id, event)
        return then(outcome, _response)


def _response(outcome: SyncOutcome) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=outcome.error,
        protocol_type=outcome.protocol_type,
        protocol_name=outcome.protocol_name,
        assignment=outcome.assignment,
    )
