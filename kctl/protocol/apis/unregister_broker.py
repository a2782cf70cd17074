"""UnregisterBroker (key 64, version 0): removes the registration of a broker of a KRaft cluster (KIP-631).

Only the client supports it: the registration of a broker in ZooKeeper ends with its session.
"""

from __future__ import annotations

from kctl.protocol.message import int16, int32, request, response, string


@request(key=64, versions="0", flexible="0+", served="none")
class UnregisterBrokerRequest:
    """Sent to any broker, which forwards it to the active controller, or to a controller."""

    broker_id: int = int32()


@response(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether it was unregistered; BROKER_ID_NOT_REGISTERED if there is no registration."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
