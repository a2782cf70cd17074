"""Connections to other brokers: timeouts and buffers of the properties."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.config.dynamic import ConfigView
from kctl.model import Endpoint
from kctl.server.peers.connections import BrokerPeers, PeerSecurity, PeerSettings, Purpose
from kctl.server.peers.metadata import MetadataCache
from tests.unit.client.fake_cluster import FakeCluster

HERE = Endpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT")
TIMEOUTS = {
    "replica.socket.timeout.ms": "1001",
    "controller.socket.timeout.ms": "1002",
    "request.timeout.ms": "1003",
}


class Transport:
    """Fails to connect, or returns a connection; records what it was given."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []
        self.is_reachable = False

    async def connect(self, host: str, port: int, **given: Any) -> Connection:
        self.given.append(given)
        if not self.is_reachable:
            raise ConnectionLost("unreachable")
        return cast("Connection", object())


def peers_of(transport: Transport | AsyncioTransport, properties: dict[str, str]) -> BrokerPeers:
    configs = ConfigView(properties)
    return BrokerPeers(
        7,
        transport=cast("Any", transport),
        security=PeerSecurity(configs),
        metadata=MetadataCache(),
        listener="PLAINTEXT",
        settings=PeerSettings.of(configs),
    )


@pytest.mark.parametrize(
    ("purpose", "timeout_ms"),
    [
        (Purpose.REPLICA, 1001),
        (Purpose.CONTROLLER, 1002),
        (Purpose.ALTER_ISR, 1002),
        (Purpose.CONTROLLED_SHUTDOWN, 1002),
        (Purpose.TRANSACTION_MARKERS, 1003),
    ],
)
def test_each_purpose_has_the_timeout_of_its_property(purpose: Purpose, timeout_ms: int) -> None:
    transport = Transport()
    transport.is_reachable = True
    asyncio.run(peers_of(transport, TIMEOUTS).connect_to(HERE, purpose))
    (given,) = transport.given
    assert given["timeout_ms"] == timeout_ms
    assert given["client_id"] == f"broker-7-{purpose.value}"


def test_the_timeout_for_connecting_doubles_up_to_its_maximum_and_starts_anew_after_success() -> None:
    transport = Transport()
    peers = peers_of(
        transport,
        {"socket.connection.setup.timeout.ms": "100", "socket.connection.setup.timeout.max.ms": "500"},
    )

    async def connect() -> None:
        try:
            await peers.connect_to(HERE, Purpose.REPLICA)
        except ConnectionLost:
            assert not transport.is_reachable

    async def main() -> None:
        for _ in range(5):
            await connect()
        transport.is_reachable = True
        await connect()
        await connect()

    asyncio.run(main())
    assert [given["connect_timeout_ms"] for given in transport.given] == [100, 200, 400, 500, 500, 500, 100]


@pytest.mark.parametrize(
    ("given", "is_applied"), [({}, False), ({"replica.socket.receive.buffer.bytes": "8192"}, True)]
)
def test_the_receive_buffer_of_followers_is_set_if_its_property_is(given: dict[str, str], *, is_applied: bool) -> None:
    async def size(purpose: Purpose, port: int) -> int:
        connection = await peers_of(AsyncioTransport(), given).connect_to(
            Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT"), purpose
        )
        try:
            transport = vars(connection)["_receiver"]._transport
            sock = transport.get_extra_info("socket")
            return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        finally:
            await connection.close()

    with FakeCluster() as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        follower, other = (asyncio.run(size(purpose, port)) for purpose in (Purpose.REPLICA, Purpose.ALTER_ISR))
    assert (follower < other) is is_applied
    if is_applied:
        assert follower == 2 * 8192, "Linux doubles the size"
