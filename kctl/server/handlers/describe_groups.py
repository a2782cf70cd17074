"""DescribeGroups (key 15, versions 0-6): state, protocol and members of groups.

A group that does not exist is described as "Dead", without an error.  Metadata and assignments are empty unless the
group is stable.

Version notes: 3 authorized operations; 4 instance ids of static members; 6 GROUP_ID_NOT_FOUND for a group that does not
exist, or that is not of the classic protocol (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Iterator

from kctl.errors import ErrorCode
from kctl.limits import DESCRIBED_BYTES_MAX, SLICE_OBJECTS
from kctl.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.actions import GroupState
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.loop.slices import size_of_id, sliced
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NOT_REQUESTED, authorized_operations

FIRST_VERSION_WITH_NOT_FOUND = 6
_SHOWN = 200
"""The characters of a group id in a message, which would be too long with a very long one."""
_GROUP = 4
"""How many members take as long as a group."""


class DescribeGroupsHandler:
    """Serves DescribeGroups requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        """Serve one request and return the response."""
        described = self._groups(request, context)
        groups = [group async for group in sliced(described, SLICE_OBJECTS, _objects_in)]
        return DescribeGroupsResponse(groups=groups)

    def _groups(self, request: DescribeGroupsRequest, context: RequestContext) -> Iterator[DescribedGroup]:
        left = DESCRIBED_BYTES_MAX
        for group_id in dict.fromkeys(request.groups):
            if left < 0:
                yield _failed(group_id, ErrorCode.INVALID_REQUEST)
                continue
            group = self._describe(group_id, context, includes_operations=request.include_authorized_operations)
            left -= sum(map(_size_of, group.members))
            yield group

    def _describe(self, group_id: str, context: RequestContext, *, includes_operations: bool) -> DescribedGroup:
        if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            return _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error, group = self._coordinator.describe(group_id)
        if error is not ErrorCode.NONE:
            return _failed(group_id, error)
        is_missing = group.state is GroupState.DEAD and context.api_version >= FIRST_VERSION_WITH_NOT_FOUND
        if is_missing:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        return DescribedGroup(
            error_code=error,
            error_message=f"Group {group_id[:_SHOWN]} not found." if is_missing else None,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata,
                    member_assignment=member.assignment,
                )
                for member in group.members
            ],
            authorized_operations=authorized_operations(context, ResourceType.GROUP, group_id)
            if includes_operations
            else NOT_REQUESTED,
        )


def _failed(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def _objects_in(group: DescribedGroup) -> int:
    return _GROUP * size_of_id(group.group_id) + len(group.members)


def _size_of(member: DescribedGroupMember) -> int:
    return len(member.member_id) + len(member.client_id) + len(member.member_metadata) + len(member.member_assignment)
