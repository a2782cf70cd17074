"""Heartbeat (key 12, versions 0-4): keeps a member's session alive and reports rebalances to it.

3: static members (KIP-345).  4: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import int16, int32, request, response, string


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Sent by each member to the group coordinator, several times per session timeout."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@response(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """The state of the member's session."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    """REBALANCE_IN_PROGRESS: the member must join again."""
