"""ListGroups (key 16, versions 0-5): the groups that this broker coordinates.

While a partition of the offsets topic loads, the list is incomplete and the error is COORDINATOR_LOAD_IN_PROGRESS.

Version notes: 4 filters by state, and the response has states (KIP-518); 5 filters by type, and the response has types
(KIP-848); filters ignore case then.
"""

from __future__ import annotations

from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.consumer_groups.state import ConsumerGroupState
from kctl.server.coordination.groups.actions import GroupState
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.streams_groups.state import StreamsGroupState
from kctl.server.loop.slices import release, sliced
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_TYPES = 5
_STATES = {state.value.lower(): state.value for state in (*GroupState, *ConsumerGroupState, *StreamsGroupState)}
_STATES["not_ready"] = StreamsGroupState.NOT_READY.value
"""Kafka's name in filters."""


class ListGroupsHandler:
    """Serves ListGroups requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        """Serve one request and return the response."""
        states, types = request.states_filter, request.types_filter
        if context.api_version >= FIRST_VERSION_WITH_TYPES:
            states = [_STATES.get(state.lower(), state) for state in states]
            types = [group_type.lower() for group_type in types]
        error, overviews = await self._coordinator.groups(states, types)
        hides = not context.allows_on_cluster(Operation.DESCRIBE)
        groups = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type.value,
            )
            async for group in sliced(overviews, SLICE_OBJECTS)
            if not (hides and _is_denied(group.group_id, context))
        ]
        await release([overviews])
        return ListGroupsResponse(error_code=error, groups=groups)


def _is_denied(group_id: str, context: RequestContext) -> bool:
    return bool(context.denied(Operation.DESCRIBE, ResourceType.GROUP, (group_id,), is_logged=False))
