"""Searches values and names with a regular expression, within a time limit per value.

An expression without special characters is searched in the whole value, because its time is linear.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record


# A time limit for regular expressions.
#
# Python's `re` backtracks, so the time of some expressions grows exponentially with the text. It calls signal
# handlers in between, so the handler of a timer can end a search with an exception. `re` has loops without such
# calls, whose time is at most quadratic; callers bound the length of the text.


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
        """Return the result of `work`.  Raises Expired."""
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


PATTERN_CHARACTERS_MAX = 10_000
_SPECIAL = re.compile(r"[][\\.^$*+?{}|()]")


class SearchTooSlow(KctlError):
    """The search of one value, or of all names, has exceeded its time limit."""


class TimedExpression:
    """A regular expression whose compilation and use are ended after TIME_S_MAX.  Owner: the main thread."""

    def __init__(self, option: str, pattern: str) -> None:
        """`option` names the expression in errors.  Raises UsageError for an invalid expression."""
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise UsageError(f"{option}: more than {PATTERN_CHARACTERS_MAX:,} characters")
        self.option = option
        try:
            self.compiled = within_limit(lambda: re.compile(pattern))
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{option}: '{pattern}' is not a valid regular expression: {error}") from None
        except Expired:
            raise UsageError(f"{option}: the expression takes more than {TIME_S_MAX:g} s to compile") from None

    def within_limit(self, work: Callable[[re.Pattern[str]], T], what: str) -> T:
        """Return the result of `work` with the expression.

        Raises SearchTooSlow, in which `what` names the searched text.
        """
        try:
            return within_limit(lambda: work(self.compiled))
        except Expired:
            raise SearchTooSlow(
                f"{self.option}: the search of {what} takes more than {TIME_S_MAX:g} s; use an expression with fewer"
                " nested or adjacent repetitions"
            ) from None


class NamePattern:
    """A regular expression that names match as a whole."""

    def __init__(self, option: str, pattern: str) -> None:
        """Compile the expression; raise UsageError for an invalid one."""
        self._expression = TimedExpression(option, pattern)
        self._text = f"{option} '{pattern}'"

    def __str__(self) -> str:
        return self._text

    @property
    def compiled(self) -> re.Pattern[str]:
        """The expression, for searches without a time limit."""
        return self._expression.compiled

    def select(self, names: Iterable[str]) -> list[str]:
        """Return the matching names, in their order.  Raises SearchTooSlow if all together take too long."""
        return self._expression.within_limit(
            lambda compiled: [name for name in names if compiled.fullmatch(name)], "all names"
        )


class TimedSearch:
    """A regular expression on UTF-8 values; bytes that are not UTF-8 are surrogates.  Owner: the main thread."""

    def __init__(self, pattern: str) -> None:
        """Compile the expression; raise UsageError for an invalid one."""
        self.shortened = 0
        """Number of values of which only the first SEARCHED_BYTES_MAX bytes were searched without a match."""
        self._expression = TimedExpression("--grep", pattern)
        self._literal = None if _SPECIAL.search(pattern) else pattern.encode()

    def __call__(self, tp: TopicPartition, record: Record) -> bool:
        """Return whether the value contains a match; null values do not.  Raises SearchTooSlow."""
        value = record.value
        if value is None:
            return False
        if self._literal is not None:
            return self._literal in value
        text = value[:SEARCHED_BYTES_MAX].decode(errors="surrogateescape")
        is_found = self._expression.within_limit(
            lambda compiled: compiled.search(text) is not None, f"the value of {tp} at offset {record.offset}"
        )
        self.shortened += len(value) > SEARCHED_BYTES_MAX and not is_found
        return is_found
