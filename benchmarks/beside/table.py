"""The table of all rows: medians, ranges and ratios, as Markdown and as JSON.  Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LOWER_IS_BETTER = frozenset({"CPU s/GB", "CPU us", "p50 ms", "p99 ms", "MB of memory", "s", "CPU s", "idle CPU ms/s"})
CLIENT_IS_THE_LIMIT = 0.9
"""Share of a processor that the client uses, from which on it limits throughput."""


class Sample(NamedTuple):
    """One measurement of one row."""

    row: str
    unit: str
    side: str
    value: float
    client_share: float
    """Processor time of the client by the time that passed; 0 where throughput is not measured."""


class Line(NamedTuple):
    """A row of the table, in one unit."""

    row: str
    unit: str
    values: Mapping[str, Sequence[float]]
    """The measurements of each side."""
    limited_by_client: tuple[str, ...]
    """The sides that the client limited."""

    def ratio(self, ours: str, theirs: str) -> float | None:
        """How many times better the median of `ours` is; None where one of them is missing or zero."""
        if not self.values.get(ours) or not self.values.get(theirs):
            return None
        mine, other = statistics.median(self.values[ours]), statistics.median(self.values[theirs])
        if mine <= 0 or other <= 0:
            return None
        return other / mine if self.unit in LOWER_IS_BETTER else mine / other


def lines_of(samples: Sequence[Sample]) -> list[Line]:
    """The rows in the order in which they were measured first."""
    lines = []
    for row, unit in dict.fromkeys((sample.row, sample.unit) for sample in samples):
        own = [sample for sample in samples if (sample.row, sample.unit) == (row, unit)]
        sides = dict.fromkeys(sample.side for sample in own)
        shares = {
            side: statistics.median(sample.client_share for sample in own if sample.side == side) for side in sides
        }
        is_throughput = unit not in LOWER_IS_BETTER
        limited = tuple(side for side in sides if is_throughput and shares[side] >= CLIENT_IS_THE_LIMIT)
        values = {side: [sample.value for sample in own if sample.side == side] for side in sides}
        lines.append(Line(row, unit, values, limited))
    return lines


def markdown(lines: Sequence[Line], sides: Sequence[str], conditions: Mapping[str, object]) -> str:
    """The table; the first side is compared with each of the others."""
    ours, *others = sides
    heads = ["what", "unit", *sides, *(f"{ours} / {other}" for other in others), "limit"]
    text = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for line in lines:
        ratios = [line.ratio(ours, other) for other in others]
        cells = [line.row, line.unit]
        cells += [_shown(line.values.get(side, ())) for side in sides]
        cells += ["" if ratio is None else f"{ratio:.2f}x" for ratio in ratios]
        cells.append(f"client ({', '.join(line.limited_by_client)})" if line.limited_by_client else "")
        text.append("| " + " | ".join(cells) + " |")
    notes = "; ".join(f"{name}: {value}" for name, value in conditions.items())
    note = "Medians with the range of all runs; a ratio above 1 is in favour of the first. "
    return "\n".join([*text, "", f"{note}{notes}.", ""])


def document(lines: Sequence[Line], sides: Sequence[str], conditions: Mapping[str, object]) -> dict[str, object]:
    """The table with all measurements, to be written as JSON."""
    ours, *others = sides
    return {
        "conditions": dict(conditions),
        "rows": [
            {
                "what": line.row,
                "unit": line.unit,
                "runs": {side: [round(value, 4) for value in values] for side, values in line.values.items()},
                "medians": {side: round(statistics.median(values), 4) for side, values in line.values.items()},
                "ratios": {other: line.ratio(ours, other) for other in others},
                "limited_by_client": list(line.limited_by_client),
            }
            for line in lines
        ],
    }


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "-"
    median = _short(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
