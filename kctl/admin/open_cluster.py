"""Opens a cluster for applications that call the public functions of kctl.admin; see docs/client.md."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.asyncio_transport import AsyncioTransport
from kctl.client.cluster import ClusterClient
from kctl.client.security import client_security
from kctl.client.settings import client_settings

DEFAULT_SERVERS = "localhost:9092"
DEFAULT_TIMEOUT_MS = 30_000


def open_cluster(
    bootstrap_servers: str | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    timeout_ms: int | None = None,
) -> ClusterClient:
    """A client for an event loop; an async context manager.  It connects at its first request.

    `properties` are Kafka's client properties, with bootstrap.servers and security; the other arguments take
    precedence.  Raises ConfigError and UsageError.
    """
    given = properties or {}
    settings = client_settings(
        bootstrap_servers=bootstrap_servers,
        properties=given,
        timeout_ms=timeout_ms,
        default_servers=DEFAULT_SERVERS,
        default_timeout_ms=DEFAULT_TIMEOUT_MS,
        security=client_security(given),
    )
    return ClusterClient(settings, AsyncioTransport())
