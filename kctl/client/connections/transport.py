"""The ports of a client: connections, time and concurrency; the deadline of a command and its retries."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Protocol, TypeVar

from kctl.client.connections.versions import BrokerVersions
from kctl.errors import KctlError

if TYPE_CHECKING:
    import ssl

    from kctl.security.sasl_client import SaslClient


# The deadline of a command and the brokers that it could not connect to, shared by all its operations.
#
# Long-lived clients (producers, consumers, brokers) have no command in progress: each of their operations has a
# timeout of its own, and unreachable brokers are tried again.


Address = tuple[str, int]

ABSENCE_WAIT_MS = 500
"""How long a command retries, in total, for partitions without a leader and unreachable brokers."""


class Budget:
    """The remaining time of a command.  Owner: the command; its clients and their connections share it."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.unreachable: dict[Address, str] = {}
        """Brokers that could not be connected to during this command, with the reason; they are not tried again."""
        self.follows_elections = False
        """Whether the command waits until an unreachable leader has been replaced, up to its deadline."""
        self._monotonic_ms = monotonic_ms
        self._end_ms: int | None = None
        self._absence_end_ms: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether a command is in progress."""
        return self._end_ms is not None

    def begin(self, timeout_ms: int, *, follows_elections: bool = False) -> None:
        """Start a command that must end within `timeout_ms`."""
        self.end()
        self.follows_elections = follows_elections
        self._end_ms = self._monotonic_ms() + timeout_ms

    def end(self) -> None:
        """End the command and clear its state."""
        self._end_ms = self._absence_end_ms = None
        self.unreachable.clear()
        self.follows_elections = False

    @contextlib.contextmanager
    def command(self, timeout_ms: int, *, follows_elections: bool = False) -> Iterator[None]:
        """One deadline for everything in the block; in a nested command the outer deadline applies."""
        if self.is_active:
            yield
            return
        self.begin(timeout_ms, follows_elections=follows_elections)
        try:
            yield
        finally:
            self.end()

    def limited(self, timeout_ms: int) -> int:
        """Return `timeout_ms`, or the time until the deadline if that is less; 0 after the deadline."""
        if self._end_ms is None:
            return timeout_ms
        return max(0, min(timeout_ms, self._end_ms - self._monotonic_ms()))

    def limited_for_absent(self, timeout_ms: int) -> int:
        """As `limited`, for partitions without a leader; at most ABSENCE_WAIT_MS after the first call."""
        if self._end_ms is None:
            return timeout_ms
        now_ms = self._monotonic_ms()
        if self._absence_end_ms is None:
            self._absence_end_ms = now_ms + ABSENCE_WAIT_MS
        return max(0, min(self.limited(timeout_ms), self._absence_end_ms - now_ms))


# The ports of a client: connections, time and concurrency.


T = TypeVar("T")


class ConnectionLost(KctlError):
    """A broker is unreachable, closed the connection or did not respond; the outcome of the request is unknown."""


class NameUnresolved(ConnectionLost):
    """The host name of a broker has no address."""


class ConnectionClosed(ConnectionLost):
    """The peer closed the connection."""


class ClosedAtFirstRequest(ConnectionClosed):
    """The peer closed a new connection at its first request, as a listener does that requires SASL."""


def close_unawaited(work: Sequence[Awaitable[object]]) -> None:
    """Close the coroutines that an interruption has left without a start, which Python would warn about."""
    for awaitable in work:
        if isinstance(awaitable, CoroutineType) and getcoroutinestate(awaitable) == CORO_CREATED:
            awaitable.close()


def is_closed(error: OSError) -> bool:
    """Return whether the peer closed the connection; with unread data on its side that is a reset."""
    return isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError))


class Security(Protocol):
    """How the connections of a client are secured, if not PLAINTEXT; see kctl.client.connections.security."""

    @property
    def protocol(self) -> str:
        """SSL, SASL_PLAINTEXT or SASL_SSL."""
        ...

    @property
    def uses_tls(self) -> bool:
        """True for SSL and SASL_SSL."""
        ...

    @property
    def uses_sasl(self) -> bool:
        """True for SASL_PLAINTEXT and SASL_SSL."""
        ...

    @property
    def mechanism(self) -> str:
        """The SASL mechanism; "" without SASL."""
        ...

    def with_contents(self) -> Security:
        """Return the same security with the contents of TLS stores in place of their paths.  Raises ConfigError."""
        ...

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context for TLS; None without TLS.  Raises ConfigError."""
        ...

    def sasl_client(self, host: str, timeout_ms: int) -> SaslClient:
        """Return the client's side of one authentication with the broker at `host`; may block.  Raises KctlError."""
        ...

    def renew_after_ms(self, lifetime_ms: int) -> int:
        """When to authenticate again in a session of this lifetime."""
        ...


class Connection(Protocol):
    """A connection to one broker, whose API versions are known."""

    @property
    def address(self) -> str:
        """`host:port` of the connection."""
        ...

    @property
    def versions(self) -> BrokerVersions:
        """The API versions that the broker supports, from its ApiVersions response."""
        ...

    @property
    def is_open(self) -> bool:
        """False after `close` and when the connection is lost."""
        ...

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Send a request in the highest common version, or in `version`, and wait for its response.

        Raises ConnectionLost, MalformedRequest for an invalid response, and ApiError(UNSUPPORTED_VERSION).  Record
        buffers in the response belong to the caller.
        """
        ...

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        ...

    async def close(self) -> None:
        """Close the connection; pending requests fail with ConnectionLost."""
        ...


class Transport(Protocol):
    """Opens connections, waits, and runs coroutines concurrently."""

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
    ) -> Connection:
        """Connect, secure the connection and fetch the API versions, all within `connect_timeout_ms`.

        `security` is None for PLAINTEXT.  Raises ConnectionLost, and AuthenticationFailed for errors that a
        retry cannot resolve: an untrusted certificate, refused credentials, the wrong security protocol.

        With `reached_at`, this address is connected to; certificates and Kerberos names are those of `host`.

        `receive_buffer_bytes` is SO_RCVBUF; -1 for the operating system's choice.

        Each response must arrive within `timeout_ms`, and before the deadline of `budget` if it has one.
        """
        ...

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Run all, concurrently if possible; raise the first error after all have ended."""
        ...

    async def sleep(self, duration_ms: int) -> None:
        """Wait for this time."""
        ...

    def monotonic_ms(self) -> int:
        """Return the time from an arbitrary start, for deadlines."""
        ...
