"""JoinGroup (key 11, versions 0-7): a member joins the next generation of its group.

The response is sent when the generation is complete.  Only the leader gets the list of members, to compute the
assignment.

Version notes: 0 has no rebalance timeout, the session timeout is used; 4 gives a new member an id with which to join
again (MEMBER_ID_REQUIRED, KIP-394); 5 static members (KIP-345); 7 the response has the protocol type, and on errors the
protocol is null instead of "" (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable

from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.actions import JoinOutcome
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import JoinRequest
from kctl.server.coordination.replies import Reply, result_of
from kctl.server.loop.slices import sliced, started
from kctl.server.requests.context import RequestContext

FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_KNOWN_MEMBER_ID = 4
FIRST_WITH_NULL_PROTOCOL = 7


class JoinGroupHandler:
    """Serves JoinGroup requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self, request: JoinGroupRequest, context: RequestContext
    ) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        version = context.api_version
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            denied = JoinOutcome(error=ErrorCode.GROUP_AUTHORIZATION_FAILED, member_id="")
            return started(_response_to(denied, version))
        has_rebalance_timeout = version >= FIRST_WITH_REBALANCE_TIMEOUT
        event = JoinRequest(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            requires_known_member_id=version >= FIRST_WITH_KNOWN_MEMBER_ID and request.group_instance_id is None,
            client_id=context.client_id,
            client_host=context.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        )
        outcome = self._coordinator.join(request.group_id, event)
        return started(_response_to(outcome, version))


async def _response_to(reply: Reply[JoinOutcome], version: int) -> JoinGroupResponse:
    outcome = await result_of(reply)
    protocol_name = outcome.protocol_name
    if protocol_name is None and version < FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=outcome.error,
        generation_id=outcome.generation,
        protocol_type=outcome.protocol_type,
        protocol_name=protocol_name,
        leader=outcome.leader,
        member_id=outcome.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            async for member in sliced(outcome.members, SLICE_OBJECTS)
        ],
    )
