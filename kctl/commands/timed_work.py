"""A time limit for regular expressions.

Python's `re` backtracks, so the time of some expressions grows exponentially with the text.  It calls signal handlers
in between, so the handler of a timer can end a search with an exception.  `re` has loops without such calls, whose time
is at most quadratic; callers bound the length of the text.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIME_S_MAX = 1.0
SEARCHED_BYTES_MAX = 64 << 10
"""A search with quadratic time takes about 1.5 s for this number of bytes."""


class Expired(Exception):
    """The work took longer than TIME_S_MAX."""


class _Timer:
    """The timer of the process. Owner: the main thread."""

    def __init__(self) -> None:
        self._is_working = False

    def run(self, work: Callable[[], T]) -> T:
        """The result of `work`.  Raises Expired."""
        signal.signal(signal.SIGALRM, self._expire)
        self._is_working = True
        signal.setitimer(signal.ITIMER_REAL, TIME_S_MAX)
        try:
            return work()
        finally:
            self._is_working = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _expire(self, _number: int, _frame: object) -> None:
        if self._is_working:
            raise Expired


within_limit = _Timer().run
"""Calls a function; raises Expired after TIME_S_MAX."""
