"""Listeners and limits of connections as Apache Kafka 2.8.2 has them, observed at both brokers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.hostile.raw_client import API_VERSIONS, receive_frame
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

pytestmark = pytest.mark.jvm

NAMES = ("PLAINTEXT", "INSIDE", "FEW", "OTHER")
PER_ADDRESS_MAX = 12


@contextlib.contextmanager
def _kctl(folder: Path, properties: dict[str, str], port: int) -> Iterator[None]:
    with kctl_broker(folder, properties=properties, port=port):
        yield


@contextlib.contextmanager
def _kafka(folder: Path, properties: dict[str, str], port: int) -> Iterator[None]:
    with apache_kafka.apache_kafka(apache_kafka.OLDEST_JUDGE, folder, port=port, properties=properties):
        yield


@pytest.fixture(scope="module", params=[_kctl, _kafka], ids=["kctl", "kafka"])
def ports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The ports of the listeners of a broker."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    ports = {name: probe.free_port() for name in NAMES}
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in NAMES),
        "inter.broker.listener.name": "INSIDE",
        "max.connections.per.ip": str(PER_ADDRESS_MAX),
        "listener.name.few.max.connections": "2",
    }
    with request.param(tmp_path_factory.mktemp("listeners") / "data", properties, ports["PLAINTEXT"]):
        yield ports


def _connected(stack: contextlib.ExitStack, port: int) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))


def _is_served(sock: socket.socket, *, within_s: float = 30) -> bool:
    """Whether a request gets a response; False if the broker closes the connection or does not accept it yet."""
    sock.settimeout(within_s)
    try:
        sock.sendall(API_VERSIONS)
        return len(receive_frame(sock)) > 0
    except (OSError, EOFError):
        return False


@pytest.mark.parametrize("name", ["PLAINTEXT", "INSIDE"])
def test_metadata_has_the_endpoint_of_the_listener(ports: dict[str, int], name: str) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports[name]}"})
    assert [broker.port for broker in admin.list_topics(timeout=60).brokers.values()] == [ports[name]]


def test_a_full_listener_accepts_again_when_a_connection_closes(ports: dict[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        first, second = (_connected(stack, ports["FEW"]) for _ in range(2))
        assert _is_served(first)
        assert _is_served(second)
        third = _connected(stack, ports["FEW"])
        assert not _is_served(third, within_s=0.5)
        assert _is_served(_connected(stack, ports["OTHER"]))
        first.close()
        third.settimeout(30)
        assert len(receive_frame(third)) > 0


def test_an_address_above_its_limit_is_closed_at_once(ports: dict[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        # The broker and the clients of the other tests may have connections of their own.
        socks = [_connected(stack, ports["PLAINTEXT"]) for _ in range(PER_ADDRESS_MAX + 1)]
        served = [_is_served(sock) for sock in socks]
        assert not served[-1]
        assert any(served)
        for sock in socks:
            sock.close()
        wait_until(
            lambda: _is_served(_connected(stack, ports["PLAINTEXT"])), what="a place for a connection", timeout_s=60
        )
