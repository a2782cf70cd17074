"""Names the callbacks that make an iteration of the event loop long, in a log line.

asyncio calls one callback after the other: the steps of tasks, timers, sockets that are ready.  DueCallbacks is its
queue.  While callbacks are timed, it reads the clock whenever one is taken, and keeps those that ran for long until the
iteration ends.  That costs each callback a call, so they are timed from the first long iteration, whose line has no
names, until there was none for TIMED_S.  The start of a broker has long ones.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kctl.server.iteration_times import Reading, times_between

log = logging.getLogger(__name__)

SLOW_S = 0.02
"""The duration of an iteration that is logged at level DEBUG."""
VERY_SLOW_S = 0.1
"""The duration of an iteration that is logged at level INFO, unless the CPU time is measured: on a busy machine shorter
ones are frequent."""
TIMED_S = 600.0
"""For so long after a long iteration, callbacks are timed."""
_LONG_S = 0.005
"""The duration of a callback that is named."""
_COLLECTIONS_MAX = 100
"""The garbage collections of one iteration that are counted."""


class DueCallbacks(deque[asyncio.Handle]):
    """The callbacks that an event loop calls next, in order; `long` has those of this iteration that ran for long."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self.long: list[tuple[str, float]] = []
        """Names and durations in seconds."""
        self.is_timed = False
        """Whether the callbacks of this iteration are timed; then `begin` and `end` have to be called."""
        self._now_s = now_s
        self._timed_until_s = 0.0
        self._since_s = 0.0
        self._running: Any = None

    def time(self, now_s: float) -> None:
        """There was a long iteration: times callbacks from the next one on."""
        self._timed_until_s = now_s + TIMED_S
        if not self.is_timed:
            self.is_timed = True
            self.__class__ = _TimedCallbacks

    def begin(self, now_s: float) -> None:
        """The next iteration begins."""
        self._since_s = now_s
        if self.long:
            self.long = []
        if now_s >= self._timed_until_s:
            self.is_timed = False
            self.__class__ = DueCallbacks

    def end(self, now_s: float) -> None:
        """The last callback of the iteration has ended."""
        if now_s - self._since_s >= _LONG_S:
            self._keep(now_s)
        self._running = None  # It may refer to much memory.

    def _keep(self, now_s: float) -> None:
        self.long.append((_name(self._running), now_s - self._since_s))


class _TimedCallbacks(DueCallbacks):
    """What the queue is while callbacks are timed: otherwise it has no method of its own that asyncio calls."""

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
        self._collections: deque[tuple[float, float, int]] = deque(maxlen=_COLLECTIONS_MAX)

    def collected(self, end_s: float, duration_s: float, generation: int) -> None:
        """Notes a garbage collection, of whichever thread: it stops all of them."""
        self._collections.append((end_s, duration_s, generation))

    def threshold_s(self) -> float:
        """The duration from which on iterations are logged."""
        return SLOW_S if log.isEnabledFor(logging.DEBUG) else self.info_s

    def report(
        self,
        started_s: float,
        busy_s: float,
        before: Reading,
        read: Callable[[], Reading],
        due: DueCallbacks,
        stacks_of: Callable[[float], Sequence[str]],
    ) -> None:
        """Logs an iteration of at least SLOW_S, which has ended; `before` was read when it began.

        `stacks_of` returns the stacks that were sampled in the iteration with this start.
        """
        level = logging.INFO if busy_s >= self.info_s else logging.DEBUG
        if not self.is_on or not log.isEnabledFor(level):
            return
        collections = [(each_s, generation) for end_s, each_s, generation in self._collections if end_s >= started_s]
        times = times_between(before, read(), busy_s=busy_s, collections_s=sum(each_s for each_s, _ in collections))
        log.log(
            level,
            "event loop was busy %s generations=%s callbacks=%s latest_request=%s stacks=%s",
            times,
            ",".join(str(generation) for _, generation in collections) or "none",
            ",".join(f"{name}:{duration_s * 1000:.1f}ms" for name, duration_s in due.long)
            or ("none" if due.is_timed else "not_timed"),
            self.latest_request() or "none",
            "|".join(f"{count}x:{stack}" for stack, count in Counter(stacks_of(started_s)).items()) or "none",
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
