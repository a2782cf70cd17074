"""Counts and schedules the records that a load generator sends or receives.  Pure: callers pass the time in ns."""

from __future__ import annotations

from dataclasses import dataclass, field

# A histogram of latencies in constant memory. Pure.
#
# Buckets as in HdrHistogram: between two powers of two there are as many buckets of equal width, so that every value
# is known to within 1 %, from a microsecond to more than an hour.


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
        """Add a value; negative ones, as a clock that was set back gives, count as 0."""
        value_us = max(value_us, 0)
        self._counts[_bucket(min(value_us, VALUE_MAX))] += 1
        self._total_us += value_us
        self.count += 1
        self.max_us = max(self.max_us, value_us)

    def add(self, other: LatencyHistogram) -> None:
        """Add all values of another histogram."""
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
        """Return the quantile of this share, at most 1 % too large; None without values."""
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
        """Return (lowest value, highest value, count) in us, with four buckets between two powers of two; empty ones
        are left out.
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


NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """How much to send or receive, and how fast; None means no limit."""

    records: int | None
    duration_ns: int | None
    warmup_ns: int = 0
    """The warm-up; records before its end are not counted, and do not count towards the limits."""
    rate: int | None = None
    """Records per second."""


class Schedule:
    """When to send the next record: at a constant rate from the start, late ones at once."""

    def __init__(self, load: Load, start_ns: int) -> None:
        self._load = load
        self._start_ns = start_ns
        self._counted_from_ns = start_ns + load.warmup_ns
        self._sent = 0
        self._counted = 0

    def wait_ns(self, now_ns: int) -> int | None:
        """Return how long to wait before the next record; None if there is none."""
        load = self._load
        if load.records is not None and self._counted >= load.records:
            return None
        if load.duration_ns is not None and now_ns >= self._counted_from_ns + load.duration_ns:
            return None
        if load.rate is None:
            return 0
        return max(0, self._start_ns + self._sent * NS_PER_S // load.rate - now_ns)

    def sent(self, now_ns: int) -> None:
        """Count a record that has been sent."""
        self._sent += 1
        if now_ns >= self._counted_from_ns:
            self._counted += 1


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of a period."""

    elapsed_ns: int
    records: int
    bytes: int
    errors: int
    latencies: LatencyHistogram

    @property
    def records_per_s(self) -> float:
        """Records per second."""
        return self.records * NS_PER_S / self.elapsed_ns if self.elapsed_ns > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second."""
        return self.bytes * NS_PER_S / self.elapsed_ns if self.elapsed_ns > 0 else 0.0


@dataclass(slots=True)
class _Counts:
    records: int = 0
    bytes: int = 0
    errors: int = 0
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, other: _Counts) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.errors += other.errors
        self.latencies.add(other.latencies)

    def summary(self, elapsed_ns: int) -> Summary:
        return Summary(elapsed_ns, self.records, self.bytes, self.errors, self.latencies)


class Measurement:
    """Counts since the end of the warm-up, in total and since the last interval."""

    def __init__(self, start_ns: int, *, warmup_ns: int = 0, interval_ns: int = NS_PER_S) -> None:
        self.start_ns = start_ns
        self.counted_from_ns = start_ns + warmup_ns
        self.first_error: str | None = None
        self._interval_ns = interval_ns
        self._interval_start_ns = self.counted_from_ns
        self._end_ns = self.counted_from_ns
        self._counts = _Counts()
        self._total = _Counts()

    def add(self, size: int, now_ns: int, *, sent_ns: int | None = None) -> None:
        """Count a record, and its latency if it is known when it was sent."""
        if (now_ns if sent_ns is None else sent_ns) < self.counted_from_ns:
            return
        counts = self._counts
        counts.records += 1
        counts.bytes += size
        self._end_ns = now_ns
        if sent_ns is not None:
            counts.latencies.record((now_ns - sent_ns) // 1000)

    def fail(self, reason: str) -> None:
        """Count a record that was not written, also during the warm-up."""
        self._counts.errors += 1
        self.first_error = self.first_error or reason

    def interval(self, now_ns: int) -> Summary | None:
        """Return the counts since the last interval, if the next one is due."""
        if now_ns < self._interval_start_ns + self._interval_ns:
            return None
        found = self._counts.summary(now_ns - self._interval_start_ns)
        self._interval_start_ns = now_ns
        self._collect()
        return found

    def total(self) -> Summary:
        """Return all that was counted, until the last record."""
        self._collect()
        return self._total.summary(self._end_ns - self.counted_from_ns)

    def _collect(self) -> None:
        self._total.add(self._counts)
        self._counts = _Counts()
