"""ListGroups (key 16, versions 0-5): the groups that this broker coordinates.

3: flexible.  4: the states of the groups, and a filter for them (KIP-518); an empty filter lists all.  5: the same for
their types (KIP-848).
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@request(key=16, versions="0-5", flexible="3+", served="0-4")
class ListGroupsRequest:
    states_filter: list[str] = array(string, "4+", default=[])
    types_filter: list[str] = array(string, "5+", default=[])


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
