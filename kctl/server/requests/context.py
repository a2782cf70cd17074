"""The client and connection of a request, for handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kctl.errors import ApiError
from kctl.security.acls import AUTHORIZATION_ERRORS, CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from kctl.server.quotas.accounts import RequestAccount
    from kctl.server.requests.recorder import ApiRecord

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class RequestTimes:
    """When a request passed its stages, in seconds of the event loop's clock.

    Only recorded with metrics.port or request.log.mode.
    """

    request_bytes: int
    received_s: float
    """The latest bytes of the connection arrived."""
    started_s: float
    handled_s: float = 0.0
    """The handler returned; it may have returned an awaitable."""
    ready_s: float = 0.0
    """The response was encoded."""
    flushed_s: float = 0.0
    """The response was first passed to the socket."""
    sent_s: float = 0.0
    """The socket had taken the whole response."""
    throttle_ms: int = 0
    response_bytes: int = 0
    """Only set for the request log."""
    on_sent: Callable[[RequestTimes], None] | None = None
    """Called when the socket has taken the response."""

    @property
    def queue_ms(self) -> float:
        """The wait for the connection's turn."""
        return (self.started_s - self.received_s) * 1000

    @property
    def local_ms(self) -> float:
        """Decoding and handling, without waiting; 0 for a request that is decoded in a thread."""
        return (self.handled_s - self.started_s) * 1000 if self.handled_s else 0.0

    @property
    def remote_ms(self) -> float:
        """Waiting, work in threads, and encoding the response."""
        return (self.ready_s - (self.handled_s or self.started_s)) * 1000

    @property
    def response_queue_ms(self) -> float:
        """The wait of the response until it was first passed to the socket."""
        return (self.flushed_s - self.ready_s) * 1000

    @property
    def send_ms(self) -> float:
        """The time until the socket had taken the whole response."""
        return (self.sent_s - self.flushed_s) * 1000


class Measuring:
    """Whether connections record times."""

    __slots__ = ("_for_log", "_for_metrics", "is_on")

    def __init__(self, *, for_metrics: bool = False) -> None:
        self._for_metrics = for_metrics
        self._for_log = False
        self.is_on = for_metrics
        """True for metrics or for the request log."""

    def switch(self, *, for_metrics: bool | None = None, for_log: bool | None = None) -> None:
        """Switches the recording of times for metrics and for the request log on or off; None leaves it unchanged."""
        self._for_metrics = self._for_metrics if for_metrics is None else for_metrics
        self._for_log = self._for_log if for_log is None else for_log
        self.is_on = self._for_metrics or self._for_log


class ConnectionTiming:
    """The measurements of one connection."""

    __slots__ = ("flushing_s", "measuring", "received_s", "software", "unsent")

    def __init__(self, measuring: Measuring) -> None:
        self.measuring = measuring
        self.flushing_s = 0.0
        """When responses were first passed to the socket, of those that it has not taken."""
        self.received_s = 0.0
        """When bytes were received last."""
        self.unsent: list[RequestTimes] = []
        """The requests whose responses are not sent yet."""
        self.software = ("unknown", "unknown")
        """Name and version of the client's software (KIP-511)."""

    def sent(self, now_s: float) -> None:
        """The socket has taken all responses."""
        for times in self.unsent:
            times.flushed_s = max(times.flushed_s, self.flushing_s)
            times.sent_s = now_s
            if times.on_sent is not None:
                times.on_sent(times)
        self.unsent.clear()
        self.flushing_s = 0.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One accepted connection."""

    client_host: str
    """Text of Java's InetAddress: a slash and the address, as group metadata stores it."""
    listener: str
    principal: str = ANONYMOUS
    """The authenticated principal as `Type:name`, from the certificate or from SASL."""
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    is_token_authenticated: bool = False
    """Whether the client authenticated with a delegation token (KIP-48)."""
    timing: ConnectionTiming | None = field(default=None, compare=False, repr=False)
    """None in simulations."""


class AccessControl(Protocol):
    """Decides on requests; implemented by `kctl.server.authorization.access`."""

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        """Whether the client may perform the operation on one resource."""
        ...

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        """Whether the client may perform the operation on at least one resource of the type."""
        ...


class EverythingAllowed:
    """The access control of a broker without an authorizer."""

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        """Always True."""
        return True

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        """Always True."""
        return True


EVERYTHING_ALLOWED = EverythingAllowed()
_NONE: frozenset[str] = frozenset()


@dataclass(slots=True)
class RequestContext:
    """One request: its header, its connection, and what its client may do."""

    api_version: int
    correlation_id: int
    client_id: str
    peer: Peer
    access: AccessControl = EVERYTHING_ALLOWED
    api_name: str = ""
    times: RequestTimes | None = None
    """When the request passed its stages; None if it is not timed."""
    record: ApiRecord | None = None
    """Where the request is counted; None if metrics are off."""
    account: RequestAccount | None = None
    """What the request uses of the quotas of its client; None for a client without quotas."""
    encode: Callable[[RequestContext, Any], Any] | None = None
    """Encodes the response as a reply; set by the dispatcher."""

    @property
    def client_host(self) -> str:
        """The client's address, see Peer."""
        return self.peer.client_host

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the connection."""
        return self.peer.listener

    @property
    def principal(self) -> str:
        """The authenticated principal."""
        return self.peer.principal

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may perform the operation on a resource."""
        return self.access.allows(self.peer, operation, kind, name, api=self.api_name)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raises ApiError with the authorization error of the type unless the operation is allowed."""
        if not self.access.allows(self.peer, operation, kind, name, api=self.api_name):
            code = AUTHORIZATION_ERRORS[kind]
            raise ApiError(code, code.description)

    def allows_on_cluster(self, operation: Operation) -> bool:
        """Whether the client may perform the operation on the cluster."""
        return self.access.allows(self.peer, operation, ResourceType.CLUSTER, CLUSTER_NAME, api=self.api_name)

    def allows_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the client may perform the operation on at least one resource of the type."""
        return self.access.allows_on_any(self.peer, operation, kind, api=self.api_name)

    def denied(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> frozenset[str]:
        """Those of the resources on which the operation is not allowed; each is checked once.

        `is_logged` is False for a filter of a list, which refuses nothing that the client has named.
        """
        access, peer, api = self.access, self.peer, self.api_name
        if access is EVERYTHING_ALLOWED:
            return _NONE
        denied = []
        for name in dict.fromkeys(names):
            if not access.allows(peer, operation, kind, name, api=api, is_logged=is_logged):
                denied.append(name)  # noqa: PERF401 - a comprehension is one call more
        return frozenset(denied) if denied else _NONE
