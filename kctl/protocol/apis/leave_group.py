"""LeaveGroup (key 13, versions 0-4): members leave a group at once instead of by session timeout.

3: several members in one request, each with an error of its own (KIP-345); before, `member_id` alone.  4: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@struct
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+", default=None)


@request(key=13, versions="0-4", flexible="4+")
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default=[])


@struct
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+")
    error_code: int = int16()


@response(key=13, versions="0-4", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+", default=[])
