"""Connections on blocking sockets, for one-shot commands and Spark's workers.

Its coroutines never suspend, so `run_blocking` runs operations of the client without an event loop (importing asyncio
takes longer than most commands).  `gather` runs its coroutines one after the other.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from kctl.client.budget import Budget
from kctl.client.framing import (
    API_VERSIONS_MAX,
    SIZE,
    api_versions_request,
    broker_versions_of,
    correlation_id_of,
    no_answer,
    refused_handshake,
    request_frame,
    response_of,
)
from kctl.client.transport import ConnectionClosed, ConnectionLost
from kctl.client.versions import BrokerVersions
from kctl.limits import RESPONSE_BYTES_MAX, RESPONSE_READ_BYTES_MAX

T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that awaits only operations of a BlockingTransport."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise AssertionError("a coroutine on the blocking transport waited for an event loop")


class BlockingTransport:
    """Transport on blocking sockets.  Owner: one thread."""

    async def connect(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_ms: int,
        timeout_ms: int,
        budget: Budget | None = None,
    ) -> BlockingConnection:
        """Connects and fetches the broker's API versions; see Transport.connect."""
        address = f"{host}:{port}"
        end_s = time.monotonic() + connect_timeout_ms / 1000
        try:
            sock = _connected_socket(host, port, end_s)
        except TimeoutError:
            raise ConnectionLost(f"{address}: no connection within {connect_timeout_ms} ms") from None
        except OSError as error:
            text = error.strerror or str(error)
            raise ConnectionLost(f"{address}: {text[:1].lower()}{text[1:]}") from None
        except (ValueError, OverflowError) as error:  # Metadata may contain invalid addresses of brokers.
            raise ConnectionLost(f"{address}: not an address: {error}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = BlockingConnection(address, sock, client_id=client_id, timeout_ms=timeout_ms, budget=budget)
        try:
            connection.negotiate(connect_timeout_ms, end_s)
        except ConnectionClosed:
            raise ConnectionLost(refused_handshake(address)) from None
        except BaseException:
            sock.close()
            raise
        return connection

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Runs all in order; raises the first error after all have ended."""
        results: list[T] = []
        first_error: Exception | None = None
        for one in work:
            try:
                results.append(await one)
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return results

    async def sleep(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)  # noqa: ASYNC251 - blocking is what this transport is for

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1000)


def _connected_socket(host: str, port: int, end_s: float) -> socket.socket:
    """Connects to the first address of the host that accepts before `end_s`.  Raises OSError."""
    # As bytes: a str makes getaddrinfo import the idna codec, which is slow.
    name = host.encode() if host.isascii() else host
    problem: OSError = OSError(f"no address for {host}")
    for family, kind, protocol, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_remaining_s(end_s))
            sock.connect(address)
        except OSError as error:
            sock.close()
            problem = error
            continue
        return sock
    raise problem


def _remaining_s(end_s: float) -> float:
    """Seconds until `end_s`.  Raises TimeoutError if it has passed."""
    remaining_s = end_s - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s


class BlockingConnection:
    """One connection with one request in flight.  Owner: one thread."""

    def __init__(
        self, address: str, sock: socket.socket, *, client_id: str, timeout_ms: int, budget: Budget | None = None
    ) -> None:
        self.address = address
        self.versions = BrokerVersions({})
        self.is_open = True
        self._socket = sock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._budget = budget
        self._next_correlation_id = 0

    def negotiate(self, timeout_ms: int, end_s: float) -> None:
        """Fetches the API versions; falls back to the version of ApiVersions that an older broker names (KIP-511)."""
        outcome: BrokerVersions | int = API_VERSIONS_MAX
        while isinstance(outcome, int):
            frame = self._exchange(api_versions_request(), outcome, timeout_ms, end_s)
            outcome = broker_versions_of(frame, outcome)
        self.versions = outcome

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Sends a request and waits for its response; see Connection.send."""
        if version is None:
            version = self.versions.highest(type(request))
        timeout_ms = timeout_ms or self._timeout_ms
        end_s = time.monotonic() + self._limited(timeout_ms) / 1000
        frame = self._exchange(request, version, timeout_ms, end_s)
        return response_of(frame, response_class, version)

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Sends a request that has no response."""
        if version is None:
            version = self.versions.highest(type(request))
        try:
            self._write(request, version, time.monotonic() + self._limited(self._timeout_ms) / 1000)
        except TimeoutError:
            raise self._lose(f"accepted no bytes for {self._timeout_ms} ms") from None
        except OSError as error:
            raise self._lose(error.strerror or str(error)) from None

    async def close(self) -> None:
        """Closes the connection."""
        self.is_open = False
        self._socket.close()

    def _limited(self, timeout_ms: int) -> int:
        return timeout_ms if self._budget is None else self._budget.limited(timeout_ms)

    def _exchange(self, request: object, version: int, timeout_ms: int, end_s: float) -> memoryview:
        """The response frame, which must be complete at `end_s`; errors name `timeout_ms`."""
        if not self.is_open:
            raise ConnectionLost(f"{self.address}: connection closed")
        try:
            correlation_id = self._write(request, version, end_s)
            while True:
                frame = self._read_frame(end_s)
                if correlation_id_of(frame) == correlation_id:
                    return frame
        except TimeoutError:
            raise self._lose(no_answer(request, timeout_ms)) from None
        except OSError as error:
            raise self._lose(error.strerror or str(error)) from None

    def _write(self, request: object, version: int, end_s: float) -> int:
        correlation_id = self._next_correlation_id
        chunks = request_frame(request, version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._socket.settimeout(_remaining_s(end_s))
        self._socket.sendall(b"".join(chunks))
        return correlation_id

    def _read_frame(self, end_s: float) -> memoryview:
        (size,) = SIZE.unpack(self._read_exactly(SIZE.size, end_s))
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise self._lose(f"does not speak Kafka's protocol (frame of {size} bytes)")
        return self._read_exactly(size, end_s)

    def _read_exactly(self, size: int, end_s: float) -> memoryview:
        """Reads `size` bytes.  Memory grows with the bytes received, because `size` comes from the peer."""
        buffer = bytearray(min(size, RESPONSE_READ_BYTES_MAX))
        position = 0
        while position < size:
            if position == len(buffer):
                buffer += bytes(min(size - position, position))
            self._socket.settimeout(_remaining_s(end_s))
            with memoryview(buffer) as view:
                count = self._socket.recv_into(view[position:])
            if not count:
                raise ConnectionClosed(str(self._lose("the broker closed the connection")))
            position += count
        return memoryview(buffer)

    def _lose(self, reason: str) -> ConnectionLost:
        self.is_open = False
        self._socket.close()
        return ConnectionLost(f"{self.address}: {reason[:1].lower()}{reason[1:]}")
