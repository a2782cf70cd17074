"""DescribeCluster: brokers by the listener of the request."""

from __future__ import annotations

from kctl.protocol.apis.describe_cluster import DescribeClusterRequest
from kctl.server.handlers.describe_cluster import DescribeClusterHandler
from tests.unit.handlers.world import World, exchange, play


def test_brokers_are_described_by_the_listener_of_the_request() -> None:
    async def scene(world: World) -> None:
        handle = DescribeClusterHandler("cluster", world.metadata).handle
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response = await exchange(handle, request, 0, listener="INSIDE")
        assert (response.cluster_id, response.controller_id) == ("cluster", 0)
        assert [(broker.broker_id, broker.host, broker.port) for broker in response.brokers] == [
            (0, "inner-0", 9093),
            (1, "inner-1", 9093),
        ]
        assert response.cluster_authorized_operations == -(1 << 31)
        assert (await exchange(handle, request, 0, listener="OTHER")).brokers == []

    play(scene, others=1)


def test_without_an_authorizer_every_operation_is_allowed() -> None:
    async def scene(world: World) -> None:
        handle = DescribeClusterHandler("cluster", world.metadata).handle
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await exchange(handle, request, 0)
        allowed = {bit for bit in range(32) if response.cluster_authorized_operations >> bit & 1}
        assert allowed == {5, 7, 8, 9, 10, 11, 12}

    play(scene)
