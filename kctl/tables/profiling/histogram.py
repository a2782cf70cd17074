"""A histogram of numbers of any size in a fixed number of buckets.  Pure.

Numbers below 64 have a bucket each; above, each power of two is divided into 32 buckets, so a percentile is at most one
thirty-second above the true one.  Counts, smallest and largest number are exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kctl.tables.profiling.rows import Bar, Spread

Numbers = NDArray[np.int64]

EXACT_BITS = 6
_PARTS_BITS = EXACT_BITS - 1
_BUCKETS = (1 << EXACT_BITS) + ((63 - EXACT_BITS) << _PARTS_BITS)


BARS_MAX = 40


class Histogram:
    """Counts numbers that are not negative."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        """The sum of the numbers."""
        self.min = 0
        self.max = 0
        self._buckets = np.zeros(_BUCKETS, np.int64)

    def add(self, numbers: Numbers) -> None:
        """Count numbers of 0 to 2^63 - 1."""
        if not len(numbers):
            return
        low, high = int(numbers.min()), int(numbers.max())
        self.min = min(self.min, low) if self.count else low
        self.max = max(self.max, high)
        self.count += len(numbers)
        # A sum of 64-bit numbers may overflow; one of their halves with 32 bits does not.
        self.total += (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())
        self._buckets += np.bincount(_bucket_of(numbers), minlength=_BUCKETS)

    def percentile(self, share: float) -> int:
        """Return a number that at least this share of the numbers does not exceed; 0 without numbers."""
        if not self.count:
            return 0
        rank = max(1, -int(-share * self.count // 1))
        bucket = int(np.searchsorted(np.cumsum(self._buckets), rank))
        return max(self.min, min(self.max, _last_of(bucket)))

    def bars(self) -> list[Bar]:
        """Return at most BARS_MAX neighbouring bars, from the smallest to the largest number, zeros included.

        Their widths grow with the numbers, as those of the buckets do.
        """
        if not self.count:
            return []
        first, last = _bucket(self.min), _bucket(self.max)
        width = 1
        while last // width - first // width >= BARS_MAX:
            width *= 2
        starts = range(first // width * width, last + 1, width)
        return [
            Bar(
                _last_of(start - 1) + 1 if start else 0,
                _last_of(min(start + width, _BUCKETS) - 1),
                int(self._buckets[start : start + width].sum()),
            )
            for start in starts
        ]


def _bucket_of(numbers: Numbers) -> Numbers:
    exponents = np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1
    exponents -= (numbers >> np.clip(exponents, 0, 62)) == 0  # the conversion may round up to the next power of two
    shifts = np.maximum(exponents - _PARTS_BITS, 0)
    return np.where(numbers < 1 << EXACT_BITS, numbers, (shifts << _PARTS_BITS) + (numbers >> shifts))


def _bucket(number: int) -> int:
    return int(_bucket_of(np.array([number], np.int64))[0])


def _last_of(bucket: int) -> int:
    """Return the largest number of a bucket."""
    if bucket < 1 << EXACT_BITS:
        return bucket
    shift = (bucket >> _PARTS_BITS) - 1
    return ((bucket - (shift << _PARTS_BITS) + 1) << shift) - 1


def spread_of(histogram: Histogram) -> Spread:
    """Return the rows of a histogram."""
    if not histogram.count:
        return Spread(0, None, None, None, None, None, None, [])
    p50, p90, p99 = (histogram.percentile(share) for share in (0.5, 0.9, 0.99))
    mean = round(histogram.total / histogram.count, 3)
    return Spread(histogram.count, mean, histogram.min, p50, p90, p99, histogram.max, histogram.bars())
