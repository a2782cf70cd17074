"""The metrics endpoint of an export that repeats itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kctl.client.connections.loop_thread import LoopThread
from kctl.metrics.definitions import Dialect
from kctl.metrics.exposition import Format, exposition
from kctl.server.metrics.endpoint import AddressOptions, MetricsEndpoint
from kctl.tables.plans.following import FollowState

_PER_TOPIC = (
    ("kctl_export_records", "Exported records", "records"),
    ("kctl_export_read_bytes", "Bytes of the record batches that were read", "bytes_in"),
    ("kctl_export_lost_offsets", "Offsets that were deleted before their export", "lost"),
    ("kctl_export_bad_records", "Records that could not be decoded", "bad"),
)


class FollowMetrics:
    """The state of the export, and the endpoint that shows it; the endpoint has a thread of its own."""

    def __init__(self, state: FollowState) -> None:
        self.state = state
        """Replaced by the exporting thread; a scrape reads it once."""
        self._thread: LoopThread | None = None
        self._endpoint = MetricsEndpoint(
            self._scrape, self._not_ready, AddressOptions("--metrics-port", "--metrics-listen")
        )

    def serve(self, host: str, port: int) -> int:
        """Serve from now on; return the port.  Raises ListenError."""
        bound = self._endpoint.bind(host, port)
        self._thread = LoopThread("export-metrics")
        self._thread.run(self._endpoint.start())
        return bound

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.run(self._endpoint.close())
            self._thread.close()

    async def _scrape(self, accept: str) -> tuple[str, Sequence[bytes]]:
        form = Format(accept)
        pieces = await exposition(families(self.state, round(time.monotonic() * 1000)), form, Dialect.JMX)
        return form.content_type, pieces

    async def _not_ready(self) -> str:
        return self.state.problem


def families(state: FollowState, now_ms: int) -> Iterator[Metric]:
    """Yield the metrics of a state at a time of the same clock."""
    yield CounterMetricFamily("kctl_export_rounds", "Rounds that succeeded", value=state.rounds)
    yield CounterMetricFamily("kctl_export_failed_rounds", "Rounds that failed", value=state.failed_rounds)
    for name, doc, attribute in _PER_TOPIC:
        counter = CounterMetricFamily(name, doc, labels=["topic"])
        for topic, counts in sorted(state.topics.items()):
            counter.add_metric([topic], getattr(counts, attribute))
        yield counter
    lag = GaugeMetricFamily(
        "kctl_export_lag_offsets", "Offsets that the last round planned and did not commit", labels=["topic"]
    )
    for topic, offsets in sorted(state.lag.items()):
        lag.add_metric([topic], offsets)
    yield lag
    if state.committed_ms is not None:
        age_s = (now_ms - state.committed_ms) / 1000
        yield GaugeMetricFamily("kctl_export_last_commit_age_seconds", "Time since the last commit", value=age_s)
