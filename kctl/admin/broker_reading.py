"""Reads what `kctl top` shows of a broker from its metrics, under the names of any dialect.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.admin.metrics import Sample

_BYTES_IN = "bytes_in"
_BYTES_OUT = "bytes_out"
_COUNTERS = {
    f"kafka_server_brokertopicmetrics_{name}{suffix}": counter
    for name, counter in (("bytesin", _BYTES_IN), ("bytesout", _BYTES_OUT))
    for suffix in ("_total", "persec", "persec_total")
}
_REQUESTS = frozenset(
    f"kafka_network_requestmetrics_requests{suffix}" for suffix in ("_total", "persec", "persec_total")
)
_TIMES = "kafka_network_requestmetrics_totaltimems"
_IDLE = "kafka_network_socketserver_networkprocessoravgidlepercent"
_LOOP = "kctl_event_loop_busy_seconds_bucket"
_IDENTITY = "kafka_server_app_info_info"
NAMES = (*_COUNTERS, *_REQUESTS, _TIMES, _IDLE, _LOOP, _IDENTITY)
"""The metrics that are read; others are not parsed."""
_QUANTILE = "0.99"
_BOTH_READERS = "Fetch"
"""The label under which the fetches of consumers and followers are counted together."""


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """Counters and gauges of one scrape; None for what the endpoint does not have."""

    broker_id: int | None = None
    """The id in the metrics, with which a wrong endpoint is recognised."""
    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    produce_p99_ms: float | None = None
    fetch_p99_ms: float | None = None
    idle_share: float | None = None
    loop_buckets: Mapping[float, float] = field(default_factory=dict)
    """Cumulative iterations of the event loop by upper bound in seconds."""


def reading_of(samples: Iterable[Sample]) -> BrokerReading:
    """The reading in the samples of one scrape."""
    counters: dict[str, float] = {}
    times: dict[str, float] = {}
    loop: dict[float, float] = {}
    requests: float | None = None
    idle: float | None = None
    broker_id: int | None = None
    for name, labels, value in samples:
        if not math.isfinite(value):
            continue  # Exporters write NaN for a quantile of no observations.
        if name in _COUNTERS and not labels.get("topic"):
            counters[_COUNTERS[name]] = value
        elif name in _REQUESTS and labels.get("request") != _BOTH_READERS:
            requests = (requests or 0) + value
        elif name == _TIMES and labels.get("quantile") == _QUANTILE:
            times[labels.get("request", "")] = value
        elif name == _LOOP and _is_number(labels.get("le", "")):
            loop[float(labels["le"])] = value
        elif name == _IDLE:
            idle = value
        elif name == _IDENTITY and labels.get("id", "").isdecimal():
            broker_id = int(labels["id"])
    return BrokerReading(
        broker_id=broker_id,
        bytes_in=counters.get(_BYTES_IN),
        bytes_out=counters.get(_BYTES_OUT),
        requests=requests,
        produce_p99_ms=times.get("Produce"),
        fetch_p99_ms=times.get("FetchConsumer"),
        idle_share=idle,
        loop_buckets=loop,
    )


def rate(old: float | None, new: float | None, elapsed_ms: int) -> float | None:
    """Events per second between two values of a counter; None if one is unknown or the counter began again."""
    if old is None or new is None or elapsed_ms <= 0 or new < old:
        return None
    return (new - old) * 1000 / elapsed_ms


def loop_lag_p99_ms(old: BrokerReading, new: BrokerReading) -> float | None:
    """Upper bound of 99 % of the iterations of the event loop between two scrapes; None if there were none.

    If more than 1 % of them were above the largest bound, it is that bound.
    """
    counts = {bound: count - old.loop_buckets.get(bound, 0) for bound, count in sorted(new.loop_buckets.items())}
    total = max(counts.values(), default=0)
    if total <= 0 or min(counts.values()) < 0:
        return None
    bound = next(bound for bound, count in counts.items() if count >= total * 0.99)
    return 1000 * (bound if math.isfinite(bound) else max(filter(math.isfinite, counts), default=0.0))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
