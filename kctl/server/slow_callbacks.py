"""Names the callbacks that make an iteration of the event loop long, in a log line.

asyncio calls one callback after the other: the steps of tasks, timers, sockets that are ready.  DueCallbacks is its
queue; it reads the clock whenever a callback is taken, and keeps those that ran for long, until the iteration ends.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

log = logging.getLogger(__name__)

SLOW_S = 0.02
"""The duration of an iteration that is logged at level DEBUG."""
VERY_SLOW_S = 0.1
"""The duration of an iteration that is logged at level INFO, unless the CPU time is measured: on a busy machine shorter
ones are frequent."""
_LONG_S = 0.005
"""The duration of a callback that is named."""


class DueCallbacks(deque[asyncio.Handle]):
    """The callbacks that an event loop calls next, in order; `long` has those of this iteration that ran for long."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self.long: list[tuple[str, float]] = []
        """Names and durations in seconds."""
        self._now_s = now_s
        self._since_s = now_s()
        self._running: Any = None

    def popleft(self) -> asyncio.Handle:
        """The next callback, which is called at once."""
        now_s = self._now_s()
        if now_s - self._since_s >= _LONG_S:
            self._keep(now_s)
        self._since_s = now_s
        handle = _popleft(self)
        # Its function: a handle that is cancelled meanwhile forgets it.
        self._running = handle._callback  # type: ignore[attr-defined] # noqa: SLF001
        return handle

    def end(self, now_s: float) -> None:
        """The last callback of the iteration has ended."""
        if now_s - self._since_s >= _LONG_S:
            self._keep(now_s)
        self._running = None  # It may refer to much memory.

    def begin(self, now_s: float) -> None:
        """The next iteration begins."""
        self._since_s = now_s
        if self.long:
            self.long = []

    def _keep(self, now_s: float) -> None:
        self.long.append((_name(self._running), now_s - self._since_s))


_popleft = deque[asyncio.Handle].popleft


class SlowIterations:
    """Logs iterations that take long."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether the broker serves clients: iterations during its start delay no client."""
        self.latest_request: Callable[[], str] = str
        """Returns the API of the request that was handled last.  A turn of a connection ends after a long request."""
        self.info_s = VERY_SLOW_S
        """The duration of an iteration that is logged at level INFO."""
        self._collected = (0.0, 0.0, 0)

    def collected(self, end_s: float, duration_s: float, generation: int) -> None:
        """Notes a garbage collection, of whichever thread: it stops all of them."""
        self._collected = (end_s, duration_s, generation)

    def report(self, started_s: float, busy_s: float, due: DueCallbacks, figures: str = "") -> None:
        """Logs an iteration of at least SLOW_S, which has ended; `figures` are further fields of the line."""
        level = logging.INFO if busy_s >= self.info_s else logging.DEBUG
        if not self.is_on or not log.isEnabledFor(level):
            return
        end_s, collection_s, generation = self._collected
        if end_s >= started_s:
            figures += f" garbage_collection_ms={collection_s * 1000:.1f} generation={generation}"
        log.log(
            level,
            "event loop was busy busy_ms=%.1f%s callbacks=%s latest_request=%s",
            busy_s * 1000,
            figures,
            ",".join(f"{name}:{duration_s * 1000:.1f}ms" for name, duration_s in due.long) or "none",
            self.latest_request() or "none",
        )


def _name(callback: Any) -> str:
    """The name of the function, or of the task whose step it is."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        name = task.get_name()
        return f"task-{getattr(task.get_coro(), '__qualname__', name) if name.startswith(_UNNAMED) else name}"
    while isinstance(callback, partial):
        callback = callback.func
    return getattr(callback, "__qualname__", None) or type(callback).__qualname__


_UNNAMED = "Task-"
"""Prefix of the names that asyncio gives to tasks."""
