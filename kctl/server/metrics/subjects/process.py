"""The process: CPU, memory and descriptors, Python's garbage collector, and the event loop."""

from __future__ import annotations

from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import HistogramMetricFamily, Metric

from kctl.server.loop.lag import BOUNDS_MS, LoopLag

LOOP_LAG = "kctl_event_loop_busy_seconds"


class ProcessMetrics:
    """The collectors of `prometheus_client`, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def collect(self) -> list[Metric]:
        """Reads /proc, which takes milliseconds with many open files: for a thread."""
        return list(self._registry.collect())


def loop_lag(lag: LoopLag) -> Metric:
    """The durations of iterations of the event loop, during which sockets are not served."""
    counts = accumulate(lag.wall.counts)
    bounds = [*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    family = HistogramMetricFamily(LOOP_LAG, "How long the event loop was busy before it served sockets again")
    family.add_metric((), list(zip(bounds, counts, strict=True)), lag.wall.sum_ms / 1000)
    return family
