"""Logs connections that are refused, or closed because of invalid data: a bounded number of lines per second.

The number is bounded because unauthenticated clients can cause these lines.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kctl.limits import REFUSED_CONNECTION_LINES_MAX

log = logging.getLogger(__name__)


class RefusalLog:
    """Writes the first refusals of each second; the next line has the number of those left out."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._second = -1
        self._lines = 0
        self._left_out = 0
        self.count = 0

    def record(self, event: str, *, listener: str, reason: str, peer: str = "") -> None:
        """Logs one refusal with its reason, unless the limit is reached."""
        self.count += 1
        second = int(self._now_s())
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines == REFUSED_CONNECTION_LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        log.info("%s listener=%s peer=%s reason=%s lines_left_out=%s", event, listener, peer, reason, left_out)
