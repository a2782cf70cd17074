"""SyncGroup (key 14, versions 0-5): distributes the assignment that the group's leader computed.

1: throttle time.  3: static members (KIP-345).  4: flexible.  5: protocol type and name, which are checked (KIP-559).
"""

from __future__ import annotations

from kctl.protocol.message import array, bytes_, int16, int32, request, response, string, struct


@struct
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: str = string()
    assignment: bytes = bytes_()
    """Opaque to the broker; for consumers an assignment (kctl.protocol.consumer_protocol)."""


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Sent by each member to the group coordinator, which responds when the leader's has arrived."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Null skips the check; otherwise INCONSISTENT_GROUP_PROTOCOL if it differs."""
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """The assignor of the generation (KIP-559)."""
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)
    """The assignments of all members from the leader; empty from the others."""


@response(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The assignment of this member."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """`consumer` for consumers (KIP-559)."""
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """The assignor of the generation (KIP-559)."""
    assignment: bytes = bytes_()
    """Empty on an error."""
