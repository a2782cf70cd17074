"""Slow or malformed responses cost a client no more time and memory than its bounds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.blocking_transport import RESPONSE_READ_BYTES_MAX, BlockingTransport, run_blocking
from kctl.client.connections.transport import Connection, ConnectionLost, Transport
from kctl.limits import OPENING_RESPONSE_BYTES_MAX, RESPONSE_BYTES_MAX
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.rows import for_rows

Run = Callable[[Callable[[Transport], Coroutine[Any, Any, Any]]], Any]
Behaviour = Callable[[socket.socket, threading.Event], None]

DRIP_BYTES = 500
DRIP_S = 0.02
TIMEOUT_MS = 300
NO_VERSIONS = struct.pack(">iihbib", 12, 0, 0, 1, 0, 0)
"""ApiVersions 3: correlation id, error code, no API keys, throttle time, no tagged fields."""


@pytest.fixture(params=["asyncio", "blocking"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs work on one of the transports."""
    if request.param == "asyncio":
        return lambda work: asyncio.run(work(AsyncioTransport()))
    return lambda work: run_blocking(work(BlockingTransport()))


@contextlib.contextmanager
def server(behave: Behaviour) -> Iterator[int]:
    """Accepts one connection and calls `behave` until the client closes it; yields the port."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                behave(connection, done)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        done.set()
        thread.join(10)


async def connect(transport: Transport, port: int) -> Connection:
    return await transport.connect(
        "127.0.0.1", port, client_id="test", connect_timeout_ms=TIMEOUT_MS, timeout_ms=TIMEOUT_MS
    )


def test_response_sent_byte_by_byte_does_not_extend_the_timeout(run: Run) -> None:
    """No byte arrives later than the timeout after the one before; without one deadline the client would
    read them all.
    """
    sent = 0

    def drip(connection: socket.socket, done: threading.Event) -> None:
        nonlocal sent
        for byte in struct.pack(">i", DRIP_BYTES) + bytes(DRIP_BYTES):
            connection.sendall(bytes([byte]))
            sent += 1
            if done.wait(DRIP_S):
                return

    with (
        server(drip) as port,
        pytest.raises(ConnectionLost, match=f"no response to ApiVersions within {TIMEOUT_MS} ms"),
    ):
        run(lambda transport: connect(transport, port))
    assert sent < DRIP_BYTES


def test_memory_grows_with_received_bytes_and_not_with_the_declared_size() -> None:
    def announce(connection: socket.socket, done: threading.Event) -> None:
        connection.sendall(NO_VERSIONS)
        connection.recv(65_536)
        connection.sendall(struct.pack(">i", RESPONSE_BYTES_MAX) + bytes(1_000))
        connection.shutdown(socket.SHUT_WR)
        done.wait(10)

    async def call(port: int) -> None:
        connection = await connect(BlockingTransport(), port)
        await connection.send(MetadataRequest(topics=None), MetadataResponse, version=1)

    with server(announce) as port:
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionLost, match="closed the connection"):
                run_blocking(call(port))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 4 * RESPONSE_READ_BYTES_MAX


def test_large_response_before_the_connection_is_open_is_refused(run: Run) -> None:
    def announce(connection: socket.socket, done: threading.Event) -> None:
        connection.sendall(struct.pack(">i", OPENING_RESPONSE_BYTES_MAX + 1))
        done.wait(10)

    with server(announce) as port, pytest.raises(ConnectionLost, match="does not use Kafka's protocol"):
        run(lambda transport: connect(transport, port))


@for_rows("beginning", [b"SMTP", b"\xff\xff\xff\xff", b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_impossible_response_size_closes_the_connection(run: Run, beginning: bytes) -> None:
    def greet(connection: socket.socket, done: threading.Event) -> None:
        connection.sendall(beginning)
        done.wait(10)

    with server(greet) as port, pytest.raises(ConnectionLost, match="does not use Kafka's protocol"):
        run(lambda transport: connect(transport, port))
