"""Logs failed authentications: a bounded number of lines per interval, because any client can cause them.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kctl.limits import FAILED_AUTHENTICATION_LINES_MAX

log = logging.getLogger(__name__)

INTERVAL_MS = 10_000


class FailureLog:
    """Counts failures and writes the first ones of each interval; the next line has the number of those left out."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._interval = -1
        self._lines = 0
        self._left_out = 0
        self.count = 0

    def record(self, *, listener: str, client_host: str, mechanism: str, reason: str) -> None:
        """Logs one failure.  The reason must contain no secret."""
        self.count += 1
        interval = self._monotonic_ms() // INTERVAL_MS
        if interval != self._interval:
            self._interval, self._lines = interval, 0
        if self._lines == FAILED_AUTHENTICATION_LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        log.info(
            "authentication failed listener=%s peer=%s mechanism=%s reason=%s lines_left_out=%s",
            listener,
            client_host,
            mechanism or "none",
            reason,
            left_out,
        )
