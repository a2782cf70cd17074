"""The log of decisions: principal, host, operation, resource, allowed or denied, and the rule that decided.

Logger `kctl.authorizer`: denials at INFO, allowed operations at DEBUG, as Kafka's `kafka.authorizer.logger`.  Denials
that are repeated within 10 seconds are counted and logged once at the end of that time, so that a client that retries
in a loop cannot fill the disk.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from kctl.environment import Clock
from kctl.limits import AUDITED_DENIALS_MAX
from kctl.security.acls import Operation, ResourceType
from kctl.security.authorization import Client, Decision

log = logging.getLogger("kctl.authorizer")

_WINDOW_MS = 10_000


class Question(NamedTuple):
    """The operation that a client requested on a resource."""

    client: Client
    operation: Operation
    kind: ResourceType
    name: str
    api: str

    def __str__(self) -> str:
        return (
            f"principal={self.client.principal} host={self.client.host} operation={self.operation.label} "
            f"resource={self.kind.label}:{self.name} request={self.api}"
        )


class DenialCounts:
    """Decides which denials are logged one by one, and counts the others.  Pure."""

    def __init__(self) -> None:
        self._end_ms = 0
        self._repeats: dict[Question, int] = {}
        self._others = 0

    def note(self, question: Question, now_ms: int) -> bool:
        """Counts a denial; returns True if it must be logged now."""
        if not self._repeats:
            self._end_ms = now_ms + _WINDOW_MS
        if question in self._repeats:
            self._repeats[question] += 1
            return False
        if len(self._repeats) >= AUDITED_DENIALS_MAX:
            self._others += 1
            return False
        self._repeats[question] = 0
        return True

    def is_over(self, now_ms: int) -> bool:
        """Whether the time over which denials are counted has ended."""
        return bool(self._repeats) and now_ms >= self._end_ms

    def take(self) -> tuple[list[tuple[Question, int]], int]:
        """Returns the repeated denials with their counts, and the number of others; resets the counts."""
        repeated = [(question, count) for question, count in self._repeats.items() if count]
        others = self._others
        self._repeats, self._others = {}, 0
        return repeated, others


class AuditLog:
    """Writes the log.  Owner: event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._denials = DenialCounts()
        self._flush: asyncio.TimerHandle | None = None

    def logs_allowed(self) -> bool:
        """Whether allowed operations are logged."""
        return log.isEnabledFor(logging.DEBUG)

    def allowed(self, question: Question, decision: Decision) -> None:
        """Logs an allowed operation."""
        log.debug("allowed %s rule=%s", question, decision.rule)

    def denied(self, question: Question, decision: Decision) -> None:
        """Logs or counts a denied operation."""
        now_ms = self._clock.monotonic_ms()
        if self._denials.is_over(now_ms):
            self._log_counts()
        if self._denials.note(question, now_ms):
            log.info("denied %s rule=%s", question, decision.rule)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(_WINDOW_MS / 1000, self._log_counts)

    def close(self) -> None:
        """Logs the counts of the last seconds."""
        self._log_counts()

    def _log_counts(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        repeated, others = self._denials.take()
        for question, count in repeated:
            log.info("denied again %s times=%s", question, count)
        if others:
            log.info("further denials count=%s", others)
