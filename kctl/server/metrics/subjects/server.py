"""KafkaServer and app-info, the state and the version of the broker; and its process.

The process has CPU, memory and descriptors, Python's garbage collector, and the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import HistogramMetricFamily, Metric

from kctl import __version__
from kctl.metrics.definitions import Definition, Family, Kind, label_text, single
from kctl.server.loop.lag import BOUNDS_MS, LoopLag
from kctl.server.metrics.sources import Sources
from kctl.system.operating_system import disk_bytes


def _gauge(name: str, unit: str, doc: str, *labels: str) -> Definition:
    return Definition("kafka.server", "KafkaServer", name, Kind.GAUGE, unit, doc, labels)


STATE = _gauge(
    "BrokerState",
    "state",
    "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down",
)
CLUSTER_ID = _gauge("ClusterId", "1", "Always 1; the label is the id of the cluster", "cluster_id")
DISK_READ = _gauge("linux-disk-read-bytes", "bytes", "Bytes that this process caused to be read from disks")
DISK_WRITE = _gauge("linux-disk-write-bytes", "bytes", "Bytes that this process caused to be written to disks")
APP_INFO = Definition(
    "kafka.server", "app-info", "info", Kind.GAUGE, "1", "Always 1; the labels are id and version", ("id", "version")
)
STARTED = Definition(
    "kafka.server", "app-info", "start-time-ms", Kind.GAUGE, "ms", "When the broker began to serve, since 1970", ("id",)
)
DENIED = Definition(
    "kctl.server",
    "Authorizer",
    "DeniedPerSec",
    Kind.METER,
    "operations",
    "Operations that the authorizer has denied, of the latest 100 combinations of these labels",
    ("principal", "operation", "resource_type", "resource_name"),
)
LOOP_LAG = "kctl_event_loop_busy_seconds"

DEFINITIONS = (STARTED, STATE, CLUSTER_ID, DISK_READ, DISK_WRITE, APP_INFO, DENIED)


def families(sources: Sources) -> Iterator[Family]:
    """Yield the state of the broker; bytes read and written on Linux only, as in Kafka."""
    parts = sources.parts
    yield single(STATE, int(sources.state()))
    yield Family(CLUSTER_ID, ((label_text(cluster_id=parts.cluster_id), 1),))
    yield Family(APP_INFO, ((label_text(id=str(parts.broker_id), version=__version__), 1),))
    yield Family(STARTED, ((label_text(id=str(parts.broker_id)), sources.started_ms),))
    yield Family(
        DENIED,
        (
            (
                label_text(
                    principal=denial.principal,
                    operation=denial.operation.label,
                    resource_type=denial.kind.label,
                    resource_name=denial.name,
                ),
                count,
            )
            for denial, count in sources.denials()
        ),
    )
    used = disk_bytes()
    if used is not None:
        yield single(DISK_READ, used[0])
        yield single(DISK_WRITE, used[1])


class ProcessMetrics:
    """The collectors of `prometheus_client`, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def collect(self) -> list[Metric]:
        """Read /proc, which takes milliseconds with many open files: for a thread."""
        return list(self._registry.collect())


def loop_lag(lag: LoopLag) -> Metric:
    """Return the durations of iterations of the event loop, during which sockets are not served."""
    counts = accumulate(lag.wall.counts)
    bounds = [*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    family = HistogramMetricFamily(LOOP_LAG, "How long the event loop was busy before it served sockets again")
    family.add_metric((), list(zip(bounds, counts, strict=True)), lag.wall.sum_ms / 1000)
    return family
