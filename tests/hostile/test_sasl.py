"""Unauthenticated clients on a SASL listener: what they send costs the broker almost nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.raw_client import API_VERSIONS, connected, framed, receive_frame, request, wait_until
from tests.peers.sasl_broker import SaslBroker, sasl_broker
from tests.rows import for_rows

SOCKETS = 1_000
GROWTH_BYTES_MAX = 40 << 20
"""1,000 connections use 20 KB each; buffers for the declared sizes would use 100 GB."""
MAX_RECEIVE_BYTES = 524_288
HANDSHAKE = request(17, 1, struct.pack(">h", 13) + b"SCRAM-SHA-256")


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with sasl_broker(tmp_path_factory.mktemp("hostile-sasl")) as started:
        yield started


def resident_bytes(broker: SaslBroker) -> int:
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def authenticate(token: bytes) -> bytes:
    return request(36, 1, struct.pack(">i", len(token)) + token)


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker ends the connection, whatever it sends before."""
    try:
        while sock.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def assert_serves(broker: SaslBroker) -> None:
    with connected(broker.sasl) as sock:
        sock.sendall(API_VERSIONS)
        assert receive_frame(sock)


@contextlib.contextmanager
def crowd(broker: SaslBroker, sent: bytes) -> Iterator[list[socket.socket]]:
    """SOCKETS connections that have each sent the same bytes."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connected(broker.sasl)) for _ in range(SOCKETS)]
        for sock in sockets:
            sock.sendall(sent)
        yield sockets


def test_a_declared_length_of_100_mib_allocates_nothing(sasl: SaslBroker) -> None:
    """CVE-2022-34917."""
    before = resident_bytes(sasl)
    with crowd(sasl, struct.pack(">i", 100 << 20)) as sockets:
        assert all(is_closed(sock) for sock in sockets)
        assert resident_bytes(sasl) - before < GROWTH_BYTES_MAX
    assert_serves(sasl)


@pytest.mark.parametrize("phase", ["before the handshake", "during authentication"])
def test_an_allowed_length_without_bytes_allocates_nothing(sasl: SaslBroker, phase: str) -> None:
    before = resident_bytes(sasl)
    length = struct.pack(">i", MAX_RECEIVE_BYTES)
    with crowd(sasl, length if phase == "before the handshake" else HANDSHAKE + length) as sockets:
        assert_serves(sasl)
        assert resident_bytes(sasl) - before < GROWTH_BYTES_MAX
        assert len(sockets) == SOCKETS


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_RECEIVE_BYTES + 1, 2**31 - 1])
def test_lengths_beyond_the_limit_close_the_connection(sasl: SaslBroker, size: int) -> None:
    for first in (b"", API_VERSIONS, HANDSHAKE):
        with connected(sasl.sasl) as sock:
            sock.sendall(first + struct.pack(">i", size))
            assert is_closed(sock)


@for_rows(
    "token",
    [b"", b"\0", b"n,,", b"n,,n=" + b"u" * 400_000 + b",r=x", b"," * 500_000, b"=" * 500_000, b"\xff" * 500_000],
)
@for_rows("mechanism", [b"PLAIN", b"SCRAM-SHA-256", b"OAUTHBEARER"])
def test_tokens_of_any_content_get_a_response(sasl: SaslBroker, mechanism: bytes, token: bytes) -> None:
    with connected(sasl.sasl) as sock:
        sock.sendall(request(17, 1, struct.pack(">h", len(mechanism)) + mechanism))
        receive_frame(sock)
        sock.sendall(authenticate(token))
        (code,) = struct.unpack_from(">h", receive_frame(sock), 4)
        assert code == 58
        assert is_closed(sock)


@for_rows(
    "frames",
    [
        [framed(b"")],
        [framed(b"\0")],
        [framed(b"GET / HTTP/1.1\r\n\r\n")],
        [framed(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")],
        [request(3, 1, struct.pack(">i", -1))],
        [API_VERSIONS, API_VERSIONS],
        [API_VERSIONS, request(3, 1, struct.pack(">i", -1))],
        [HANDSHAKE, HANDSHAKE],
        [HANDSHAKE, API_VERSIONS],
        [request(17, 1, struct.pack(">h", -1))],
        [request(17, 1, struct.pack(">h", 5) + b"PL")],
        [request(17, 9, b"")],
        [authenticate(b"x")],
        [HANDSHAKE, request(36, 1, struct.pack(">i", -1))],
        [HANDSHAKE, request(36, 1, struct.pack(">i", 2**31 - 1))],
    ],
)
def test_requests_out_of_order_end_the_connection(sasl: SaslBroker, frames: list[bytes]) -> None:
    with connected(sasl.sasl) as sock:
        sock.sendall(b"".join(frames))
        assert is_closed(sock)


def test_a_slow_peer_delays_no_other_client(sasl: SaslBroker) -> None:
    """A byte of a handshake each, while other clients are served."""
    with connected(sasl.sasl) as slow:
        for byte in HANDSHAKE[:12]:
            slow.sendall(bytes([byte]))
            assert_serves(sasl)


def test_failed_logins_wait_without_delaying_others(sasl: SaslBroker) -> None:
    with contextlib.ExitStack() as stack:
        failing = [stack.enter_context(connected(sasl.sasl)) for _ in range(200)]
        for sock in failing:
            sock.sendall(request(17, 1, struct.pack(">h", 5) + b"PLAIN") + authenticate(b"\0u\0p"))
        assert_serves(sasl)
        assert all(is_closed(sock) for sock in failing)


def test_none_of_this_is_a_failure_of_a_handler(sasl: SaslBroker) -> None:
    """The last test of the module: the log lines about all attacks."""
    wait_until(lambda: "authentication failed" in sasl.process.log_text, "a line about failed logins")
    assert "Traceback" not in sasl.process.log_text
    assert "after a failure in a handler" not in sasl.process.log_text
