"""Counts records by time, without knowing the times before.  Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kctl.tables.profiling.rows import TimeBucket

Numbers = NDArray[np.int64]
WIDTH_MS_MIN = 1_000
BUSY_SHARE = 0.99


class TimeCounts:
    """Exact counts in buckets of equal width; the width doubles while more than `size` buckets have records.

    Only buckets with records are stored, so a few records with wrong timestamps cost a bucket each, and no precision.
    """

    def __init__(self, size: int) -> None:
        self.width_ms = WIDTH_MS_MIN
        self._size = size
        self._numbers = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)

    def add(self, timestamps: Numbers) -> None:
        """Count timestamps."""
        numbers, counts = np.unique(timestamps // self.width_ms, return_counts=True)
        self._merge(np.concatenate((self._numbers, numbers)), np.concatenate((self._counts, counts)))
        while len(self._numbers) > self._size:
            self.width_ms *= 2
            self._merge(self._numbers // 2, self._counts)

    def buckets(self) -> list[TimeBucket]:
        """Return the buckets with records, in the order of time."""
        starts = (self._numbers * self.width_ms).tolist()
        return [TimeBucket(*pair) for pair in zip(starts, self._counts.tolist(), strict=True)]

    def _merge(self, numbers: Numbers, counts: Numbers) -> None:
        self._numbers, places = np.unique(numbers, return_inverse=True)
        self._counts = np.zeros(len(self._numbers), np.int64)
        np.add.at(self._counts, places, counts)


def bars(buckets: list[TimeBucket], width_ms: int, count_max: int) -> tuple[list[TimeBucket], int, int]:
    """Return (at most `count_max` neighbouring buckets, zeros included; their width; records outside of them).

    If the times are far apart, the buckets cover nearly all records (BUSY_SHARE), not the few at both ends.
    """
    if not buckets:
        return [], width_ms, 0
    first, last = 0, len(buckets) - 1
    span = (buckets[last].start_ms - buckets[first].start_ms) // width_ms + 1
    if span > 2 * len(buckets):
        first, last = _busy(buckets)
    chosen = buckets[first : last + 1]
    start = chosen[0].start_ms // width_ms
    span = chosen[-1].start_ms // width_ms - start + 1
    factor = -(-span // count_max)
    counts = [0] * -(-span // factor)
    for bucket in chosen:
        counts[(bucket.start_ms // width_ms - start) // factor] += bucket.records
    outside = sum(bucket.records for bucket in buckets) - sum(counts)
    width_ms *= factor
    base = chosen[0].start_ms
    return [TimeBucket(base + width_ms * index, count) for index, count in enumerate(counts)], width_ms, outside


def _busy(buckets: list[TimeBucket]) -> tuple[int, int]:
    """Return the first and last index of the buckets without as many records as may be left out at each end."""
    allowed = int(sum(bucket.records for bucket in buckets) * (1 - BUSY_SHARE) / 2)
    first, last = 0, len(buckets) - 1
    left = allowed
    while first < last and buckets[first].records <= left:
        left -= buckets[first].records
        first += 1
    left = allowed
    while last > first and buckets[last].records <= left:
        left -= buckets[last].records
        last -= 1
    # Neighbours that are as close as the shown buckets are to each other are no exceptions.
    near = buckets[last].start_ms - buckets[first].start_ms
    while first and buckets[first].start_ms - buckets[first - 1].start_ms <= near:
        first -= 1
    while last < len(buckets) - 1 and buckets[last + 1].start_ms - buckets[last].start_ms <= near:
        last += 1
    return first, last
