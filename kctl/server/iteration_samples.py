"""Samples where the event loop is while an iteration takes long, for the log line about it.

A thread wakes up twice per threshold.  If the loop is in the same iteration as at the wake-up before, and is not
waiting for events, the thread keeps the stack of the loop's thread.  So each iteration of the threshold or more has a
sample, unless the interpreter lock was held all the time.  Iterations cost nothing; a wake-up costs about 15
microseconds.

Neither locals nor arguments are kept, because they may be secrets or records.

Owner: event loop; `_watch` runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from asyncio import events
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from kctl.limits import SAMPLED_FRAMES_MAX

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
        """The thread ends when `is_due` returns False."""
        self._iteration = iteration
        self._threshold_s = threshold_s
        self._is_due = is_due
        self._thread = threading.get_ident()
        self._is_stopping = threading.Event()
        self._watching: threading.Thread | None = None
        self._samples: tuple[float, list[str]] = (0.0, [])
        """The start of the iteration that was sampled last, and its stacks."""

    def start(self) -> None:
        """Takes samples from now on."""
        if self._watching is None or not self._watching.is_alive():
            self._watching = threading.Thread(target=self._watch, name="iteration-samples", daemon=True)
            self._watching.start()

    def stop(self) -> None:
        """Ends the thread."""
        if self._watching is not None:
            self._is_stopping.set()
            self._watching.join()
            self._watching = None

    def of(self, started_s: float) -> list[str]:
        """The stacks of the iteration that began then."""
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
        """Keeps the stack of the loop's thread, if it is still in that iteration and does not wait for events."""
        innermost = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        if innermost is None or innermost.f_code is _WAITING or self._iteration.started_s != started_s:
            return
        stack = stack_of(innermost)
        del innermost
        kept = self.of(started_s)
        self._samples = started_s, [*kept[: SAMPLES_MAX - 1], stack]


def stack_of(innermost: FrameType) -> str:
    """The functions that are running in a callback, with their lines: `module:line:function<module:line:function`."""
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
