"""Says what made an iteration of the event loop long: callbacks, stacks, and where the time went.

- IterationTimes: the time of an iteration by what took it: its thread, other threads, other processes;
- IterationSamples: stacks of the loop's thread while an iteration takes long;
- DueCallbacks: the callbacks of an iteration that ran for long;
- SlowIterations: the log line that has all of these.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import sys
import threading
import time
from asyncio import events
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from kctl.limits import Subject, bound
from kctl.system.operating_system import ProcessorWaits

SAMPLED_FRAMES_MAX = bound(
    Subject.REPORTS,
    "functions in a stack of the log line about a long iteration of the event loop",
    16,
    "functions",
    on_excess="the outer ones are left out",
)


# Where the time of an iteration of the event loop went: to its thread, to other threads, to other processes.
#
# A long iteration is a defect of the broker only if its own thread computed or waited for a file. On a busy machine
# most long iterations are those in which the system ran other processes; a thread that reads records holds the
# interpreter lock; a garbage collection stops all threads.
#
# Owner: event loop.


class Reading(NamedTuple):
    """Clocks of one thread and its process, in seconds."""

    thread_s: float
    """CPU time of the thread."""
    process_s: float
    """CPU time of all threads."""
    runnable_s: float
    """How long the thread could have run while the system ran others; 0 where the system does not count that."""


class IterationTimes(NamedTuple):
    """The parts of one iteration, in seconds; garbage collections are also part of one of the others."""

    busy_s: float
    """Its duration."""
    cpu_s: float
    """CPU time of the event loop's thread."""
    runnable_s: float
    """The thread had work, and no processor: other processes, or other threads of this one, ran."""
    blocked_s: float
    """The thread waited for the interpreter lock, a disk or memory."""
    other_threads_s: float
    """CPU time of other threads meanwhile, on whichever processor."""
    collections_s: float
    """Garbage collections, of whichever thread."""

    @property
    def cause(self) -> str:
        """What took the largest part.

        `cpu`, `garbage_collection`, `other_processes` (which had the processors), `other_threads` (which had the
        interpreter lock) or `waiting` (for a disk or memory).
        """
        if self.collections_s >= self.busy_s / 2:
            return "garbage_collection"
        if self.cpu_s >= max(self.runnable_s, self.blocked_s):
            return "cpu"
        if self.runnable_s >= self.blocked_s:
            return "other_processes"
        return "other_threads" if self.other_threads_s >= self.blocked_s / 2 else "waiting"

    def __str__(self) -> str:
        """Return the log form."""
        return (
            f"cause={self.cause} busy_ms={self.busy_s * 1000:.1f} cpu_ms={self.cpu_s * 1000:.1f} "
            f"without_processor_ms={self.runnable_s * 1000:.1f} blocked_ms={self.blocked_s * 1000:.1f} "
            f"cpu_of_other_threads_ms={self.other_threads_s * 1000:.1f} "
            f"garbage_collection_ms={self.collections_s * 1000:.1f}"
        )


def times_between(before: Reading, after: Reading, *, busy_s: float, collections_s: float) -> IterationTimes:
    """Return the times of an iteration of `busy_s`; `before` may have been read a little earlier than it began."""
    cpu_s = min(after.thread_s - before.thread_s, busy_s)
    runnable_s = min(after.runnable_s - before.runnable_s, busy_s - cpu_s)
    return IterationTimes(
        busy_s=busy_s,
        cpu_s=cpu_s,
        runnable_s=runnable_s,
        blocked_s=busy_s - cpu_s - runnable_s,
        other_threads_s=max(after.process_s - before.process_s - (after.thread_s - before.thread_s), 0.0),
        collections_s=collections_s,
    )


class ThreadClocks:
    """The clocks of the thread that makes it."""

    def __init__(self) -> None:
        self._waits = ProcessorWaits()

    def read(self) -> Reading:
        """Return the clocks now; this costs four system calls."""
        return Reading(time.thread_time(), time.process_time(), self._waits.seconds())

    def close(self) -> None:
        """Close what it reads from."""
        self._waits.close()


# Samples where the event loop is while an iteration takes long, for the log line about it.
#
# A thread wakes up twice per threshold. If the loop is in the same iteration as at the wake-up before, and is not
# waiting for events, the thread keeps the stack of the loop's thread. So each iteration of the threshold or more has
# a sample, unless the interpreter lock was held all the time. Iterations cost nothing; a wake-up costs about 15
# microseconds.
#
# Neither locals nor arguments are kept, because they may be secrets or records.
#
# Owner: event loop; `_watch` runs in a thread of its own.


SAMPLES_MAX = 4
"""The samples of one iteration that are kept: the first ones, and the last one."""
_WAITING = selectors.DefaultSelector.select.__code__
"""The innermost function of Python of a loop that waits for events."""
_RUN_ONCE: Any = getattr(asyncio.BaseEventLoop, "_run_once")  # noqa: B009 - typeshed does not have it
_OUTERMOST = frozenset({events.Handle._run.__code__, _RUN_ONCE.__code__})  # noqa: SLF001
"""The functions that run all callbacks."""


