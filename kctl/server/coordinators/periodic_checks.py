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


def visit_all(hosted: Iterable[T], visit: Callable[[T], None]) -> None:
    """Calls `visit` for each of them now."""
    for each in hosted:
        try:
            visit(each)
        except Exception:
            log.exception("cannot check an object, continuing with the next object=%r", each)


def taken(waiting: deque[T]) -> Iterator[T]:
    """Takes the objects out, the first one first."""
    while waiting:
        yield waiting.popleft()


def _one(_: object) -> int:
    return 1


def visit_in_turns(
    timer: Timer,
    waiting: Iterator[T],
    visit: Callable[[T], None],
    *,
    per_turn: int,
    size_of: Callable[[T], int] = _one,
) -> None:
    """Calls `visit` for the first objects, of this size in all, now and for the others in later turns of the loop."""
    left = per_turn
    for each in waiting:
        left -= size_of(each)
        visit_all((each,), visit)
        if left <= 0:
            next_turn = partial(visit_in_turns, timer, waiting, visit, per_turn=per_turn, size_of=size_of)
            timer.schedule(0, next_turn)
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
