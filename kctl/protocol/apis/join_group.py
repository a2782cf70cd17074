"""JoinGroup (key 11, versions 0-9): joins a group or rejoins it for a rebalance.

1: a separate rebalance timeout (KIP-62).  2: throttle time.  4: a new member gets its member id with
MEMBER_ID_REQUIRED first and joins again (KIP-394).  5: static members (KIP-345).  6: flexible.  7: protocol type in the
response, nullable protocol name (KIP-559).  8: the reason (KIP-800).  9: leaders may be told not to assign (KIP-814).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, bytes_, int16, int32, request, response, string, struct


@struct
class JoinGroupRequestProtocol:
    """A protocol that the member supports, for consumers an assignor."""

    name: str = string()
    metadata: bytes = bytes_()
    """Opaque to the broker; for consumers the subscription (kctl.protocol.consumer_protocol)."""


@request(key=11, versions="0-9", flexible="6+", sent="0-7")
class JoinGroupRequest:
    """Sent to the group coordinator, which responds when all members have joined."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    """The member is removed after this time without a heartbeat."""
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    """How long the coordinator waits for members to rejoin; -1 in version 0, which uses the session timeout."""
    member_id: str = string()
    """Empty for a new member."""
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    """`consumer` for consumers; must be the same for all members."""
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    """In order of preference; the coordinator chooses one that all members support."""
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    """Why the member joins; for logs."""


@struct
class JoinGroupResponseMember:
    """A member and its metadata for the chosen protocol."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytes_()


@response(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The result of the rebalance for this member."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    """Number of the rebalance; -1 on an error."""
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    """`consumer` for consumers (KIP-559)."""
    protocol_name: str | None = string(nullable="7+")
    """The chosen protocol; null or empty on an error."""
    leader: str = string()
    """Member id of the leader, which computes the assignment."""
    skip_assignment: bool = boolean("9+", default=False)
    """Whether the leader must keep the assignment that the group has."""
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
    """All members for the leader; empty for the others."""
