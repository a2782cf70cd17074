"""Which rows of lag are shown, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kctl.admin.lag_rules import Verdict
from kctl.commands.groups.lag_rows import AnyItem, LagItem, LagTotalItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.commands.lag_condition import Condition

Sort = Literal["lag", "time", "verdict", "name"]


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
    groups += sum(item.groups for item in items if isinstance(item, LagTotalItem) and item.group is None)
    partitions = sum(item.partitions if isinstance(item, LagTotalItem) else 1 for item in items)
    lag = sum(item.lag or 0 for item in items)
    verdicts = [Verdict[item.verdict] for item in items if item.verdict]
    counts = (f"{verdicts.count(one)} {one.name}" for one in reversed(Verdict) if one in verdicts)
    return ", ".join([f"groups: {groups}, partitions: {partitions}, unread records: {lag:,}", *counts])
