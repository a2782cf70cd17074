"""DeleteGroups (key 42, versions 0-2): forget empty groups with their offsets (KIP-229).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = array(string)


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@response(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
