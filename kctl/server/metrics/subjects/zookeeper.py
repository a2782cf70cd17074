"""SessionExpireListener and ZooKeeperClientMetrics: the session with ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.metrics.definitions import NO_LABELS, AnyFamily, Definition, HistogramFamily, Kind, single, summarize
from kctl.server.metrics.sources import Sources
from kctl.zookeeper.operations import SessionState
from kctl.zookeeper.session import ZooKeeperSession


def _meter(name: str, doc: str) -> Definition:
    return Definition("kafka.server", "SessionExpireListener", name, Kind.METER, "events", doc)


LATENCY = Definition(
    "kafka.server",
    "ZooKeeperClientMetrics",
    "ZooKeeperRequestLatencyMs",
    Kind.HISTOGRAM,
    "ms",
    "Time of requests to ZooKeeper",
)
BY_STATE = {
    SessionState.CONNECTED: _meter("ZooKeeperSyncConnectsPerSec", "Connections and reconnections to ZooKeeper"),
    SessionState.SUSPENDED: _meter("ZooKeeperDisconnectsPerSec", "Lost connections to ZooKeeper"),
    SessionState.EXPIRED: _meter("ZooKeeperExpiresPerSec", "Sessions that ZooKeeper ended"),
}
DEFINITIONS = (LATENCY, *BY_STATE.values())


def families(sources: Sources) -> Iterator[AnyFamily]:
    """Yield the counters of the session; latencies only of a session with a real service."""
    for state, definition in BY_STATE.items():
        yield single(definition, sources.session.state_counts[state])
    zookeeper = sources.session.zookeeper
    if isinstance(zookeeper, ZooKeeperSession):
        latest = summarize(zookeeper.latest_request_ms, zookeeper.request_count)
        yield HistogramFamily(LATENCY, ((NO_LABELS, latest),))
