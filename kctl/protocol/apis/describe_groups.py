"""DescribeGroups (key 15, versions 0-6): state and members of groups of the classic protocol.

3: authorized operations (KIP-430).  4: static members (KIP-345).  5: flexible.  6: error messages (KIP-1043).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, bytes_, int16, int32, request, response, string, struct


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Sent to the coordinator of the groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


@struct
class DescribedGroupMember:
    """A member of a group."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    """Address of the client as Java formats it, with a leading slash."""
    member_metadata: bytes = bytes_()
    """Metadata for the chosen protocol, such as a subscription (kctl.protocol.consumer_protocol)."""
    member_assignment: bytes = bytes_()
    """The assignment from the group's leader; empty unless the group is Stable."""


@struct
class DescribedGroup:
    """The state of one group."""

    error_code: int = int16()
    """NONE for an unknown group, or one of another type, in state `Dead`; GROUP_ID_NOT_FOUND since version 6."""
    error_message: str | None = string("6+", nullable="6+", default=None, ignorable=True)
    group_id: str = string()
    group_state: str = string()
    """`PreparingRebalance`, `CompletingRebalance`, `Stable`, `Empty` or `Dead`."""
    protocol_type: str = string()
    """`consumer` for groups of consumers; empty if the group never had members."""
    protocol_data: str = string()
    """The chosen protocol, for consumers the name of the assignor."""
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)
    """A bit for each operation that the client may perform, by its code; the least int32 if not requested."""


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """One entry per group of the request."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
