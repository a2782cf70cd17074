"""LeaveGroup (key 13, versions 0-4): members leave, or an administrator removes them.

Version notes: 0-2 one member, whose error is the response's; 3 several, each with an error of its own, and static
members by their instance id alone (KIP-345).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial

from kctl.errors import ErrorCode
from kctl.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.actions import LeaveOutcome
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import Leaver
from kctl.server.coordination.replies import then
from kctl.server.requests.context import RequestContext

FIRST_WITH_MANY = 3


class LeaveGroupHandler:
    """Serves LeaveGroup requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
        """Serve one request: return the response, or an awaitable if the group is busy."""
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if context.api_version < FIRST_WITH_MANY:
            return then(self._coordinator.leave(request.group_id, [Leaver(request.member_id)]), _response_of_one)
        leavers = [Leaver(member.member_id, member.group_instance_id) for member in request.members]
        return then(self._coordinator.leave(request.group_id, leavers), partial(_response, leavers))


def _response_of_one(outcome: LeaveOutcome) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=outcome.error or outcome.leavers[0])


def _response(leavers: Sequence[Leaver], outcome: LeaveOutcome) -> LeaveGroupResponse:
    members = [
        MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error)
        for leaver, error in zip(leavers, outcome.leavers, strict=False)  # empty if the whole request is refused
    ]
    return LeaveGroupResponse(error_code=outcome.error, members=members)
