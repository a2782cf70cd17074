"""Periodic checks of all objects of a coordinator, some at a time, so that no request waits for all of them.

A failure for one object is logged, and the others and the next check are not affected.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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


class Turns:
    """Walks over many objects: some objects of all walks in each turn of the loop.

    Walks that are begun while others are under way get their part of each turn, so that turns do not become longer.
    """

    def __init__(self, timer: Timer, per_turn: int) -> None:
        """`per_turn` is the sum of the results of `visit` after which a turn ends."""
        self._timer = timer
        self._per_turn = per_turn
        self._walks: deque[Iterator[int]] = deque()
        """Each visits an object when it is continued; while there are any, a turn is scheduled."""

    def visit(self, waiting: Iterator[T], visit: Callable[[T], int]) -> None:
        """Calls `visit` for the first objects now, unless others are under way, and for the rest in later turns.

        `visit` returns how many usual objects took as long as this one.
        """
        is_idle = not self._walks
        self._walks.append(visit_all((each,), visit) for each in waiting)
        if is_idle:
            self._run()

    def _run(self) -> None:
        left = self._per_turn
        while self._walks and left > 0:
            size = next(self._walks[0], None)
            if size is None:
                self._walks.popleft()
            else:
                left -= size
                self._walks.rotate(-1)
        if self._walks:
            self._timer.schedule(0, self._run)


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