class Iteration(Protocol):
    """The current iteration of a loop."""

    @property
    def started_s(self) -> float:
        """Its start, in the loop's time."""
        ...


class IterationSamples:
    """Stacks of the thread that makes this object, its innermost function first."""

    def __init__(
        self, iteration: Iteration, threshold_s: Callable[[], float], is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """Sample until `is_due` returns False, which ends the thread."""
        self._iteration = iteration
        self._threshold_s = threshold_s
        self._is_due = is_due
        self._thread = threading.get_ident()
        self._is_stopping = threading.Event()
        self._watching: threading.Thread | None = None
        self._samples: tuple[float, list[str]] = (0.0, [])
        """The start of the iteration that was sampled last, and its stacks."""

    def start(self) -> None:
        """Take samples from now on."""
        if self._watching is None or not self._watching.is_alive():
            self._watching = threading.Thread(target=self._watch, name="iteration-samples", daemon=True)
            self._watching.start()

    def stop(self) -> None:
        """End the thread."""
        if self._watching is not None:
            self._is_stopping.set()
            self._watching.join()
            self._watching = None

    def of(self, started_s: float) -> list[str]:
        """Return the stacks of the iteration that began then."""
        sampled_s, stacks = self._samples
        return stacks if sampled_s == started_s else []

    def _watch(self) -> None:
        seen_s = self._iteration.started_s
        while self._is_due() and not self._is_stopping.wait(self._threshold_s() / 2):
            started_s = self._iteration.started_s
            if started_s == seen_s:
                self.take(started_s)
            seen_s = started_s

    def take(self, started_s: float) -> None:
        """Keep the stack of the loop's thread, if it is still in that iteration and does not wait for events."""
        innermost = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        if innermost is None or innermost.f_code is _WAITING or self._iteration.started_s != started_s:
            return
        stack = stack_of(innermost)
        del innermost
        kept = self.of(started_s)
        self._samples = started_s, [*kept[: SAMPLES_MAX - 1], stack]


def stack_of(innermost: FrameType) -> str:
    """Return the functions that are running in a callback, with their lines:
    `module:line:function<module:line:function`.
    """
    frames: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code not in _OUTERMOST and len(frames) < SAMPLED_FRAMES_MAX:
        frames.append(f"{_module(frame)}:{frame.f_lineno}:{_function(frame.f_code)}")
        frame = frame.f_back
    return "<".join(frames) or "event_loop"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).removeprefix("kctl.")


def _function(code: CodeType) -> str:
    return code.co_qualname.replace("<locals>.", "").translate(_UNSAFE)


_UNSAFE = str.maketrans("<>", "__")


# Names the callbacks that make an iteration of the event loop long, in a log line.
#
# asyncio calls one callback after the other: the steps of tasks, timers, sockets that are ready. DueCallbacks is its
# queue. While callbacks are timed, it reads the clock whenever one is taken, and keeps those that ran for long until
# the iteration ends. That costs each callback a call, so they are timed from the first long iteration, whose line has
# no names, until there was none for TIMED_S. The start of a broker has long ones.
#
# Owner: event loop.


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
        """Begin the next iteration."""
        self._since_s = now_s
        if self.long:
            self.long = []
        if now_s >= self._timed_until_s:
            self.is_timed = False
            self.__class__ = DueCallbacks

    def end(self, now_s: float) -> None:
        """End the iteration, after its last callback."""
        if now_s - self._since_s >= _LONG_S:
            self._keep(now_s)
        self._running = None  # It may refer to much memory.

    def _keep(self, now_s: float) -> None:
        self.long.append((_name(self._running), now_s - self._since_s))


class _TimedCallbacks(DueCallbacks):
    """What the queue is while callbacks are timed: otherwise it has no method of its own that asyncio calls."""

    def popleft(self) -> asyncio.Handle:
        """Remove and return the next callback, which is called at once."""
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
        """Note a garbage collection, of whichever thread: it stops all of them."""
        self._collections.append((end_s, duration_s, generation))

    def threshold_s(self) -> float:
        """Return the duration from which on iterations are logged."""
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
        """Log an iteration of at least SLOW_S, which has ended; `before` was read when it began.

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
    """Return the name of the function, or of the task whose step it is."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        name = task.get_name()
        return f"task-{getattr(task.get_coro(), '__qualname__', name) if name.startswith(_UNNAMED) else name}"
    while isinstance(callback, partial):
        callback = callback.func
    return getattr(callback, "__qualname__", None) or type(callback).__qualname__


_UNNAMED = "Task-"
"""Prefix of the names that asyncio gives to tasks."""
