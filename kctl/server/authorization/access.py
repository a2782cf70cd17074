"""Checks the permissions of a client: passes the check to the authorizer and logs the decision.

Handlers use it through `RequestContext.allows` and the other methods of the context.
"""

from __future__ import annotations

from functools import lru_cache

from kctl.security.acls import Operation, ResourceType
from kctl.security.authorization import Client, Decision, Granted, java_address
from kctl.server.authorization import audit
from kctl.server.authorization.audit import Question, audited
from kctl.server.authorization.port import Authorizer, CachedAuthorizer
from kctl.server.requests.context import Peer


class Access:
    """An authorizer with its audit log.  Owner: event loop."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._is_cached = isinstance(authorizer, CachedAuthorizer)
        self.granted: Granted = authorizer.granted if isinstance(authorizer, CachedAuthorizer) else {}
        """See AccessControl."""
        self.audited = audited
        """See AccessControl."""
        audit.levels_changed()

    async def start(self) -> None:
        """Starts the authorizer; its exceptions are passed on."""
        await self._authorizer.start()

    async def close(self) -> None:
        """Stops the authorizer."""
        await self._authorizer.close()

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        """Whether the client may perform the operation.

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
            _log(decision, Question(peer.listener, client, operation, kind, name, api))
        return decision.is_allowed

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        """Whether the client may perform the operation on at least one resource of the type."""
        client = _client(peer.principal, peer.client_host)
        decision = self._authorizer.authorize_on_any(client, operation, kind)
        if not decision.is_allowed or audited.allowed:
            _log(decision, Question(peer.listener, client, operation, kind, "(any)", api))
        return decision.is_allowed


def _log(decision: Decision, question: Question) -> None:
    if not decision.is_allowed:
        audit.log_denied(question, decision)
    else:
        audit.log_allowed(question, decision)


@lru_cache(maxsize=4_096)
def _client(principal: str, client_host: str) -> Client:
    return Client(principal, java_address(client_host))
