"""Searches values with a regular expression, within a time limit per value.

Python's `re` backtracks, so the time of some expressions grows exponentially with the value.  It calls signal handlers
in between, so the handler of a timer can end a search with an exception.  `re` has loops without such calls, whose time
is at most quadratic; a limit on the searched length bounds them.  An expression without special characters is searched
in the whole value, because its time is linear.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record

T = TypeVar("T")

PATTERN_CHARACTERS_MAX = 10_000
SEARCHED_BYTES_MAX = 64 << 10
"""A quadratic search of so many bytes takes about 1.5 s."""
SEARCH_S_MAX = 1.0
_SPECIAL = re.compile(r"[][\\.^$*+?{}|()]")


class SearchTooSlow(KctlError):
    """The search of one value has exceeded its time limit."""


class _Expired(Exception):
    """Leaves this module as another error."""


class TimedSearch:
    """A regular expression on UTF-8 values; bytes that are not UTF-8 are surrogates.  Owner: the main thread."""

    def __init__(self, pattern: str) -> None:
        """Raises UsageError for an invalid expression."""
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise UsageError(f"--grep: more than {PATTERN_CHARACTERS_MAX:,} characters")
        self.shortened = 0
        """Number of values of which only the first SEARCHED_BYTES_MAX bytes were searched without a match."""
        self._literal = None if _SPECIAL.search(pattern) else pattern.encode()
        self._is_searching = False
        signal.signal(signal.SIGALRM, self._expire)
        try:
            self._expression = self._within_limit(lambda: re.compile(pattern))
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"--grep: '{pattern}' is not a valid regular expression: {error}") from None
        except _Expired:
            raise UsageError(f"--grep: the expression takes more than {SEARCH_S_MAX:g} s to compile") from None

    def __call__(self, tp: TopicPartition, record: Record) -> bool:
        """Whether the value contains a match; null values do not.  Raises SearchTooSlow."""
        value = record.value
        if value is None:
            return False
        if self._literal is not None:
            return self._literal in value
        text = value[:SEARCHED_BYTES_MAX].decode(errors="surrogateescape")
        try:
            is_found = self._within_limit(lambda: self._expression.search(text)) is not None
        except _Expired:
            raise SearchTooSlow(
                f"--grep: the search of the value of {tp} at offset {record.offset} takes more than"
                f" {SEARCH_S_MAX:g} s; use an expression with fewer nested or adjacent repetitions"
            ) from None
        self.shortened += len(value) > SEARCHED_BYTES_MAX and not is_found
        return is_found

    def _within_limit(self, work: Callable[[], T]) -> T:
        """The result of `work`, which is ended by _Expired after SEARCH_S_MAX."""
        self._is_searching = True
        signal.setitimer(signal.ITIMER_REAL, SEARCH_S_MAX)
        try:
            return work()
        finally:
            self._is_searching = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _expire(self, _number: int, _frame: object) -> None:
        if self._is_searching:
            raise _Expired
