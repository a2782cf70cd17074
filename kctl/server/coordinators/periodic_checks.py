"""Periodic checks of all objects of a coordinator, some at a time, so that no request waits for all of them.

A failure for one object is logged, and the others and the next check are not affected.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from kctl.environment import Timer, TimerTask

log = logging.getLogger(__name__)

T = TypeVar("T")


def visit_all(hosted: Iterable[T], visit: Callable[[T], int]) -> int:
    """Calls `visit` for each of them now; returns the sum of its results."""
    size = 0
    for each in hosted:
        try:
            size += visit(each)
        except Exception:
            log.exception("cannot check an object, continuing with the next object=%r", each)
            size += 1
    return size


def taken(waiting: deque[T]) -> Iterator[T]:
    """Takes the objects out, the first one first."""
    while waiting:
        yield waiting.popleft()


def visit_in_turns(timer: Timer, waiting: Iterator[T], visit: Callable[[T], int], *, per_turn: int) -> None:
    """Calls `visit` for the first objects now and for the others in later turns of the loop.

    `visit` returns how many usual objects took as long as this one; `per_turn` of them are visited in a turn.
    """
    left = per_turn
    for each in waiting:
        left -= visit_all((each,), visit)
        if left <= 0:
            timer.schedule(0, partial(visit_in_turns, timer, waiting, visit, per_turn=per_turn))
            return


class PeriodicChecks:
    """Periodic checks, until `cancel`."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._due: dict[Callable[[], None], TimerTask] = {}

    def every(self, interval_ms: int, check: Callable[[], None]) -> None:
        """Calls `check` after each interval, for the first time when the first interval has passed."""

        def due() -> None:
            # Scheduled before the check, which may fail.
            self.every(interval_ms, check)
            check()

        self._due[check] = self._timer.schedule(interval_ms, due)

    def cancel(self) -> None:
        """Cancels all periodic checks."""
        for task in self._due.values():
            task.cancel()
        self._due.clear()
