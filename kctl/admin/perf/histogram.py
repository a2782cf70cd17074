"""A histogram of latencies in constant memory.  Pure.

Buckets as in HdrHistogram: between two powers of two there are as many buckets of equal width, so that every value is
known to within 1 %, from a microsecond to more than an hour.
"""

from __future__ import annotations

_PRECISION_BITS = 7
"""128 buckets between two powers of two."""
_EXACT = 1 << _PRECISION_BITS
VALUE_MAX = (1 << 32) - 1
"""71 minutes in us; larger values count as this one."""
_SHOWN_BITS = 3
BUCKETS = (32 - _PRECISION_BITS + 1) * _EXACT


class LatencyHistogram:
    """Counts of values in us."""

    __slots__ = ("_counts", "_total_us", "count", "max_us")

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._total_us = 0
        self.count = 0
        self.max_us = 0

    def record(self, value_us: int) -> None:
        """Adds a value; negative ones, as a clock that was set back gives, count as 0."""
        value_us = max(value_us, 0)
        self._counts[_bucket(min(value_us, VALUE_MAX))] += 1
        self._total_us += value_us
        self.count += 1
        self.max_us = max(self.max_us, value_us)

    def add(self, other: LatencyHistogram) -> None:
        """Adds all values of another histogram."""
        for index, count in enumerate(other._counts):
            if count:
                self._counts[index] += count
        self._total_us += other._total_us
        self.count += other.count
        self.max_us = max(self.max_us, other.max_us)

    @property
    def mean_us(self) -> float | None:
        """The mean of the values; None without values."""
        return self._total_us / self.count if self.count else None

    def quantile_us(self, share: float) -> int | None:
        """The quantile of this share, at most 1 % too large; None without values."""
        if not self.count:
            return None
        rank = max(1, -int(-share * self.count // 1))
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return min(_upper(index), self.max_us)
        return self.max_us

    def buckets(self) -> list[tuple[int, int, int]]:
        """(lowest value, highest value, count) in us, with four buckets between two powers of two; empty ones are left
        out.
        """
        found: dict[int, int] = {}
        for index, count in enumerate(self._counts):
            if count:
                low = _lower(index)
                shift = max(0, low.bit_length() - _SHOWN_BITS)
                low = low >> shift << shift
                found[low] = found.get(low, 0) + count
        return [
            (low, low + (1 << max(0, low.bit_length() - _SHOWN_BITS)) - 1, count)
            for low, count in sorted(found.items())
        ]


def _bucket(value: int) -> int:
    """Small values have buckets of their own, larger ones are grouped by their highest bits."""
    shift = max(0, value.bit_length() - _PRECISION_BITS - 1)
    return (shift << _PRECISION_BITS) + (value >> shift)


def _lower(index: int) -> int:
    shift = max(0, (index >> _PRECISION_BITS) - 1)
    return (index - (shift << _PRECISION_BITS)) << shift


def _upper(index: int) -> int:
    shift = max(0, (index >> _PRECISION_BITS) - 1)
    return _lower(index) + (1 << shift) - 1
