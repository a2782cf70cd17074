"""Connections on blocking sockets, for one-shot commands and Spark's workers.

Its coroutines never suspend, so `run_blocking` runs operations of the client without an event loop (importing asyncio
takes longer than most commands).  `gather` runs its coroutines one after the other.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from kctl.client.connections.framing import (
    SIZE,
    correlation_id_of,
    no_response,
    not_kafka,
    refused_first_request,
    refused_handshake,
    request_frame,
    response_of,
)
from kctl.client.connections.login.authentication import Dialogue, Finished, RawToken, Send, advance, negotiate
from kctl.client.connections.transport import (
    Budget,
    ClosedAtFirstRequest,
    ConnectionClosed,
    ConnectionLost,
    NameUnresolved,
    Security,
    close_unawaited,
    is_closed,
)
from kctl.client.connections.versions import BrokerVersions
from kctl.config.addresses import address_text
from kctl.errors import AuthenticationFailed, KctlError
from kctl.limits import OPENING_RESPONSE_BYTES_MAX, RESPONSE_BYTES_MAX, Subject, bound
from kctl.system.reference_cycles import copy_of

RESPONSE_READ_BYTES_MAX = bound(
    Subject.COMMANDS,
    "memory that a client reserves for a response before its bytes have arrived",
    1 << 20,
    "bytes",
    on_excess="the buffer grows as bytes arrive, at most to twice their size",
)


T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only operations of a BlockingTransport."""
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
        security: Security | None = None,
        receive_buffer_bytes: int = -1,
        reached_at: str | None = None,
    ) -> BlockingConnection:
        """Connect, secure the connection and fetch the broker's API versions; see Transport.connect."""
        address = address_text(host, port)
        end_s = time.monotonic() + connect_timeout_ms / 1000
        try:
            sock = _connected_socket(reached_at or host, port, end_s)
        except TimeoutError:
            raise ConnectionLost(f"{address}: no connection within {connect_timeout_ms} ms") from None
        except OSError as error:
            text = error.strerror or str(error)
            kind = NameUnresolved if isinstance(error, socket.gaierror) else ConnectionLost
            raise kind(f"{address}: {text[:1].lower()}{text[1:]}") from None
        except (ValueError, OverflowError) as error:  # Metadata may contain invalid addresses of brokers.
            raise ConnectionLost(f"{address}: not an address: {error}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection = BlockingConnection(
            host, port, sock, client_id=client_id, timeout_ms=timeout_ms, budget=budget, security=security
        )
        try:
            connection.open(connect_timeout_ms, end_s)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Run all in order; raise the first error after all have ended."""
        results: list[T] = []
        first_error: Exception | None = None
        try:
            for awaitable in work:
                try:
                    results.append(await awaitable)
                except Exception as error:
                    first_error = first_error or error
        finally:
            close_unawaited(work)
        try:
            if first_error is not None:
                raise first_error
        finally:
            del first_error
        return results

    async def sleep(self, duration_ms: int) -> None:
        """Blocks the thread for this time."""
        time.sleep(duration_ms / 1000)  # noqa: ASYNC251 - blocking is what this transport is for

    def monotonic_ms(self) -> int:
        """Return the milliseconds of time.monotonic(), for deadlines."""
        return int(time.monotonic() * 1000)


def _connected_socket(host: str, port: int, end_s: float) -> socket.socket:
    """Connect to the first address of the host that accepts before `end_s`.  Raises OSError."""
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
    raise copy_of(problem)


def _remaining_s(end_s: float) -> float:
    """Seconds until `end_s`.  Raises TimeoutError if it has passed."""
    remaining_s = end_s - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s


class BlockingConnection:
    """One connection with one request in flight.  Owner: one thread."""

    def __init__(
        self,
        host: str,
        port: int,
        sock: socket.socket,
        *,
        client_id: str,
        timeout_ms: int,
        budget: Budget | None = None,
        security: Security | None = None,
    ) -> None:
        """`sock` is connected; see `open`."""
        self.address = address_text(host, port)
        self.versions = BrokerVersions({})
        self.is_open = True
        self._host = host
        self._socket = sock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._budget = budget
        self._security = security
        self._next_correlation_id = 0
        self._frame_bytes_max = OPENING_RESPONSE_BYTES_MAX
        self._has_responded = False
        """Whether a response was received since the connection was opened."""
        self._renew_at_s: float | None = None
        """When to authenticate again; None for never."""

    def open(self, timeout_ms: int, end_s: float) -> None:
        """Secures the connection and fetches the API versions.  Raises ConnectionLost and AuthenticationFailed."""
        if self._security is not None and self._security.uses_tls:
            self._start_tls(self._security, timeout_ms, end_s)
        try:
            self.versions = self._hold(negotiate(), timeout_ms, end_s)
        except ConnectionClosed:
            raise ConnectionLost(refused_handshake(self.address, self._protocol)) from None
        if self._security is not None and self._security.uses_sasl:
            self._authenticate(self._security, timeout_ms, end_s)
        self._frame_bytes_max = RESPONSE_BYTES_MAX

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Send a request and wait for its response; see Connection.send."""
        if version is None:
            version = self.versions.highest(type(request))
        timeout_ms = timeout_ms or self._timeout_ms
        end_s = time.monotonic() + self._limited(timeout_ms) / 1000
        if self._renew_at_s is not None:
            self._renew_if_due(timeout_ms, end_s)
        try:
            frame = self._exchange(request, version, timeout_ms, end_s)
        except ConnectionClosed:
            if self._has_responded or (self._security is not None and self._security.uses_sasl):
                raise
            raise ClosedAtFirstRequest(refused_first_request(self.address, self._protocol)) from None
        self._has_responded = True
        return response_of(frame, response_class, version)

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Send a request that has no response."""
        if version is None:
            version = self.versions.highest(type(request))
        end_s = time.monotonic() + self._limited(self._timeout_ms) / 1000
        if self._renew_at_s is not None:
            self._renew_if_due(self._timeout_ms, end_s)
        try:
            self._write_request(request, version, end_s)
        except TimeoutError:
            raise self._lose(ConnectionLost(f"{self.address}: accepted no bytes for {self._timeout_ms} ms")) from None
        except OSError as error:
            raise self._lose(self._error_of(error, "TLS connection")) from None

    async def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._socket.close()

    def _limited(self, timeout_ms: int) -> int:
        return timeout_ms if self._budget is None else self._budget.limited(timeout_ms)

    @property
    def _protocol(self) -> str:
        return "PLAINTEXT" if self._security is None else self._security.protocol

    def _start_tls(self, security: Security, timeout_ms: int, end_s: float) -> None:
        from kctl.system.tls_sockets import wrap_socket  # noqa: PLC0415 - PLAINTEXT needs no TLS

        context = security.tls_context()
        assert context is not None
        try:
            self._socket.settimeout(_remaining_s(end_s))
            secured = wrap_socket(context, self._socket, self._host, handshakes=False)
            self._socket = secured
            secured.do_handshake()
        except TimeoutError:
            text = f"{self.address}: the TLS handshake did not complete within {timeout_ms} ms"
            raise self._lose(ConnectionLost(text)) from None
        except OSError as error:
            raise self._lose(self._error_of(error, "TLS handshake")) from None
        except ValueError as error:
            raise self._lose(ConnectionLost(f"{self.address}: not a host name for TLS: {error}")) from None

    def _renew_if_due(self, timeout_ms: int, end_s: float) -> None:
        """Authenticate again before the session ends (KIP-368)."""
        if self._renew_at_s is not None and time.monotonic() >= self._renew_at_s and self.is_open:
            assert self._security is not None
            try:
                self._authenticate(self._security, timeout_ms, end_s)
            except KctlError as error:
                raise self._lose(error) from None

    def _authenticate(self, security: Security, timeout_ms: int, end_s: float) -> None:
        """Authenticate with SASL.  Raises AuthenticationFailed and ConnectionLost."""
        from kctl.client.connections.login.authentication import authenticate  # noqa: PLC0415 - PLAINTEXT and SSL need no SASL

        client = security.sasl_client(self._host, max(1, int((end_s - time.monotonic()) * 1000)))
        dialogue = authenticate(security.mechanism, client, self.versions)
        lifetime_ms = self._hold(dialogue, timeout_ms, end_s)
        renew_after_s = security.renew_after_ms(lifetime_ms) / 1000
        self._renew_at_s = time.monotonic() + renew_after_s if lifetime_ms else None

    def _hold(self, dialogue: Dialogue[T], timeout_ms: int, end_s: float) -> T:
        """Send the requests of the dialogue until it has finished."""
        event: memoryview | KctlError | None = None
        while True:
            try:
                step = advance(dialogue, event)
            except AuthenticationFailed as error:
                if error is event:
                    raise
                raise AuthenticationFailed(f"{self.address}: {error}") from None
            if isinstance(step, Finished):
                return cast("T", step.result)
            try:
                event = self._step(step, timeout_ms, end_s)
            except KctlError as error:
                event = error

    def _step(self, step: Send | RawToken, timeout_ms: int, end_s: float) -> memoryview:
        if isinstance(step, Send):
            return self._exchange(step.request, step.version, timeout_ms, end_s)
        try:
            self._write(SIZE.pack(len(step.message)) + step.message, end_s)
            return self._read_frame(end_s)
        except TimeoutError:
            text = f"{self.address}: no response to a SASL message within {timeout_ms} ms"
            raise self._lose(ConnectionLost(text)) from None
        except OSError as error:
            raise self._lose(self._error_of(error, "TLS connection")) from None

    def _exchange(self, request: object, version: int, timeout_ms: int, end_s: float) -> memoryview:
        """Return the response frame, which must be complete at `end_s`; errors name `timeout_ms`."""
        if not self.is_open:
            raise ConnectionLost(f"{self.address}: connection closed")
        try:
            correlation_id = self._write_request(request, version, end_s)
            while True:
                frame = self._read_frame(end_s)
                if correlation_id_of(frame) == correlation_id:
                    return frame
        except TimeoutError:
            raise self._lose(ConnectionLost(f"{self.address}: {no_response(request, timeout_ms)}")) from None
        except OSError as error:
            raise self._lose(self._error_of(error, "TLS connection")) from None

    def _write_request(self, request: object, version: int, end_s: float) -> int:
        correlation_id = self._next_correlation_id
        chunks = request_frame(request, version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._write(b"".join(chunks), end_s)
        return correlation_id

    def _write(self, data: bytes, end_s: float) -> None:
        # SSLSocket.sendall would apply the timeout to each record.
        with memoryview(data) as view:
            position = 0
            while position < len(data):
                self._socket.settimeout(_remaining_s(end_s))
                position += self._socket.send(view[position:])

    def _read_frame(self, end_s: float) -> memoryview:
        (size,) = SIZE.unpack(self._read_exactly(SIZE.size, end_s))
        if not 0 <= size <= self._frame_bytes_max:
            raise self._lose(not_kafka(self.address, size))
        return self._read_exactly(size, end_s)

    def _read_exactly(self, size: int, end_s: float) -> memoryview:
        """Read `size` bytes.  Memory grows with the bytes received, because `size` comes from the peer."""
        buffer = bytearray(min(size, RESPONSE_READ_BYTES_MAX))
        position = 0
        while position < size:
            if position == len(buffer):
                buffer += bytes(min(size - position, position))
            self._socket.settimeout(_remaining_s(end_s))
            with memoryview(buffer) as view:
                count = self._socket.recv_into(view[position:])
            if not count:
                raise self._lose(ConnectionClosed(f"{self.address}: the broker closed the connection"))
            position += count
        return memoryview(buffer)

    def _error_of(self, error: OSError, action: str) -> KctlError:
        """Return the error for a failed connection; those of TLS name the property to change."""
        if self._security is not None and self._security.uses_tls:
            from kctl.client.connections.login.tls_errors import error_of_tls  # noqa: PLC0415 - imports ssl

            return error_of_tls(error, self.address, action)
        text = error.strerror or str(error)
        kind = ConnectionClosed if is_closed(error) else ConnectionLost
        return kind(f"{self.address}: {text[:1].lower()}{text[1:]}")

    def _lose(self, error: KctlError) -> KctlError:
        """Close the connection; return the error."""
        self.is_open = False
        self._socket.close()
        return error
