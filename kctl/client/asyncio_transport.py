"""Connections on asyncio, with several requests in flight matched by correlation id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

from kctl.client.budget import Budget
from kctl.client.frame_receiver import FrameReceiver
from kctl.client.framing import (
    API_VERSIONS_MAX,
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
from kctl.errors import KctlError, MalformedRequest
from kctl.limits import CONCURRENT_REQUESTS_MAX

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
    ) -> AsyncioConnection:
        """Connects and fetches the broker's API versions; see Transport.connect."""
        address = f"{host}:{port}"
        connection = AsyncioConnection(address, client_id=client_id, timeout_ms=timeout_ms, budget=budget)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await connection.open(host, port)
        except TimeoutError:
            raise ConnectionLost(f"{address}: no connection within {connect_timeout_ms} ms") from None
        except OSError as error:
            raise ConnectionLost(f"{address}: {reason_of(error)}") from None
        except (ValueError, OverflowError) as error:  # Metadata may contain invalid addresses of brokers.
            raise ConnectionLost(f"{address}: not an address: {error}") from None
        try:
            async with asyncio.timeout_at(end_s):
                await connection.negotiate(connect_timeout_ms)
        except TimeoutError:
            await connection.close()
            problem = no_answer(api_versions_request(), connect_timeout_ms)
            raise ConnectionLost(f"{address}: {problem}") from None
        except ConnectionClosed:
            await connection.close()
            raise ConnectionLost(refused_handshake(address)) from None
        except BaseException:
            await connection.close()
            raise
        return connection

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Runs all concurrently, CONCURRENT_REQUESTS_MAX at a time; raises the first error after all have ended."""
        turns = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)

        async def in_turn(one: Awaitable[T]) -> _Outcome[T]:
            async with turns:
                try:
                    return _Outcome(result=await one)
                except Exception as error:
                    return _Outcome(error=error)

        outcomes = await asyncio.gather(*map(in_turn, work))
        error = next((one.error for one in outcomes if one.error is not None), None)
        if error is not None:
            raise error
        return [cast("T", one.result) for one in outcomes]

    async def sleep(self, duration_ms: int) -> None:
        """Suspends for the duration."""
        await asyncio.sleep(duration_ms / 1000)

    def monotonic_ms(self) -> int:
        """Time of the event loop's clock."""
        return int(asyncio.get_running_loop().time() * 1000)


class AsyncioConnection:
    """One connection.  Owner: event loop."""

    def __init__(self, address: str, *, client_id: str, timeout_ms: int, budget: Budget | None = None) -> None:
        self.address = address
        self.versions = BrokerVersions({})
        self._receiver = FrameReceiver(self._take, self._end)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._budget = budget
        self._next_correlation_id = 0
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._lost: KctlError | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._lost is None

    async def open(self, host: str, port: int) -> None:
        """Connects the socket.  Raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self._receiver, host, port)

    async def negotiate(self, timeout_ms: int) -> None:
        """Fetches the API versions; falls back to the version of ApiVersions that an older broker names (KIP-511)."""
        outcome: BrokerVersions | int = API_VERSIONS_MAX
        while isinstance(outcome, int):
            frame = await self._exchange(api_versions_request(), outcome, timeout_ms)
            outcome = broker_versions_of(frame, outcome)
        self.versions = outcome

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Sends a request and waits for its response; see Connection.send."""
        if version is None:
            version = self.versions.highest(type(request))
        frame = await self._exchange(request, version, timeout_ms or self._timeout_ms)
        return response_of(frame, response_class, version)

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Sends a request that has no response."""
        if self._lost is not None:
            raise self._lost
        if version is None:
            version = self.versions.highest(type(request))
        self._write(request, version)
        try:
            async with asyncio.timeout(self._limited(self._timeout_ms) / 1000):
                await self._receiver.drain()
        except TimeoutError:
            raise ConnectionLost(f"{self.address}: accepted no bytes for {self._timeout_ms} ms") from None
        if self._lost is not None:
            raise self._lost

    async def close(self) -> None:
        """Closes the connection; pending requests get ConnectionLost."""
        self._lose(ConnectionLost(f"{self.address}: connection closed"))
        self._receiver.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._receiver.wait_closed()
        except TimeoutError:
            self._receiver.abort()

    async def _exchange(self, request: object, version: int, timeout_ms: int) -> memoryview:
        if self._lost is not None:
            raise self._lost
        correlation_id = self._write(request, version)
        arrival: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = arrival
        try:
            async with asyncio.timeout(self._limited(timeout_ms) / 1000):
                await self._receiver.drain()
                return await arrival
        except TimeoutError:
            raise ConnectionLost(f"{self.address}: {no_answer(request, timeout_ms)}") from None
        finally:
            self._waiting.pop(correlation_id, None)

    def _limited(self, timeout_ms: int) -> int:
        return timeout_ms if self._budget is None else self._budget.limited(timeout_ms)

    def _write(self, request: object, version: int) -> int:
        correlation_id = self._next_correlation_id
        chunks = request_frame(request, version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._receiver.write(chunks)
        return correlation_id

    def _take(self, frame: memoryview) -> None:
        """Passes a frame to the request with its correlation id."""
        try:
            arrival = self._waiting.get(correlation_id_of(frame))
        except MalformedRequest as error:
            self._lose(ConnectionLost(str(error)))
            self._receiver.close()
            return
        if arrival is not None and not arrival.done():
            arrival.set_result(frame)

    def _end(self, reason: OSError | int | None) -> None:
        if isinstance(reason, int):
            problem = f"{self.address}: does not speak Kafka's protocol (frame of {reason} bytes)"
        elif reason is None:
            self._lose(ConnectionClosed(f"{self.address}: the broker closed the connection"))
            self._receiver.close()
            return
        else:
            problem = f"{self.address}: {reason_of(reason)}"
        self._lose(ConnectionLost(problem))
        self._receiver.close()

    def _lose(self, error: KctlError) -> KctlError:
        """Records the first reason of a lost connection and fails all pending requests with it."""
        if self._lost is None:
            self._lost = error
        for arrival in self._waiting.values():
            if not arrival.done():
                arrival.set_exception(self._lost)
        return self._lost


def reason_of(error: OSError) -> str:
    """The operating system's error text without errno and address."""
    text = error.strerror or str(error)
    if error.errno is not None and text.startswith("Connect call failed"):
        import os  # noqa: PLC0415 - asyncio puts the address there instead of the reason

        text = os.strerror(error.errno)
    return text[:1].lower() + text[1:]
