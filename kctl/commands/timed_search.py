"""Searches values with a regular expression, within a time limit per value.

An expression without special characters is searched in the whole value, because its time is linear.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kctl.commands.timed_work import SEARCHED_BYTES_MAX, TIME_S_MAX, Expired, within_limit
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record

PATTERN_CHARACTERS_MAX = 10_000
_SPECIAL = re.compile(r"[][\\.^$*+?{}|()]")


class SearchTooSlow(KctlError):
    """The search of one value has exceeded its time limit."""


class TimedSearch:
    """A regular expression on UTF-8 values; bytes that are not UTF-8 are surrogates.  Owner: the main thread."""

    def __init__(self, pattern: str) -> None:
        """Raises UsageError for an invalid expression."""
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise UsageError(f"--grep: more than {PATTERN_CHARACTERS_MAX:,} characters")
        self.shortened = 0
        """Number of values of which only the first SEARCHED_BYTES_MAX bytes were searched without a match."""
        self._literal = None if _SPECIAL.search(pattern) else pattern.encode()
        try:
            self._expression = within_limit(lambda: re.compile(pattern))
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"--grep: '{pattern}' is not a valid regular expression: {error}") from None
        except Expired:
            raise UsageError(f"--grep: the expression takes more than {TIME_S_MAX:g} s to compile") from None

    def __call__(self, tp: TopicPartition, record: Record) -> bool:
        """Whether the value contains a match; null values do not.  Raises SearchTooSlow."""
        value = record.value
        if value is None:
            return False
        if self._literal is not None:
            return self._literal in value
        text = value[:SEARCHED_BYTES_MAX].decode(errors="surrogateescape")
        try:
            is_found = within_limit(lambda: self._expression.search(text)) is not None
        except Expired:
            raise SearchTooSlow(
                f"--grep: the search of the value of {tp} at offset {record.offset} takes more than"
                f" {TIME_S_MAX:g} s; use an expression with fewer nested or adjacent repetitions"
            ) from None
        self.shortened += len(value) > SEARCHED_BYTES_MAX and not is_found
        return is_found
