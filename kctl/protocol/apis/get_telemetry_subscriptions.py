"""GetTelemetrySubscriptions (key 71, version 0): which metrics a client shall push, and how often (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, uuid


@request(key=71, versions="0", flexible="0+", served="none")
class GetTelemetrySubscriptionsRequest:
    """Sent to any broker that has a receiver of client metrics."""

    client_instance_id: UUID = uuid(default=ZERO_UUID)
    """The id that the first response has assigned; zero before that."""


@response(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The subscription, all that match the client taken together."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    client_instance_id: UUID = uuid(default=ZERO_UUID)
    """Zero if the request has an id."""
    subscription_id: int = int32(default=0)
    accepted_compression_types: list[int] = array(int8, default=[])
    """Codecs by the numbers that they have in record batches, the preferred one first."""
    push_interval_ms: int = int32(default=0)
    telemetry_max_bytes: int = int32(default=0)
    """The most bytes of `metrics` in one PushTelemetry request."""
    delta_temporality: bool = boolean(default=False)
    """Whether totals are sent as the difference to the last push."""
    requested_metrics: list[str] = array(string, default=[])
    """Prefixes of names; an empty string or * for all metrics, no element for none."""
