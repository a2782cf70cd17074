"""Reads the metrics of a broker from its HTTP endpoint.

The endpoint comes from the broker's properties metrics.port and metrics.host.  Blocking sockets; one deadline.
"""

from __future__ import annotations

import http.client
import ipaddress
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kctl.errors import ClusterUnreachable
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
from kctl.limits import Subject, bound

METRICS_READ_BYTES_MAX = bound(
    Subject.COMMANDS,
    "response of an endpoint for metrics that `kctl metrics show` reads",
    256 << 20,
    "bytes",
    on_excess="the command ends with an error",
)


_ANY_INTERFACE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with
_PIECE_BYTES = 1 << 16
_PORT_MAX = 65535
_OF_HOSTS = frozenset(f"{string.ascii_letters}{string.digits}-._:")


class Sample(NamedTuple):
    """One value of a metric."""

    metric: str
    labels: dict[str, str]
    value: float


async def endpoint_of(client: ClusterClient, broker_id: int | None) -> tuple[str, int] | None:
    """Return the host and port of the broker's endpoint, of any broker if None; None if it has none.  Raises ApiError.

    Port 0: the broker has chosen a free one, which it does not tell.
    """
    from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs, number_in  # noqa: PLC0415 - not for --endpoint
    from kctl.client.outcome import absent_broker  # noqa: PLC0415 - same

    brokers = (await client.metadata(())).brokers
    chosen = min(brokers) if broker_id is None else broker_id
    if chosen not in brokers:
        raise absent_broker(chosen, brokers)
    resource = ConfigResource(ResourceType.BROKER, str(chosen))
    entries = (await describe_configs(client, [resource], names=["metrics.port", "metrics.host"]))[resource]
    values = {entry.name: entry.value for entry in entries} if isinstance(entries, list) else {}
    port, host = number_in(values.get("metrics.port")), values.get("metrics.host") or ""
    if port is None or not 0 <= port <= _PORT_MAX or not set(host) <= _OF_HOSTS:
        return None
    return (brokers[chosen].host if host in _ANY_INTERFACE else host), port


def is_of_broker(endpoint: tuple[str, int], broker_host: str) -> bool:
    """Return whether the endpoint may be the broker's: a loopback address of another machine is not."""
    return bool(endpoint[1]) and (not _is_loopback(endpoint[0]) or _is_loopback(broker_host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_metrics(host: str, port: int, left_s: Callable[[], float], *, names: tuple[str, ...] = ()) -> list[Sample]:
    """Return all values, or those whose metric begins with one of `names`.

    Raises ClusterUnreachable if the endpoint does not respond, or its response is not valid.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - it takes 50 ms

    text = scrape(host, port, left_s)
    if names:
        # The parser takes about 10 us for a line, and a broker with 5,000 partitions sends 50,000.
        text = "".join(line + "\n" for line in text.split("\n") if line.startswith(names))
    try:
        families = text_string_to_metric_families(text)
        return [
            Sample(sample.name, dict(sample.labels), float(sample.value))
            for family in families
            for sample in family.samples
        ]
    except (ValueError, KeyError, IndexError) as error:
        raise ClusterUnreachable(f"{host}:{port} does not respond with metrics: {error}") from None


def scrape(
    host: str,
    port: int,
    left_s: Callable[[], float],
    *,
    bytes_max: int = METRICS_READ_BYTES_MAX,
    accept: str = "text/plain",
) -> str:
    """Return the text of the endpoint.  Raises ClusterUnreachable, also for more than `bytes_max` bytes."""
    return get(host, port, "/metrics", left_s, bytes_max=bytes_max, accept=accept)


def get(
    host: str,
    port: int,
    path: str,
    left_s: Callable[[], float],
    *,
    bytes_max: int = METRICS_READ_BYTES_MAX,
    accept: str = "text/plain",
) -> str:
    """Return the text at a path of the endpoint.  Raises ClusterUnreachable, also if its status is not 200."""
    connection = http.client.HTTPConnection(host, port, timeout=max(left_s(), 0.001))
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise ClusterUnreachable(f"http://{host}:{port}{path} responds with status {response.status}")
        pieces: list[bytes] = []
        size = 0
        while piece := response.read(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > bytes_max:
                raise ClusterUnreachable(f"{host}:{port} sends more than {counted(bytes_max, 'byte')}")
            if left_s() <= 0:
                raise TimeoutError("no time is left")
        return b"".join(pieces).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ClusterUnreachable(f"http://{host}:{port}{path} cannot be read: {reason}") from None
    finally:
        connection.close()
