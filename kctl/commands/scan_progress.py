"""The progress of a read over known ranges of offsets: rate and time left, on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Self

from kctl.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.console import Console
    from kctl.model import TopicPartition


class ScanProgress:
    """A line with the offsets that have been read.  Use as a context manager."""

    def __init__(
        self,
        console: Console,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._bounds = bounds
        self._total = sum(end - start for start, end in bounds.values())
        self._clock = clock
        self._begun_s = clock()
        self._line = console.progress("read", self._total, unit="offsets")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.hide()

    def hide(self) -> None:
        """Erases the line before other output."""
        self._line.hide()

    def update(self, positions: Mapping[TopicPartition, int], *, found: int) -> None:
        """The positions of the partitions that are still read, and the number of selected records."""
        unread = sum(max(0, end - positions[tp]) for tp, (_, end) in self._bounds.items() if tp in positions)
        done = self._total - unread
        self._line.update(done, note=f"{found:,} selected{rate_note(done, self._total, self._clock() - self._begun_s)}")


def rate_note(done: int, total: int, elapsed_s: float) -> str:
    """`, 1,200/s, 5m left`; empty before there is a rate."""
    if done <= 0 or elapsed_s <= 0:
        return ""
    rate = done / elapsed_s
    left = f", {format_duration(round((total - done) / rate * 1000))} left" if total > done else ""
    return f", {rate:,.0f}/s{left}"
