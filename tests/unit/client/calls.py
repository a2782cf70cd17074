"""Calls of a client of the fake cluster, as commands make them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from tests.unit.client.fake_cluster import FakeCluster

T = TypeVar("T")


def call(
    cluster: FakeCluster,
    work: Callable[[ClusterClient], Awaitable[T]],
    transport: type[BlockingTransport] = BlockingTransport,
) -> T:
    """The result of `work` with a client of its own."""

    async def main() -> T:
        async with ClusterClient(cluster.settings(), transport()) as client:
            return await work(client)

    return run_blocking(main())
