"""Client quotas: the use of each group of clients that has one.  Kafka: ClientQuotaManager."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.metrics.definitions import Definition, Family, Kind, label_text
from kctl.security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from kctl.server.metrics.sources import Sources

_LABELS = ("user", "client_id")


def _gauge(type_: str, name: str, unit: str, doc: str) -> Definition:
    return Definition("kafka.server", type_, name, Kind.GAUGE, unit, doc, _LABELS)


USES = {
    PRODUCER_BYTE_RATE: _gauge("Produce", "byte-rate", "bytes/s", "Bytes produced per second by clients with a quota"),
    CONSUMER_BYTE_RATE: _gauge("Fetch", "byte-rate", "bytes/s", "Bytes fetched per second by clients with a quota"),
    REQUEST_PERCENTAGE: _gauge(
        "Request", "request-time", "percent", "Share of the event loop used by requests of clients with a quota"
    ),
    CONTROLLER_MUTATION_RATE: _gauge(
        "controller-mutation", "tokens", "tokens", "Remaining tokens for changes of topics by clients with a quota"
    ),
}
THROTTLES = {
    PRODUCER_BYTE_RATE: _gauge("Produce", "throttle-time", "ms", "Mean throttle time of throttled Produce requests"),
    CONSUMER_BYTE_RATE: _gauge("Fetch", "throttle-time", "ms", "Mean throttle time of throttled Fetch requests"),
    REQUEST_PERCENTAGE: _gauge("Request", "throttle-time", "ms", "Mean throttle time of throttled requests"),
}
DEFINITIONS = (*USES.values(), *THROTTLES.values())


def families(sources: Sources) -> Iterator[Family]:
    """Yield the use of all quotas; a client without a quota has no row."""
    for key, readings in sources.base.quotas.readings().items():
        rows = [(label_text(user=g.user, client_id=g.client_id), reading) for g, reading in readings.items()]
        yield Family(USES[key], ((text, reading.usage) for text, reading in rows))
        if key in THROTTLES:
            yield Family(
                THROTTLES[key],
                ((text, reading.throttle_ms_total / max(reading.throttle_count, 1)) for text, reading in rows),
            )
