"""Connections on asyncio, with several requests in flight matched by correlation id."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

from kctl.client.connections.frame_receiver import FrameReceiver, PendingResponses
from kctl.client.connections.framing import (
    SIZE,
    api_versions_request,
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
from kctl.errors import AuthenticationFailed, KctlError, MalformedRequest
from kctl.limits import OPENING_RESPONSE_BYTES_MAX, RESPONSE_BYTES_MAX, Subject, bound
from kctl.system.reference_cycles import copy_of

CONCURRENT_REQUESTS_MAX = bound(
    Subject.COMMANDS,
    "concurrent requests of a command",
    64,
    "requests",
    on_excess="further requests are sent when one of them is complete",
)


CLOSE_TIMEOUT_MS = 1_000
"""How long closing waits for written bytes to be sent."""

T = TypeVar("T")


class _Outcome(NamedTuple, Generic[T]):
    """Result or error of one awaitable.  Separate fields, because a result may itself be an exception object."""

    result: T | None = None
    error: Exception | None = None


class AsyncioTransport:
    """Transport on the running event loop."""

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
    ) -> AsyncioConnection:
        """Connect, secure the connection and fetch the broker's API versions; see Transport.connect."""
        connection = AsyncioConnection(
            host, port, client_id=client_id, timeout_ms=timeout_ms, budget=budget, security=security
        )
        end_s = asyncio.get_running_loop().time() + connect_timeout_ms / 1000
        try:
            async with asyncio.timeout_at(end_s):
                await connection.connect(connect_timeout_ms, receive_buffer_bytes, reached_at)
            async with asyncio.timeout_at(end_s):
                await connection.open(connect_timeout_ms)
        except TimeoutError:
            await connection.close()
            raise ConnectionLost(f"{connection.address}: {connection.unfinished(connect_timeout_ms)}") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Run all concurrently, CONCURRENT_REQUESTS_MAX at a time; raise the first error after all have ended."""
        turns = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)

        async def in_turn(awaitable: Awaitable[T]) -> _Outcome[T]:
            async with turns:
                try:
                    return _Outcome(result=await awaitable)
                except Exception as error:
                    return _Outcome(error=error)

        try:
            outcomes = await asyncio.gather(*map(in_turn, work))
        finally:
            close_unawaited(work)
        for outcome in outcomes:
            if outcome.error is not None:
                try:
                    raise outcome.error
                finally:
                    del outcome, outcomes
        return [cast("T", succeeded.result) for succeeded in outcomes]

    async def sleep(self, duration_ms: int) -> None:
        """Suspends for the duration."""
        await asyncio.sleep(duration_ms / 1000)

    def monotonic_ms(self) -> int:
        """Return the time of the event loop's clock."""
        return int(asyncio.get_running_loop().time() * 1000)


