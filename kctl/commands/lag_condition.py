"""The value of --lag: a condition on the lag of rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kctl.commands.times import parse_duration_ms
from kctl.errors import UsageError
from kctl.integers import INT64_MAX, parse_integer

if TYPE_CHECKING:
    from collections.abc import Callable


class HasLag(Protocol):
    """A row with a lag in records and in time; None if unknown."""

    @property
    def lag(self) -> int | None: ...

    @property
    def time_lag_ms(self) -> int | None: ...


class Condition(NamedTuple):
    """The value of --lag: `>1000` compares records, `>5m` compares time."""

    compare: Callable[[float, float], bool]
    records: int | None
    time_ms: int | None

    def holds(self, item: HasLag) -> bool:
        """Whether the lag of the item is known and satisfies the condition."""
        value, bound = (item.lag, self.records) if self.records is not None else (item.time_lag_ms, self.time_ms)
        return value is not None and bound is not None and self.compare(value, bound)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
}


def parse_condition(text: str | None) -> Condition | None:
    """Reads `>1000`, `>=5m`, `=0`; None stays None.  Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(>=|<=|>|<|=)\s*(\S+)\s*", text)
    if found is None:
        raise UsageError(f"--lag takes a condition such as '>1000' (records) or '>5m' (time), not '{text}'")
    compare = _COMPARISONS[found[1]]
    if found[2].isdecimal():
        return Condition(compare, parse_integer(found[2], "the number of --lag", high=INT64_MAX), None)
    try:
        return Condition(compare, None, parse_duration_ms(found[2]))
    except UsageError as error:
        raise UsageError(f"--lag '{text}' compares with neither a number nor a time: {error}") from None
