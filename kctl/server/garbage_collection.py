"""Schedules garbage collections, so that none stops the event loop for tens of milliseconds.

Reference counting frees almost everything; the collector frees cycles only.  Collections of young objects are bounded
by their thresholds.  A collection of the oldest objects visits all of them, about 36 objects per partition.  So it is
run after each collection of the middle generation, while there are few, and its survivors are frozen: later collections
do not visit them.  Frozen objects that become cyclic garbage are freed by a thorough collection, which is rare and
waits for an idle loop.  docs/decisions/garbage-collection.md has the measurements.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

YOUNG_OBJECTS = 10_000
"""New objects before a collection of the young ones, which takes at most about 10 ms if all of them are garbage."""
_MIDDLE_COLLECTIONS = 2
_NEVER = 1 << 30
CHECK_INTERVAL_S = 5.0
INTERVAL_MIN_S = 6 * 3600.0
INTERVAL_MAX_S = 48 * 3600.0
IDLE_SHARE = 0.05
"""The share of time that an idle loop is busy."""


class ThoroughCollections:
    """Decides when a thorough collection is due.  Pure."""

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
    """Frees cycles, excludes all objects that exist from later collections, and sets the thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, _MIDDLE_COLLECTIONS, _NEVER)


async def collect(busy_s: Callable[[], float], collected: Callable[[float, float, int], None]) -> None:
    """Runs collections until cancelled.

    `busy_s` returns how long the loop has been busy since its start.  `collected` is called, in whichever thread, after
    each collection with its end, duration and generation.
    """
    loop = asyncio.get_running_loop()
    started_s = 0.0

    def on_collection(phase: str, info: dict[str, Any]) -> None:
        nonlocal started_s
        now_s = loop.time()
        if phase == "start":
            started_s = now_s
            return
        collected(now_s, now_s - started_s, info["generation"])
        if info["generation"] == 1:
            # Also in threads; a collection cannot begin another one.
            loop.call_soon_threadsafe(freeze)

    thorough = ThoroughCollections(loop.time(), busy_s())
    gc.callbacks.append(on_collection)
    try:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if thorough.is_due(loop.time(), busy_s()):
                gc.unfreeze()
                freeze()
    finally:
        gc.callbacks.remove(on_collection)
