"""FindCoordinator (key 10, versions 0-3): the broker that coordinates a group or a transactional id.

1: key type 1 asks for a transaction's coordinator instead of a group's; errors have a message.  3: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import int8, int16, int32, request, response, string


@request(key=10, versions="0-3", flexible="3+")
class FindCoordinatorRequest:
    key: str = string()
    key_type: int = int8("1+", default=0)


@response(key=10, versions="0-3", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    node_id: int = int32()
    host: str = string()
    port: int = int32()
