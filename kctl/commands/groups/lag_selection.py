"""Which rows of lag are shown, and in which order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from kctl.admin.lag_rules import Verdict
from kctl.commands.groups.lag_rows import AnyItem, LagItem, LagTotalItem
from kctl.commands.times import parse_duration_ms
from kctl.errors import UsageError
from kctl.integers import INT64_MAX, parse_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Sort = Literal["lag", "time", "verdict", "name"]


class Condition(NamedTuple):
    """The value of --lag: `>1000` compares records, `>5m` compares time."""

    compare: Callable[[float, float], bool]
    records: int | None
    time_ms: int | None

    def holds(self, item: AnyItem) -> bool:
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
    return Condition(compare, None, parse_duration_ms(found[2]))


def selected(items: Iterable[AnyItem], condition: Condition | None, sort: Sort) -> list[AnyItem]:
    """The rows with an error, and those that satisfy the condition, in this order."""
    shown = [item for item in items if item.error or condition is None or condition.holds(item)]
    return sorted(shown, key=lambda item: (item.error is None, *_sort_key(item, sort), *_name(item)))


def _sort_key(item: AnyItem, sort: Sort) -> tuple[int, ...]:
    lag = -1 if item.lag is None else item.lag
    match sort:
        case "lag":
            return (-lag,)
        case "time":
            # An unknown time may be a long one.
            unknown_first = item.lag is not None and item.time_lag_ms is None
            return (not unknown_first, -(item.time_lag_ms or 0))
        case "verdict":
            return (-Verdict[item.verdict] if item.verdict else 0, -lag)
        case "name":
            return ()


def _name(item: AnyItem) -> tuple[str, str, int, str]:
    number = item.partition or 0 if isinstance(item, LagItem) else 0
    return item.group or "", item.topic or "", number, item.member_id or ""


def summary(items: Sequence[AnyItem]) -> str:
    """One line with the sums of all rows, for the end of a table."""
    groups = len({item.group for item in items if item.group is not None})
    partitions = sum(item.partitions if isinstance(item, LagTotalItem) else 1 for item in items)
    lag = sum(item.lag or 0 for item in items)
    verdicts = [Verdict[item.verdict] for item in items if item.verdict]
    counts = (f"{verdicts.count(one)} {one.name}" for one in reversed(Verdict) if one in verdicts)
    return ", ".join([f"groups: {groups}, partitions: {partitions}, unread records: {lag:,}", *counts])
