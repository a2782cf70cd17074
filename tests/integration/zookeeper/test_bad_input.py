"""Malformed requests close the sender's connection and affect no other client."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import socket
import struct
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NotReadOnlyCallError, SessionExpiredError

from tests.peers import probe
from tests.peers import zookeeper_wire as wire
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.peers.zookeeper_wire import WireClient
from tests.rows import for_rows

JUTE_MAX_BUFFER = 0xFFFFF
FRAMES = 10_000
MARSHALLING_ERROR, UNIMPLEMENTED, AUTH_FAILED = -5, -6, -115


def response_to(connect: str, sent: bytes) -> bytes:
    """All bytes received until the server closes the connection."""
    with socket.create_connection(probe.address(connect), timeout=60) as connection:
        connection.sendall(sent)
        try:
            return b"".join(iter(lambda: connection.recv(4096), b""))
        except ConnectionResetError:
            return b""


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@for_rows(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", JUTE_MAX_BUFFER + 1),
        struct.pack(">i", 1 << 30) + b"x" * 100,
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_an_invalid_connect_request_closes_the_connection(shared_embedded: str, sent: bytes) -> None:
    assert response_to(shared_embedded, sent) == b""


@pytest.mark.parametrize("length", [-1, 0, JUTE_MAX_BUFFER + 1, 3])
def test_an_impossible_frame_closes_the_connection(shared_embedded: str, length: int) -> None:
    client = WireClient(shared_embedded)
    client.socket.sendall(struct.pack(">i", length) + b"abc")
    with pytest.raises((EOFError, ConnectionResetError)):
        client.receive()
    client.close()


def test_a_malformed_body_is_an_error_and_the_session_continues(shared_embedded: str) -> None:
    client = WireClient(shared_embedded)
    for op_code in (wire.CREATE, wire.GET_DATA, wire.MULTI, wire.SET_WATCHES):
        assert client.call(op_code, b"\0\0\0\5ab").error == MARSHALLING_ERROR
    assert client.call(wire.EXISTS, wire.read("/")).error == 0
    client.call(wire.CLOSE)
    client.close()


@pytest.mark.parametrize("op_code", [0, 77, -10, wire.SASL])
def test_an_unknown_request_type_is_an_error_and_closes_the_connection(shared_embedded: str, op_code: int) -> None:
    client = WireClient(shared_embedded)
    assert client.call(op_code).error == UNIMPLEMENTED
    with pytest.raises(EOFError):
        client.receive()
    client.close()


def test_an_unknown_auth_scheme_closes_the_connection(shared_embedded: str) -> None:
    client = WireClient(shared_embedded)
    body = struct.pack(">i", 0) + wire.string("sasl") + wire.buffer(b"")
    assert client.call(wire.AUTH, body, xid=-4).error == AUTH_FAILED
    with pytest.raises(EOFError):
        client.receive()
    client.close()


def test_a_session_is_not_resumed_with_a_wrong_password(shared_embedded: str) -> None:
    owner = WireClient(shared_embedded)
    intruder = WireClient(shared_embedded, session_id=owner.connected.session_id, password=b"x" * 16)
    assert intruder.connected == (0, 0, bytes(16))
    assert owner.call(wire.EXISTS, wire.read("/")).error == 0
    for client in (owner, intruder):
        client.close()


def test_a_client_with_a_newer_zxid_is_refused(shared_embedded: str) -> None:
    """The client has seen transactions that this server does not have: another ensemble, or one restored
    from a backup.
    """
    with pytest.raises((EOFError, ConnectionResetError)):
        WireClient(shared_embedded, last_zxid=1 << 40)


def test_a_reconnecting_client_closes_its_old_connection(shared_embedded: str) -> None:
    first = WireClient(shared_embedded)
    second = WireClient(shared_embedded, session_id=first.connected.session_id, password=first.connected.password)
    with pytest.raises(EOFError):
        first.receive()
    assert second.call(wire.EXISTS, wire.read("/")).error == 0
    for client in (first, second):
        client.close()


@pytest.mark.parametrize(("requested_ms", "given_ms"), [(1, 4000), (10_000, 10_000), (1_000_000, 40_000)])
def test_session_timeouts_are_between_2_and_20_ticks(shared_embedded: str, requested_ms: int, given_ms: int) -> None:
    client = WireClient(shared_embedded, timeout_ms=requested_ms)
    assert client.connected.timeout_ms == given_ms
    client.close()


@pytest.mark.timeout(180)
def test_ten_thousand_malformed_frames_neither_stop_the_server_nor_increase_its_memory(
    embedded: EmbeddedZooKeeperProcess,
) -> None:
    rng = random.Random(4)
    keeper = WireClient(embedded.connect)
    keeper.call(wire.CREATE, wire.create("/kept", b"data", flags=1))
    _throw(embedded.connect, rng, FRAMES // 10)
    before_kb = resident_kb(embedded.pid)
    for _ in range(10):
        keeper.call(wire.PING, xid=-2)  # Long enough for a slow machine.
        _throw(embedded.connect, rng, FRAMES // 10)
    assert resident_kb(embedded.pid) - before_kb < 8 * 1024
    assert b"data" in keeper.call(wire.GET_DATA, wire.read("/kept")).body
    keeper.call(wire.CLOSE)
    keeper.close()
    assert "Traceback" not in embedded.log_text


def _throw(connect: str, rng: random.Random, count: int) -> None:
    """Frames within sessions, mostly; each connection ends at the first malformed one."""
    sent = 0
    while sent < count:
        client = WireClient(connect, timeout_ms=4000)
        try:
            while sent < count:
                sent += 1
                op_code = rng.choice((wire.CREATE, wire.MULTI, wire.GET_DATA, wire.SET_WATCHES, wire.AUTH, 99))
                frame = struct.pack(">ii", sent, op_code) + rng.randbytes(rng.randrange(40))
                client.send(frame if rng.random() < 0.95 else rng.randbytes(rng.randrange(9)))
                client.receive()
        except (EOFError, OSError):
            pass
        finally:
            client.close()


def test_a_full_disk_loses_no_acknowledged_write_and_the_server_recovers(embedded: EmbeddedZooKeeperProcess) -> None:
    """The process's file size limit simulates the full disk: writes fail, and succeed when it is raised."""
    client = KazooClient(embedded.connect, timeout=20)
    client.start()
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    try:
        client.create("/a", b"kept")
        session = client.client_id
        resource.prlimit(embedded.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with pytest.raises((ConnectionLoss, SessionExpiredError)):
            client.set("/a", b"lost" * 2000)
        probe.wait_until(lambda: client.connected, what="reconnect", timeout_s=60)
        assert client.get("/a")[0] == b"kept"
        with pytest.raises(NotReadOnlyCallError):
            client.set("/a", b"refused")
        resource.prlimit(embedded.pid, resource.RLIMIT_FSIZE, unlimited)

        def is_written() -> bool:
            with contextlib.suppress(NotReadOnlyCallError):
                return bool(client.set("/a", b"kept again"))
            return False

        probe.wait_until(is_written, what="a write", timeout_s=60)
        assert client.client_id == session
        embedded.kill9()
        embedded.start()
        probe.wait_until(lambda: client.connected, what="reconnect", timeout_s=60)
        assert client.retry(client.get, "/a")[0] == b"kept again"
        assert "ZooKeeper commit failed" in embedded.log_text
    finally:
        client.stop()
        client.close()


def test_server_stops_cleanly_on_a_signal(embedded: EmbeddedZooKeeperProcess) -> None:
    assert embedded.stop(signal.SIGINT) == 0
    embedded.start()
    assert embedded.stop(signal.SIGTERM) == 0
