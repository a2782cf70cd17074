"""Compares the records of one round: one slot per offset, so that its memory depends on the number of offsets only.

Pure.  Records and rows may be entered in any order and any number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kctl.tables.verification.record_hash import Hashes, at_offsets

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Span(NamedTuple):
    """The offsets [start, end) of a partition in one incarnation."""

    partition: int
    incarnation: int
    start: int
    end: int


class Difference(StrEnum):
    """How files differ from the topic at an offset."""

    MISSING = "missing"
    """The topic has a record, and the files have none."""
    TWICE = "twice"
    """The files have several rows."""
    DIFFERENT = "different"
    """Topic and files have one record each, with different contents."""
    UNEXPECTED = "unexpected"
    """The files have a row, and the topic has no record, or the offset was not exported."""


class Gap(NamedTuple):
    """Offsets that could not be compared."""

    start: int
    end: int
    reason: str


class Judgement(NamedTuple):
    """The result of one span."""

    span: Span
    topic_records: int
    table_records: int
    """Number of rows that were compared."""
    topic_hash: int
    table_hash: int
    differences: dict[Difference, int]
    first: tuple[int, Difference] | None
    uncompared: int
    """Rows that the topic no longer has."""
    gaps: list[Gap]
    """Where they are; at most as many as requested."""


class Ledger:
    """The slots of several spans, in ascending order of partitions, at most one per partition."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        widths = np.array([span.end - span.start for span in spans], np.int64)
        self._bases = np.cumsum(widths) - widths
        count = int(widths.sum())
        self._in_topic = np.zeros(count, np.bool_)
        self._is_aborted = np.zeros(count, np.bool_)
        self._is_unreadable = np.zeros(count, np.bool_)
        self._topic_hashes = np.zeros(count, np.uint64)
        self._rows = np.zeros(count, np.uint32)
        self._row_hashes = np.zeros(count, np.uint64)
        self._index = SpanIndex(spans)

    def add_records(self, number: int, offsets: Longs, hashes: Hashes) -> None:
        """Enter records of the topic, with offsets of the given span."""
        slots = offsets + (self._bases[number] - self._spans[number].start)
        self._in_topic[slots] = True
        self._topic_hashes[slots] = hashes

    def add_aborted(self, number: int, first: int, last: int) -> None:
        """Mark offsets of an aborted transaction."""
        span, base = self._spans[number], int(self._bases[number])
        low, high = max(first, span.start) - span.start, min(last + 1, span.end) - span.start
        if low < high:
            self._is_aborted[base + low : base + high] = True

    def add_unreadable(self, number: int, first: int, end: int) -> None:
        """Mark offsets [first, end) that the topic has in corrupt batches."""
        span, base = self._spans[number], int(self._bases[number])
        low, high = max(first, span.start) - span.start, min(end, span.end) - span.start
        if low < high:
            self._is_unreadable[base + low : base + high] = True

    def forget(self, number: int) -> None:
        """Remove the records of the topic in a span, which are read again."""
        slots = self._slots(number)
        self._in_topic[slots] = False
        self._is_aborted[slots] = False

    def add_rows(self, partitions: Longs, incarnations: Longs, offsets: Longs, hashes: Hashes) -> None:
        """Enter rows of files; those outside of the spans are left out."""
        numbers, is_inside = self._index.find(partitions, incarnations, offsets)
        numbers = numbers[is_inside]
        slots = self._bases[numbers] + offsets[is_inside] - self._index.starts[numbers]
        np.add.at(self._rows, slots, 1)
        np.add.at(self._row_hashes, slots, hashes[is_inside])

    def judge(self, number: int, *, log_start: int, allowed: AllowedGaps, gaps_max: int) -> Judgement:
        """Return the result of a span.  Offsets before `log_start` are not compared."""
        span, slots = self._spans[number], self._slots(number)
        offsets = np.arange(span.start, span.end, dtype=np.int64)
        in_topic, rows = self._in_topic[slots], self._rows[slots]
        is_held = offsets >= log_start
        row_only = is_held & ~in_topic & (rows > 0)
        gaps: list[Gap] = []
        is_gap = np.zeros(len(offsets), np.bool_)
        unreadable = is_held & self._is_unreadable[slots]
        row_only &= ~unreadable
        for reason, mask in (
            (UNREADABLE, unreadable),
            (ABORTED, row_only & self._is_aborted[slots] & allowed.aborted),
            (COMPACTED, row_only & ~self._is_aborted[slots] & allowed.compacted),
        ):
            is_gap |= mask
            gaps += [Gap(low + span.start, high + span.start, reason) for low, high in _runs(mask, gaps_max)]
        compared = is_held & ~is_gap
        found = {
            Difference.MISSING: compared & in_topic & (rows == 0),
            Difference.TWICE: compared & (rows > 1),
            Difference.DIFFERENT: compared
            & in_topic
            & (rows == 1)
            & (self._topic_hashes[slots] != self._row_hashes[slots]),
            Difference.UNEXPECTED: compared & ~in_topic & (rows == 1),
        }
        firsts = [(int(offsets[np.argmax(mask)]), kind) for kind, mask in found.items() if mask.any()]
        counted = compared & in_topic
        listed = compared & (rows > 0)
        return Judgement(
            span,
            int(counted.sum()),
            int(rows[compared].sum(dtype=np.uint64)),
            _sum(at_offsets(self._topic_hashes[slots][counted], offsets[counted])),
            _sum(at_offsets(self._row_hashes[slots][listed], offsets[listed])),
            {kind: int(mask.sum()) for kind, mask in found.items()},
            min(firsts, default=None),
            int(rows[is_gap].sum(dtype=np.uint64)),
            sorted(gaps)[:gaps_max],
        )

    def _slots(self, number: int) -> slice:
        span, base = self._spans[number], int(self._bases[number])
        return slice(base, base + span.end - span.start)


