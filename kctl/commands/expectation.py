"""The value of `--expect`: how many rows there should be.  Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from kctl.errors import UsageError
from kctl.integers import INT64_MAX, parse_integer

_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_EXPECTATION = re.compile(r"([<>=!]*)\s*([0-9]+)")


class Expectation(NamedTuple):
    """A condition on a number of rows."""

    text: str
    compare: Callable[[int, int], bool]
    limit: int

    def holds(self, rows: int) -> bool:
        """True if this number of rows is as expected."""
        return self.compare(rows, self.limit)


def parse_expectation(text: str) -> Expectation:
    """Read `3`, `>=1`, `<10` or `!=0`.  Raises UsageError."""
    found = _EXPECTATION.fullmatch(text.strip())
    if not found or found[1] not in _OPERATORS:
        raise UsageError(f"--expect takes a number of rows, such as 3, '>=1' or '!=0', not '{text}'")
    return Expectation(text.strip(), _OPERATORS[found[1]], parse_integer(found[2], "--expect", high=INT64_MAX))
