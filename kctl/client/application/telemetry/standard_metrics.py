"""The metrics of producers and consumers under the names that Kafka's clients push (KIP-714).  Pure.

A name is org.apache.kafka, the group of the metric in Java without its end "-metrics", and the metric, with dots.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.application.telemetry.payload import Metric
from kctl.client.connections.traffic import Spread, Traffic, Window

PRODUCER = "org.apache.kafka.producer"
CONSUMER = "org.apache.kafka.consumer"
ADMIN = "org.apache.kafka.admin.client"

_PRODUCER_TOTALS = {
    "records_acknowledged_total": "record.send.total",
    "records_failed_total": "record.error.total",
    "batches_split_total": "batch.split.total",
}
_CONSUMER_TOTALS = {
    "records-consumed-total": "fetch.manager.records.consumed.total",
    "bytes-consumed-total": "fetch.manager.bytes.consumed.total",
    "fetch-total": "fetch.manager.fetch.total",
    "commit-total": "coordinator.commit.total",
    "join-total": "coordinator.join.total",
}
_SHARE_CONSUMER_TOTALS = {
    "records-consumed-total": "share.fetch.manager.records.consumed.total",
    "bytes-consumed-total": "share.fetch.manager.bytes.consumed.total",
    "fetch-total": "share.fetch.manager.fetch.total",
    "acknowledgements-send-total": "share.fetch.manager.acknowledgements.send.total",
    "acknowledgements-error-total": "share.fetch.manager.acknowledgements.error.total",
}
_LAG = "records-lag."


def producer_metrics(counts: Mapping[str, float], queue_times: Spread, window: Window) -> list[Metric]:
    """Return the metrics of a producer, from its `metrics()` and the times that batches have waited in its buffer."""
    limit = counts["buffer_limit_bytes"]
    return [
        *_totals(PRODUCER, _PRODUCER_TOTALS, counts),
        *_times(f"{PRODUCER}.record.queue.time", queue_times),
        *_times(f"{PRODUCER}.produce.throttle.time", Traffic.spread(window.throttles, "Produce")),
        Metric(f"{PRODUCER}.buffer.total.bytes", limit),
        Metric(f"{PRODUCER}.buffer.available.bytes", max(0, limit - counts["buffered_bytes"])),
        Metric(f"{PRODUCER}.requests.in.flight", counts["requests_in_flight"]),
    ]


def consumer_metrics(counts: Mapping[str, float], window: Window) -> list[Metric]:
    """Return the metrics of a consumer, from its `metrics()`; those of partitions last."""
    metrics = [
        *_totals(CONSUMER, _CONSUMER_TOTALS, counts),
        *_times(f"{CONSUMER}.fetch.manager.fetch.latency", Traffic.spread(window.by_request, "Fetch")),
        *_times(f"{CONSUMER}.fetch.manager.fetch.throttle.time", Traffic.spread(window.throttles, "Fetch")),
        *_times(f"{CONSUMER}.coordinator.commit.latency", Traffic.spread(window.by_request, "OffsetCommit")),
        Metric(f"{CONSUMER}.coordinator.assigned.partitions", counts.get("assigned-partitions", 0)),
        Metric(f"{CONSUMER}.fetch.manager.records.lag.max", counts.get("records-lag-max", 0)),
    ]
    for name, lag in counts.items():
        if name.startswith(_LAG):
            topic, _, partition = name.removeprefix(_LAG).rpartition("-")
            labels = (("topic", topic), ("partition", partition))
            metrics.append(Metric(f"{CONSUMER}.fetch.manager.records.lag", lag, labels=labels))
    return metrics


def share_consumer_metrics(counts: Mapping[str, float], window: Window) -> list[Metric]:
    """Return the metrics of a share consumer, from its `metrics()`."""
    return [
        *_totals(CONSUMER, _SHARE_CONSUMER_TOTALS, counts),
        *_times(f"{CONSUMER}.share.fetch.manager.fetch.latency", Traffic.spread(window.by_request, "ShareFetch")),
        Metric(f"{CONSUMER}.share.coordinator.assigned.partitions", counts.get("assigned-partitions", 0)),
    ]


def _totals(prefix: str, names: Mapping[str, str], counts: Mapping[str, float]) -> list[Metric]:
    return [Metric(f"{prefix}.{names[name]}", counts[name], is_total=True) for name in names if name in counts]


def _times(name: str, spread: Spread) -> tuple[Metric, Metric]:
    return Metric(f"{name}.avg", spread.average), Metric(f"{name}.max", spread.maximum)