class AllowedGaps(NamedTuple):
    """Reasons for which the topic may lack records that were exported."""

    compacted: bool
    aborted: bool


COMPACTED = "removed by compaction"
ABORTED = "transaction aborted"
UNREADABLE = "corrupt batch in the topic"


class SpanIndex:
    """Finds the span of rows."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.starts = np.array([span.start for span in spans], np.int64)
        self._ends = np.array([span.end for span in spans], np.int64)
        self._partitions = np.array([span.partition for span in spans], np.int64)
        self._incarnations = np.array([span.incarnation for span in spans], np.int64)

    def find(self, partitions: Longs, incarnations: Longs, offsets: Longs) -> tuple[Longs, Mask]:
        """Return the number of each row's span, and whether the row is in it."""
        numbers, is_known = self._of(partitions)
        is_inside = (
            is_known
            & (incarnations == self._incarnations[numbers])
            & (offsets >= self.starts[numbers])
            & (offsets < self._ends[numbers])
        )
        return numbers, is_inside

    def outside(self, partitions: Longs, incarnations: Longs, offsets: Longs) -> Mask:
        """Return which rows are in no span, and not of an earlier incarnation of one."""
        numbers, is_inside = self.find(partitions, incarnations, offsets)
        is_earlier = self._of(partitions)[1] & (incarnations < self._incarnations[numbers])
        return ~is_inside & ~is_earlier

    def _of(self, partitions: Longs) -> tuple[Longs, Mask]:
        numbers = np.minimum(np.searchsorted(self._partitions, partitions), len(self._partitions) - 1)
        return numbers, self._partitions[numbers] == partitions


def _runs(mask: Mask, count_max: int) -> list[tuple[int, int]]:
    """Return the first runs of true values, as [start, end)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))[: 2 * count_max]
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _sum(hashes: Hashes) -> int:
    return int(hashes.sum(dtype=np.uint64)) if len(hashes) else 0
