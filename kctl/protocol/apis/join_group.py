"""JoinGroup (key 11, versions 0-7): become or stay a member of a group and take part in its rebalance.

Answered when all members have joined.  The leader alone receives `members`, with everyone's subscription for the
chosen protocol.

1: a rebalance timeout of its own; before, the session timeout serves.  4: a new member is first told its member id
with error MEMBER_ID_REQUIRED (KIP-394).  5: static members (KIP-345).  6: flexible.  7: the response names the
protocol type, and the protocol's name may be null.
"""

from __future__ import annotations

from kctl.protocol.message import array, bytes_, int16, int32, request, response, string, struct


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = bytes_()


@request(key=11, versions="0-7", flexible="6+")
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytes_()


@response(key=11, versions="0-7", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
