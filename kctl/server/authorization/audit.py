"""The log of decisions: principal, host, operation, resource, allowed or denied, and the rule that decided.

Logger `kctl.authorizer`: denials at INFO, allowed operations at DEBUG, as Kafka's `kafka.authorizer.logger`.  Repeated
denials are folded (`kctl/log_output/folding.py`), so that a client in a loop cannot fill the disk.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kctl.log_output.peers import by_peer
from kctl.security.acls import Operation, ResourceType
from kctl.security.authorization import Client, Decision
from kctl.server.requests.context import Audited

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
    """Logs an allowed operation."""
    log.debug(_ALLOWED, *_values(question, decision))


def log_denied(question: Question, decision: Decision) -> None:
    """Logs a denied operation."""
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
