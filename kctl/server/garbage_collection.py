"""Schedules full garbage collections, which stop the event loop for tens of milliseconds.

Reference counting frees almost everything; the collector frees cycles only.  Collections of young objects are bounded
by their threshold.  A full collection visits all objects that were created since the start, and Python would run it
while the broker is busy.  It is run when the loop is idle instead, or after a long time without an idle moment.
docs/decisions/garbage-collection.md has the measurements.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

YOUNG_OBJECTS = 10_000
"""New objects before a collection of the young ones, which takes at most about 10 ms if all of them are garbage."""
_MIDDLE_COLLECTIONS = 5
_NEVER = 1 << 30
CHECK_INTERVAL_S = 5.0
INTERVAL_MIN_S = 60.0
INTERVAL_MAX_S = 900.0
IDLE_SHARE = 0.05
"""The share of time that an idle loop is busy."""


class FullCollections:
    """Decides when a full collection is due.  Pure."""

    def __init__(self, now_s: float, busy_s: float) -> None:
        self._last_s = now_s
        self._checked_s = now_s
        self._busy_s = busy_s

    def is_due(self, now_s: float, busy_s: float) -> bool:
        """Returns whether to collect now; `busy_s` is how long the loop has been busy since its start."""
        elapsed_s, busy_now_s = now_s - self._checked_s, busy_s - self._busy_s
        self._checked_s, self._busy_s = now_s, busy_s
        since_s = now_s - self._last_s
        is_idle = busy_now_s <= elapsed_s * IDLE_SHARE
        if since_s < INTERVAL_MIN_S or (not is_idle and since_s < INTERVAL_MAX_S):
            return False
        self._last_s = now_s
        return True


def freeze() -> None:
    """Excludes the objects created at start, which live as long as the process, and sets the thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, _MIDDLE_COLLECTIONS, _NEVER)


async def collect_when_idle(busy_s: Callable[[], float]) -> None:
    """Runs full collections until cancelled; `busy_s` returns how long the loop has been busy since its start."""
    loop = asyncio.get_running_loop()
    collections = FullCollections(loop.time(), busy_s())
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        if collections.is_due(loop.time(), busy_s()):
            gc.collect()
