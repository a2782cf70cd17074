"""The ports of a client: connections, time and concurrency."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Protocol, TypeVar

from kctl.client.budget import Budget
from kctl.client.versions import BrokerVersions
from kctl.errors import KctlError

if TYPE_CHECKING:
    import ssl

    from kctl.security.sasl_client import SaslClient

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
    """Closes the coroutines that an interruption has left without a start, which Python would warn about."""
    for one in work:
        if isinstance(one, CoroutineType) and getcoroutinestate(one) == CORO_CREATED:
            one.close()


def is_closed(error: OSError) -> bool:
    """Whether the peer closed the connection; with unread data on its side that is a reset."""
    return isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError))


class Security(Protocol):
    """How the connections of a client are secured, if not PLAINTEXT; see kctl.client.security."""

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
        """The same security with the contents of TLS stores in place of their paths.  Raises ConfigError."""
        ...

    def tls_context(self) -> ssl.SSLContext | None:
        """The context for TLS; None without TLS.  Raises ConfigError."""
        ...

    def sasl_client(self, host: str, timeout_ms: int) -> SaslClient:
        """The client's side of one authentication with the broker at `host`; may block.  Raises KctlError."""
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
        """Sends a request in the highest common version, or in `version`, and waits for its response.

        Raises ConnectionLost, MalformedRequest for an invalid response, and ApiError(UNSUPPORTED_VERSION).  Record
        buffers in the response belong to the caller.
        """
        ...

    async def post(self, request: object, *, version: int | None = None) -> None:
        """Sends a request that has no response: Produce with acks=0."""
        ...

    async def close(self) -> None:
        """Closes the connection; pending requests fail with ConnectionLost."""
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
        """Connects, secures the connection and fetches the API versions, all within `connect_timeout_ms`.

        `security` is None for PLAINTEXT.  Raises ConnectionLost, and AuthenticationFailed for errors that a
        retry cannot resolve: an untrusted certificate, refused credentials, the wrong security protocol.

        With `reached_at`, this address is connected to; certificates and Kerberos names are those of `host`.

        `receive_buffer_bytes` is SO_RCVBUF; -1 for the operating system's choice.

        Each response must arrive within `timeout_ms`, and before the deadline of `budget` if it has one.
        """
        ...

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """Runs all, concurrently if possible; raises the first error after all have ended."""
        ...

    async def sleep(self, duration_ms: int) -> None:
        """Waits for this time."""
        ...

    def monotonic_ms(self) -> int:
        """Time from an arbitrary start, for deadlines."""
        ...
