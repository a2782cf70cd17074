"""ListGroups (key 16, versions 0-5): the groups that this broker coordinates.

3: flexible.  4: states and a filter by state (KIP-518).  5: types and a filter by type (KIP-848).
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Sent to each broker to list all groups of a cluster."""

    states_filter: list[str] = array(string, "4+", default=[])
    """Empty for all states."""
    types_filter: list[str] = array(string, "5+", default=[])
    """Empty for all types."""


@struct
class ListedGroup:
    """A group."""

    group_id: str = string()
    protocol_type: str = string()
    """`consumer` for groups of consumers; empty if only offsets were committed."""
    group_state: str = string("4+", default="", ignorable=True)
    """Such as `Stable`; empty if the version does not have it."""
    group_type: str = string("5+", default="", ignorable=True)
    """`classic`, `consumer`, `share` or `streams`."""


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups of this broker."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