class AsyncioConnection:
    """One connection.  Owner: event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int,
        budget: Budget | None = None,
        security: Security | None = None,
    ) -> None:
        """Not connected yet; see `connect` and `open`."""
        self.address = address_text(host, port)
        self.versions = BrokerVersions({})
        self._host = host
        self._port = port
        self._receiver = FrameReceiver(self._take, self._end, frame_bytes_max=OPENING_RESPONSE_BYTES_MAX)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._budget = budget
        self._security = security
        self._next_correlation_id = 0
        self._pending = PendingResponses()
        self._raw: asyncio.Future[memoryview] | None = None
        """Receives the next frame, which has no header (SaslHandshake 0)."""
        self._lost: KctlError | None = None
        self._is_connected = False
        self._has_responded = False
        """Whether a response was received since the connection was opened."""
        self._renewal = asyncio.Lock()
        self._renew_at_s: float | None = None
        """When to authenticate again, on the loop's clock; None for never."""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._lost is None

    async def connect(self, timeout_ms: int, receive_buffer_bytes: int = -1, reached_at: str | None = None) -> None:
        """Connect the socket, with TLS if so set.  Raises TimeoutError, ConnectionLost and AuthenticationFailed."""
        loop = asyncio.get_running_loop()
        host = reached_at or self._host
        tls = self._security.tls_context() if self._security is not None else None
        try:
            if tls is None:
                transport, _ = await loop.create_connection(lambda: self._receiver, host, self._port)
            else:
                transport, _ = await loop.create_connection(
                    lambda: self._receiver, host, self._port, ssl=tls, server_hostname=self._host
                )
            sock = transport.get_extra_info("socket")
            if receive_buffer_bytes != -1 and sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        except TimeoutError:
            raise
        except socket.gaierror as error:
            text = error.strerror or str(error)
            raise NameUnresolved(f"{self.address}: {text[:1].lower()}{text[1:]}") from None
        except OSError as error:
            raise self._error_of(error, "TLS handshake") from None
        except (ValueError, OverflowError) as error:  # Metadata may contain invalid addresses of brokers.
            raise ConnectionLost(f"{self.address}: not an address: {error}") from None
        self._is_connected = True

    async def open(self, timeout_ms: int) -> None:
        """Fetch the API versions and authenticate.  Raises ConnectionLost and AuthenticationFailed."""
        try:
            self.versions = await self._hold(negotiate(), timeout_ms)
        except ConnectionClosed:
            raise ConnectionLost(refused_handshake(self.address, self._protocol)) from None
        if self._security is not None and self._security.uses_sasl:
            await self._authenticate(timeout_ms)
        self._receiver.frame_bytes_max = RESPONSE_BYTES_MAX

    def unfinished(self, timeout_ms: int) -> str:
        """Return the error text for a connection that was not open in time."""
        if not self._is_connected:
            return f"no connection within {timeout_ms} ms"
        return no_response(api_versions_request(), timeout_ms)

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Send a request and wait for its response; see Connection.send."""
        if version is None:
            version = self.versions.highest(type(request))
        if self._renew_at_s is not None:
            await self._renew_if_due()
        try:
            frame = await self._exchange(request, version, timeout_ms or self._timeout_ms)
        except ConnectionClosed:
            if self._has_responded or self._uses_sasl:
                raise
            raise ClosedAtFirstRequest(refused_first_request(self.address, self._protocol)) from None
        self._has_responded = True
        return response_of(frame, response_class, version)

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Send a request that has no response."""
        if self._lost is not None:
            raise copy_of(self._lost)
        if version is None:
            version = self.versions.highest(type(request))
        if self._renew_at_s is not None:
            await self._renew_if_due()
        self._write(request, version)
        try:
            async with asyncio.timeout(self._limited(self._timeout_ms) / 1000):
                await self._receiver.drain()
        except TimeoutError:
            raise ConnectionLost(f"{self.address}: accepted no bytes for {self._timeout_ms} ms") from None
        if self._lost is not None:
            raise copy_of(self._lost)

    async def close(self) -> None:
        """Close the connection; pending requests get ConnectionLost."""
        self._lose(ConnectionLost(f"{self.address}: connection closed"))
        self._receiver.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._receiver.wait_closed()
        except TimeoutError:
            self._receiver.abort()

    @property
    def _protocol(self) -> str:
        return "PLAINTEXT" if self._security is None else self._security.protocol

    @property
    def _uses_sasl(self) -> bool:
        return self._security is not None and self._security.uses_sasl

    async def _renew_if_due(self) -> None:
        """Authenticate again before the session ends (KIP-368); other requests wait for it."""
        async with self._renewal:
            if self._renew_at_s is None or asyncio.get_running_loop().time() < self._renew_at_s:
                return
            if self._lost is not None:
                raise copy_of(self._lost)
            timeout_ms = self._limited(self._timeout_ms)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._authenticate(timeout_ms)
            except (KctlError, TimeoutError) as error:
                known = error if isinstance(error, KctlError) else None
                lost = self._lose(known or ConnectionLost(f"{self.address}: no authentication within {timeout_ms} ms"))
                self._receiver.close()
                raise lost from None

    async def _authenticate(self, timeout_ms: int) -> None:
        """Authenticate with SASL.  Raises AuthenticationFailed and ConnectionLost."""
        security = self._security
        assert security is not None
        from kctl.client.connections.login.authentication import authenticate  # noqa: PLC0415 - PLAINTEXT and SSL need no SASL

        # In threads: tokens come from files and servers, and hashing a password takes long.
        client = await asyncio.to_thread(security.sasl_client, self._host, timeout_ms)
        dialogue = authenticate(security.mechanism, client, self.versions)
        lifetime_ms = await self._hold(dialogue, timeout_ms, in_thread=True)
        self._renew_at_s = None
        if lifetime_ms:
            self._renew_at_s = asyncio.get_running_loop().time() + security.renew_after_ms(lifetime_ms) / 1000

    async def _hold(self, dialogue: Dialogue[T], timeout_ms: int, *, in_thread: bool = False) -> T:
        """Send the requests of the dialogue until it has finished."""
        event: memoryview | KctlError | None = None
        try:
            while True:
                try:
                    step = await asyncio.to_thread(advance, dialogue, event) if in_thread else advance(dialogue, event)
                except AuthenticationFailed as error:
                    if error is event:
                        raise
                    raise AuthenticationFailed(f"{self.address}: {error}") from None
                if isinstance(step, Finished):
                    return cast("T", step.result)
                try:
                    event = await self._step(step, timeout_ms)
                except KctlError as error:
                    event = error
        finally:
            del event

    async def _step(self, step: Send | RawToken, timeout_ms: int) -> memoryview:
        if isinstance(step, Send):
            return await self._exchange(step.request, step.version, timeout_ms)
        if self._lost is not None:
            raise copy_of(self._lost)
        self._raw = asyncio.get_running_loop().create_future()
        self._receiver.write([SIZE.pack(len(step.message)), step.message])
        return await self._raw

    async def _exchange(self, request: object, version: int, timeout_ms: int) -> memoryview:
        if self._lost is not None:
            raise copy_of(self._lost)
        limit_ms = timeout_ms if self._budget is None else self._budget.limited(timeout_ms)
        correlation_id = self._write(request, version)
        try:
            return await self._pending.expect(correlation_id, limit_ms)
        except TimeoutError:
            raise ConnectionLost(f"{self.address}: {no_response(request, timeout_ms)}") from None
        finally:
            self._pending.forget(correlation_id)

    def _limited(self, timeout_ms: int) -> int:
        return timeout_ms if self._budget is None else self._budget.limited(timeout_ms)

    def _write(self, request: object, version: int) -> int:
        correlation_id = self._next_correlation_id
        chunks = request_frame(request, version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._receiver.write(chunks)
        return correlation_id

    def _take(self, frame: memoryview) -> None:
        """Pass a frame to the request with its correlation id."""
        if self._raw is not None:
            arrival, self._raw = self._raw, None
            if not arrival.done():
                arrival.set_result(frame)
            return
        try:
            self._pending.arrived(correlation_id_of(frame), frame)
        except MalformedRequest as error:
            self._lose(ConnectionLost(str(error)))
            self._receiver.close()

    def _end(self, reason: OSError | int | None) -> None:
        if isinstance(reason, int):
            self._lose(not_kafka(self.address, reason))
        elif reason is None:
            self._lose(ConnectionClosed(f"{self.address}: the broker closed the connection"))
        else:
            self._lose(self._error_of(reason, "TLS connection"))
        self._receiver.close()

    def _error_of(self, error: OSError, action: str) -> KctlError:
        """Return the error for a failed connection; those of TLS name the property to change."""
        if self._security is not None and self._security.uses_tls:
            from kctl.client.connections.login.tls_errors import error_of_tls  # noqa: PLC0415 - imports ssl

            return error_of_tls(error, self.address, action)
        kind = ConnectionClosed if is_closed(error) else ConnectionLost
        return kind(f"{self.address}: {reason_of(error)}")

    def _lose(self, error: KctlError) -> KctlError:
        """Record the first reason of a lost connection and fail all pending requests with it."""
        if self._lost is None:
            self._lost = copy_of(error)
        self._pending.close(self._lost)
        if self._raw is not None and not self._raw.done():
            self._raw.set_exception(copy_of(self._lost))
        return copy_of(self._lost)


_ERRNO = re.compile(r"\[Errno (\d+)\]")


def reason_of(error: OSError) -> str:
    """Return the operating system's error text without errno and address.

    asyncio puts the address there instead of the reason.  For a name with several addresses it raises an error without
    errno, whose text joins those of all addresses.
    """
    text = error.strerror or str(error)
    if "Connect call failed" in text or error.errno is None:
        numbers = [error.errno] if error.errno is not None else map(int, _ERRNO.findall(text))
        text = ", ".join(dict.fromkeys(map(os.strerror, numbers))) or text
    return text[:1].lower() + text[1:]
