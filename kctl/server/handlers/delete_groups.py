"""DeleteGroups (key 42, versions 0-2): deletes groups without members, with all their commits.

A group with members gets NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX
from kctl.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.loop.slices import size_of_id, sliced
from kctl.server.requests.context import RequestContext


class DeleteGroupsHandler:
    """Serves DeleteGroups requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
        """Serve one request and return the response."""
        results: dict[str, DeletableGroupResult] = {}
        async for group_id in sliced(request.groups_names, COSTLY_ELEMENTS_PER_SLICE_MAX, size_of_id):
            if group_id not in results:
                is_allowed = context.allows(Operation.DELETE, ResourceType.GROUP, group_id)
                error = await self._coordinator.delete(group_id) if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
                results[group_id] = DeletableGroupResult(group_id=group_id, error_code=error)
        return DeleteGroupsResponse(results=list(results.values()))
