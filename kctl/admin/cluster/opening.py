"""Opens a cluster for applications that call the public functions of kctl.admin; see docs/client.md."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.security import client_security
from kctl.client.connections.transport import Connection
from kctl.client.settings import client_settings
from kctl.errors import ApiError
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kctl.security.acls import Operation

DEFAULT_SERVERS = "localhost:9092"
DEFAULT_TIMEOUT_MS = 30_000


def open_cluster(
    bootstrap_servers: str | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    timeout_ms: int | None = None,
) -> ClusterClient:
    """Return a client for an event loop; an async context manager.  It connects at its first request.

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


# What the user of a client may do, as far as the brokers say it.


async def may_describe_cluster(client: ClusterClient) -> bool | None:
    """Return whether the user may describe the cluster; None if the brokers do not say, as before Kafka 2.8.

    Brokers leave topics, groups and transactional ids that the user may not describe out of their lists, without an
    error.  KIP-430, KIP-700.
    """

    async def ask(connection: Connection) -> bool | None:
        if not connection.versions.supports(DescribeClusterRequest):
            return None
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await connection.send(request, DescribeClusterResponse)
        if response.error_code:
            return None
        return bool(response.cluster_authorized_operations >> Operation.DESCRIBE & 1)

    try:
        return await client.on_any_broker(ask)
    except ApiError:
        return None
