"""What the metrics of a broker say about its clients: software, old requests, throttling.  Pure.

No request of Kafka's protocol returns this.  The names are those of the endpoint of kctl's broker, and of the example
rules of Prometheus's JMX exporter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kctl.admin.cluster.metrics import Sample

_CONNECTIONS = frozenset(
    {"kafka_server_socket_server_metrics_connections", "kafka_server_socketservermetrics_connections"}
)
_REQUESTS = frozenset(
    f"kafka_network_requestmetrics_requests{suffix}" for suffix in ("_total", "persec", "persec_total")
)
_THROTTLES = {f"kafka_server_{kind}_throttle_time": kind for kind in ("produce", "fetch", "request")}
SOFTWARE_NAMES = tuple(_CONNECTIONS)
_DENIED = "kctl_server_authorizer_denied_total"
CLIENT_NAMES = (*_CONNECTIONS, *_REQUESTS, *_THROTTLES, _DENIED)
"""The metrics that are read; others are not parsed."""

OLDEST_OF_KAFKA_4 = {
    "Produce": 3,
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "OffsetForLeaderEpoch": 2,
    "DescribeAcls": 1,
    "CreateAcls": 1,
    "DeleteAcls": 1,
    "DescribeConfigs": 1,
    "AlterReplicaLogDirs": 1,
    "DescribeLogDirs": 1,
    "CreateDelegationToken": 1,
    "RenewDelegationToken": 1,
    "ExpireDelegationToken": 1,
    "DescribeDelegationToken": 1,
}
"""The lowest version of the requests of clients that brokers of Kafka 4 accept, where it is not 0 (KIP-896)."""


class Software(NamedTuple):
    """The name and version that clients give in ApiVersions (KIP-511); `unknown` if they give none."""

    name: str
    version: str


class OldRequest(NamedTuple):
    """A version of a request that Kafka 4 does not accept, and how many of them the broker has had since its start."""

    api: str
    version: int
    requests: int


class ThrottledClient(NamedTuple):
    """Clients with a quota that were made to wait: by user, by client id or by both."""

    kind: str
    """produce, fetch or request."""
    user: str
    client_id: str
    mean_ms: float
    """The mean wait of the requests that were throttled lately."""


class DeniedOperation(NamedTuple):
    """An operation that the authorizer of a broker of kctl has denied."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    times: int


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """The clients of one broker."""

    connections: dict[Software, int]
    old_requests: tuple[OldRequest, ...]
    throttled: tuple[ThrottledClient, ...]
    denied: tuple[DeniedOperation, ...]


def client_metrics(samples: Iterable[Sample]) -> ClientMetrics:
    """Return what the samples of one scrape say about clients."""
    connections: Counter[Software] = Counter()
    old: Counter[tuple[str, int]] = Counter()
    throttled, denied = [], []
    for name, labels, value in samples:
        if not math.isfinite(value) or value <= 0:
            continue
        if name in _CONNECTIONS:
            software = Software(
                labels.get("client_software_name") or "unknown", labels.get("client_software_version") or "unknown"
            )
            connections[software] += round(value)
        elif name in _REQUESTS:
            api, version = labels.get("request", ""), labels.get("version", "")
            if version.isdecimal() and int(version) < OLDEST_OF_KAFKA_4.get(api, 0):
                old[api, int(version)] += round(value)
        elif name == _DENIED:
            denied.append(
                DeniedOperation(
                    labels.get("principal", ""),
                    labels.get("operation", ""),
                    labels.get("resource_type", ""),
                    labels.get("resource_name", ""),
                    round(value),
                )
            )
        elif name in _THROTTLES:
            throttled.append(
                ThrottledClient(_THROTTLES[name], labels.get("user", ""), labels.get("client_id", ""), value)
            )
    return ClientMetrics(
        dict(sorted(connections.items())),
        tuple(OldRequest(api, version, count) for (api, version), count in sorted(old.items())),
        tuple(sorted(throttled, key=lambda client: -client.mean_ms)),
        tuple(sorted(denied, key=lambda denial: -denial.times)),
    )
