"""What the user of a client may do, as far as the brokers say it."""

from __future__ import annotations

from kctl.client.cluster import ClusterClient
from kctl.client.transport import Connection
from kctl.errors import ApiError
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kctl.security.acls import Operation


async def may_describe_cluster(client: ClusterClient) -> bool | None:
    """Whether the user may describe the cluster; None if the brokers do not say, as before Kafka 2.8.

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
