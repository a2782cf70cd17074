"""DeleteGroups (key 42, versions 0-2): deletes empty groups with their committed offsets (KIP-229).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Sent to the coordinator of the groups; groups succeed or fail independently."""

    groups_names: list[str] = array(string)


@struct
class DeletableGroupResult:
    """The result for one group."""

    group_id: str = string()
    error_code: int = int16()
    """NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it does not exist."""


@response(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """One result per group of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
