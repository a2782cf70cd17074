"""The client and connection of a request, for handlers."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

from kctl.errors import ApiError
from kctl.limits import Subject, bound
from kctl.security.acls import AUTHORIZATION_ERRORS, CLUSTER_NAME, Operation, ResourceType
from kctl.security.authorization import Granted
from kctl.server.requests.quotas.accounts import RequestAccount
from kctl.server.requests.quotas.meters import FoundClient, LimitedClient
from kctl.server.requests.recorder import ApiRecord, ConnectionTiming, RequestTimes

ANONYMOUS = "User:ANONYMOUS"
END_CALLBACKS_MAX = bound(
    Subject.CONNECTIONS,
    "share sessions of one connection that end with it",
    100,
    "sessions",
    on_excess="the records of further ones are released when their locks expire",
)


class ConnectionEnd:
    """What happens when a connection is closed, whichever side closes it.  Owner: event loop."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[], None]] | None = None

    def watch(self, key: object, callback: Callable[[], None]) -> None:
        """Call this at the end, in place of the former callback of the key; ignored if there are too many."""
        if self._callbacks is None:
            self._callbacks = {}
        if key in self._callbacks or len(self._callbacks) < END_CALLBACKS_MAX:
            self._callbacks[key] = callback

    def run(self) -> None:
        """Call all callbacks, once."""
        callbacks, self._callbacks = self._callbacks, None
        for callback in (callbacks or {}).values():
            callback()


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
    end: ConnectionEnd | None = field(default=None, compare=False, repr=False)
    """None in simulations."""
    quotas: FoundClient = field(default_factory=FoundClient, init=False, compare=False, repr=False)
    """The quotas of the client that sent the latest request."""


class Audited:
    """What the audit log has, apart from denials."""

    __slots__ = ("allowed",)

    def __init__(self) -> None:
        self.allowed = False
        """Whether allowed operations are logged: a flag, because each request looks at it."""


class AccessControl(Protocol):
    """Decides on requests; implemented by `kctl.server.security.authorization.access`."""

    granted: Granted
    """What is allowed for sure, so that further checks are not needed unless they are logged."""
    audited: Audited
    """Changes with the levels of loggers."""

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        """Return whether the client may perform the operation on one resource."""
        ...

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        """Return whether the client may perform the operation on at least one resource of the type."""
        ...


class EverythingAllowed:
    """The access control of a broker without an authorizer."""

    def __init__(self) -> None:
        self.granted: Granted = {}
        self.audited = Audited()

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        """Return True for every operation."""
        return True

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        """Return True for every operation."""
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
    successes: int = 0
    """How many error codes the response has if all of them are NONE; 0 if it is to be searched for errors."""
    limited: LimitedClient | None = None
    """The quotas of the client; None for a client without quotas.  If it is set, so are the next four."""
    now_s: Callable[[], float] = field(init=False)
    """Returns the time of the event loop in seconds."""
    request_bytes: int = field(init=False)
    """The size of the request."""
    busy_s: float = field(init=False)
    """The time that it has used until `running_since_s`, unless it has an account."""
    running_since_s: float | None = field(init=False)
    """In seconds of the event loop's clock; None if it waits."""
    opened_account: RequestAccount | None = None
    """See `account`."""
    encode: Callable[[RequestContext, Any], Any] | None = None
    """Encodes the response as a reply; set by the dispatcher."""

    @property
    def account(self) -> RequestAccount | None:
        """What the request uses of the quotas of its client; None for a client without quotas.

        It is made when it is first needed: most requests are settled without one.
        """
        if self.opened_account is None and self.limited is not None:
            self.opened_account = RequestAccount(
                self.limited,
                self.now_s,
                self.request_bytes,
                busy_s=self.busy_s,
                running_since_s=self.running_since_s,
            )
        return self.opened_account

    def exempt(self) -> None:
        """Count the request, which is one of a follower, for no quotas."""
        self.limited = self.opened_account = None

    def wait(self, now_s: float) -> None:
        """Note that the request waits: it uses no time until its response is made."""
        if self.opened_account is not None:
            self.opened_account.paused()
        elif self.running_since_s is not None:
            self.busy_s += now_s - self.running_since_s
            self.running_since_s = None

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
        """Return whether the client may perform the operation on a resource."""
        return self.access.allows(self.peer, operation, kind, name, api=self.api_name)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise ApiError with the authorization error of the type unless the operation is allowed."""
        if not self.access.allows(self.peer, operation, kind, name, api=self.api_name):
            code = AUTHORIZATION_ERRORS[kind]
            raise ApiError(code, code.description)

    def allows_on_cluster(self, operation: Operation) -> bool:
        """Return whether the client may perform the operation on the cluster."""
        return self.access.allows(self.peer, operation, ResourceType.CLUSTER, CLUSTER_NAME, api=self.api_name)

    def allows_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the client may perform the operation on at least one resource of the type."""
        return self.access.allows_on_any(self.peer, operation, kind, api=self.api_name)

    def permitted(self, operation: Operation, kind: ResourceType) -> AbstractSet[str] | None:
        """Return the resources on which the operation is allowed for sure; None if it is allowed on all.

        `denied` decides about others.  It needs several times as long, and Produce and Fetch are so frequent.
        """
        access = self.access
        if access is EVERYTHING_ALLOWED:
            return None
        if access.audited.allowed:
            return _NONE
        peer = self.peer
        return access.granted.get((peer.principal, peer.client_host, operation, kind), _NONE)

    def denied(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> frozenset[str]:
        """Return the resources among these on which the operation is not allowed; each is checked once.

        `is_logged` is False for a filter of a list, which refuses nothing that the client has named.
        """
        access, peer, api = self.access, self.peer, self.api_name
        if access is EVERYTHING_ALLOWED:
            return _NONE
        names = tuple(names)
        granted = access.granted.get((peer.principal, peer.client_host, operation, kind))
        if granted is not None and granted.issuperset(names) and not access.audited.allowed:
            return _NONE
        denied = []
        for name in dict.fromkeys(names):
            if not access.allows(peer, operation, kind, name, api=api, is_logged=is_logged):
                denied.append(name)  # noqa: PERF401 - a comprehension is one call more
        return frozenset(denied) if denied else _NONE


def peer_address(text: str) -> str:
    """Return an IP address in the form in which those of connections are written.  Raises ValueError for other texts.

    IPv4 addresses that are mapped into IPv6 are written as IPv4, as Java does.
    """
    parsed = ipaddress.ip_address(text)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
