"""FindCoordinator (key 10, versions 0-3): the coordinator of a group or of a transactional id.

1: transactional ids (KIP-98), error messages.  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import int8, int16, int32, request, response, string


@request(key=10, versions="0-3", flexible="3+")
class FindCoordinatorRequest:
    """May be sent to any broker."""

    key: str = string()
    """Group id or transactional id."""
    key_type: int = int8("1+", default=0)
    """0 for a group, 1 for a transactional id."""


@response(key=10, versions="0-3", flexible="3+")
class FindCoordinatorResponse:
    """The broker that leads the key's partition of __consumer_offsets or __transaction_state."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    node_id: int = int32()
    """-1 on an error."""
    host: str = string()
    port: int = int32()
