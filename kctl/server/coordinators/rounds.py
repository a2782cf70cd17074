"""Looks at everything that a coordinator hosts, some at a time, so that no request waits for all of them.

One visit that fails is logged, and neither the others nor the next round are left out.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from kctl.environment import Timer, TimerTask

log = logging.getLogger(__name__)

T = TypeVar("T")


def visit_all(hosted: Iterable[T], visit: Callable[[T], None]) -> None:
    """Visits each of them now."""
    for each in hosted:
        try:
            visit(each)
        except Exception:
            log.exception("event=visit_failed hosted=%r", each)


def visit_in_turns(timer: Timer, waiting: Iterator[T], visit: Callable[[T], None], *, per_turn: int) -> None:
    """Visits `per_turn` of those that wait now and the others in later turns of the loop."""
    some = list(islice(waiting, per_turn))
    visit_all(some, visit)
    if len(some) == per_turn:
        timer.schedule(0, partial(visit_in_turns, timer, waiting, visit, per_turn=per_turn))


class Rounds:
    """What is looked for again and again until `cancel`."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._due: dict[Callable[[], None], TimerTask] = {}

    def every(self, interval_ms: int, look: Callable[[], None]) -> None:
        """Looks for the first time when the interval is over."""

        def due() -> None:
            # Before the look, which may fail.
            self.every(interval_ms, look)
            look()

        self._due[look] = self._timer.schedule(interval_ms, due)

    def cancel(self) -> None:
        """No more rounds."""
        for task in self._due.values():
            task.cancel()
        self._due.clear()
