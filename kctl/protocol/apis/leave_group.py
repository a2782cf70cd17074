"""LeaveGroup (key 13, versions 0-5): removes members from a group at once.

3: several members in one request, each with its own result (KIP-345), instead of `member_id`.  4: flexible.
5: the reason (KIP-800).
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@struct
class MemberIdentity:
    """A member to remove, by member id or by group instance id."""

    member_id: str = string()
    """Empty if the member is given by `group_instance_id` only."""
    group_instance_id: str | None = string(nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Why the member leaves; for logs."""


@request(key=13, versions="0-5", flexible="4+", sent="0-4")
class LeaveGroupRequest:
    """Sent to the group coordinator by a leaving member, or by an administrator."""

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default=[])


@struct
class MemberResponse:
    """The result for one member."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+")
    error_code: int = int16()


@response(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """The result for each member; before version 3 `error_code` is that of the only member."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+", default=[])
