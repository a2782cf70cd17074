"""DescribeGroups (key 15, versions 0-6): state and members of groups of the classic kind.

An unknown group, or one of another kind, is in state Dead, without an error; from 6 on it is GROUP_ID_NOT_FOUND.

3: authorized operations, as bits (KIP-430).  4: static members (KIP-345).  5: flexible.  6: error messages (KIP-1043).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, bytes_, int16, int32, request, response, string, struct


@request(key=15, versions="0-6", flexible="5+", served="0-5")
class DescribeGroupsRequest:
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None, ignorable=True)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
