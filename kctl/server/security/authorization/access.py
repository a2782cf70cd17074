"""The checks of the permissions of clients, the interface of an authorizer, and the log of decisions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

from kctl.limits import Subject, bound
from kctl.output.log_lines import by_peer
from kctl.security.acls import AclBinding, AclFilter, Operation, ResourceType
from kctl.security.authorization import Client, Decision, Granted, java_address
from kctl.server.requests.context import Audited, Peer
from kctl.server.requests.outcomes import Outcome

# The interface of an authorizer. Kafka: org.apache.kafka.server.authorizer.Authorizer (KIP-504).
#
# A plug-in is a callable in the entry point group `kctl.authorizers` that takes the broker's properties as a mapping
# of text and returns an object with these methods.


class Authorizer(Protocol):
    """Decides on requests, and manages ACLs.  All methods are called on the event loop and must not block it."""

    async def start(self) -> None:
        """Start, once before the broker accepts connections; whatever this raises stops the broker."""

    async def close(self) -> None:
        """Close, once when the broker stops."""

    def authorize(self, client: Client, operation: Operation, kind: ResourceType, name: str) -> Decision:
        """Return whether the client may perform the operation on one resource."""
        ...

    def authorize_on_any(self, client: Client, operation: Operation, kind: ResourceType) -> Decision:
        """Return whether the client may perform the operation on at least one resource of the type (KIP-679)."""
        ...

    def acls(self) -> Iterable[AclBinding]:
        """Return all ACLs, for DescribeAcls.

        They may change while the caller iterates, as other requests are served.
        """
        ...

    async def create(self, bindings: Sequence[AclBinding]) -> list[Outcome]:
        """Store ACLs; one result for each, in order.  One that exists already succeeds."""
        ...

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[tuple[AclBinding, Outcome]]]:
        """Delete the ACLs that the filters select; for each filter those of them that no earlier filter selects."""
        ...


@runtime_checkable
class CachedAuthorizer(Authorizer, Protocol):
    """An authorizer whose decisions hold until it clears `granted`: it is not asked again about what is in there.

    Access adds what is allowed.  The authorizer clears it when a decision may have changed, and when there are many.
    """

    granted: Granted


# The log of decisions: principal, host, operation, resource, allowed or denied, and the rule that decided.
#
# Logger `kctl.authorizer`: denials at INFO, allowed operations at DEBUG, as Kafka's `kafka.authorizer.logger`.
# Repeated denials are folded (`kctl/output/log_folding.py`), so that a client in a loop cannot fill the disk.


log = logging.getLogger("kctl.authorizer")
_DECISION = " listener=%s principal=%s host=%s operation=%s resource=%s:%s request=%s rule=%s"
_ALLOWED = "allowed" + _DECISION
_DENIED = "denied" + _DECISION


audited = Audited()
"""What this logger logs."""


def levels_changed() -> None:
    """Levels of loggers were set."""
    audited.allowed = log.isEnabledFor(logging.DEBUG)


class Question(NamedTuple):
    """The operation that a client requested on a resource."""

    listener: str
    client: Client
    operation: Operation
    kind: ResourceType
    name: str
    api: str


def log_allowed(question: Question, decision: Decision) -> None:
    """Log an allowed operation."""
    log.debug(_ALLOWED, *_values(question, decision))


def log_denied(question: Question, decision: Decision) -> None:
    """Log a denied operation."""
    log.info(_DENIED, *_values(question, decision), extra=by_peer(question.listener))


def _values(question: Question, decision: Decision) -> tuple[object, ...]:
    client = question.client
    return (
        question.listener,
        client.principal,
        client.host,
        question.operation.label,
        question.kind.label,
        question.name,
        question.api,
        decision.rule,
    )


DENIALS_KEPT_MAX = bound(
    Subject.ACLS,
    "principals, operations and resources whose denials a broker counts for its metrics",
    100,
    "combinations",
    on_excess="those that were denied longest ago are no longer counted",
)


class Denial(NamedTuple):
    """An operation of a principal on a resource."""

    principal: str
    operation: Operation
    kind: ResourceType
    name: str


class Denials:
    """How often operations were denied, of the latest DENIALS_KEPT_MAX.  Owner: event loop."""

    def __init__(self) -> None:
        self._counts: dict[Denial, int] = {}

    def add(self, denial: Denial) -> None:
        """Count a denial."""
        # Added again at the end: the first one is that which was denied longest ago.
        self._counts[denial] = self._counts.pop(denial, 0) + 1
        if len(self._counts) > DENIALS_KEPT_MAX:
            del self._counts[next(iter(self._counts))]

    def counts(self) -> list[tuple[Denial, int]]:
        """Return the counts, the latest denial last."""
        return list(self._counts.items())


# Checks the permissions of a client: passes the check to the authorizer and logs the decision.
#
# Handlers use it through `RequestContext.allows` and the other methods of the context.


class Access:
    """An authorizer with its audit log.  Owner: event loop."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._is_cached = isinstance(authorizer, CachedAuthorizer)
        self.granted: Granted = authorizer.granted if isinstance(authorizer, CachedAuthorizer) else {}
        """See AccessControl."""
        self.denials = Denials()
        self.audited = audited
        """See AccessControl."""
        levels_changed()

    async def start(self) -> None:
        """Start the authorizer; its exceptions are passed on."""
        await self._authorizer.start()

    async def close(self) -> None:
        """Stop the authorizer."""
        await self._authorizer.close()

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        """Return whether the client may perform the operation.

        `is_logged` is False for checks that neither grant nor refuse the request, such as those that filter a list.
        """
        key = (peer.principal, peer.client_host, operation, kind)
        granted = self.granted.get(key)
        if granted is not None and name in granted and not audited.allowed:
            return True
        client = _client(peer.principal, peer.client_host)
        decision = self._authorizer.authorize(client, operation, kind, name)
        if self._is_cached and decision.is_allowed:
            self.granted.setdefault(key, set()).add(name)
        if is_logged and (not decision.is_allowed or audited.allowed):
            self._log(decision, Question(peer.listener, client, operation, kind, name, api))
        return decision.is_allowed

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        """Return whether the client may perform the operation on at least one resource of the type."""
        client = _client(peer.principal, peer.client_host)
        decision = self._authorizer.authorize_on_any(client, operation, kind)
        if not decision.is_allowed or audited.allowed:
            self._log(decision, Question(peer.listener, client, operation, kind, "(any)", api))
        return decision.is_allowed

    def _log(self, decision: Decision, question: Question) -> None:
        if decision.is_allowed:
            log_allowed(question, decision)
            return
        log_denied(question, decision)
        self.denials.add(Denial(question.client.principal, question.operation, question.kind, question.name))


@lru_cache(maxsize=4_096)
def _client(principal: str, client_host: str) -> Client:
    return Client(principal, java_address(client_host))
