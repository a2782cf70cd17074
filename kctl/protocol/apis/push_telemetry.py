"""PushTelemetry (key 72, version 0): the metrics of a client (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import boolean, bytes_, int8, int16, int32, request, response, uuid


@request(key=72, versions="0", flexible="0+", served="none")
class PushTelemetryRequest:
    """Sent to the broker that has returned the subscription, or to another one."""

    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean(default=False)
    """Whether it is the last one, because the client is being closed."""
    compression_type: int = int8(default=0)
    """The codec of `metrics`."""
    metrics: bytes = bytes_()
    """MetricsData, version 1, of the protocol buffers of OpenTelemetry."""


@response(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """The outcome."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
