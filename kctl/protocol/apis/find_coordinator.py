"""FindCoordinator (key 10, versions 0-6): the coordinators of groups or of transactional ids.

1: transactional ids (KIP-98), error messages.  3: flexible.  4: several keys in one request (KIP-699).  5: no
change for coordinators (KIP-890).  6: share-partitions (KIP-932).
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """May be sent to any broker."""

    key: str = string("0-3", default="")
    """Group id or transactional id."""
    key_type: int = int8("1+", default=0)
    """0 for a group, 1 for a transactional id, 2 for a share-partition as `GROUP:TOPIC-ID:PARTITION`."""
    coordinator_keys: list[str] = array(string, "4+", default=[])
    """Group ids or transactional ids."""


@struct
class Coordinator:
    """The broker that leads the key's partition of __consumer_offsets or __transaction_state."""

    key: str = string()
    node_id: int = int32()
    """-1 on an error."""
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinator of the key, or of each of the keys."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default=None, ignorable=True)
    node_id: int = int32("0-3", default=0)
    """-1 on an error."""
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default=[])
