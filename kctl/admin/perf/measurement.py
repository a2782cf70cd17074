"""Counts and schedules the records that a load generator sends or receives.  Pure: callers pass the time in ns."""

from __future__ import annotations

from dataclasses import dataclass, field

from kctl.admin.perf.histogram import LatencyHistogram

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """How much to send or receive, and how fast; None means no limit."""

    records: int | None
    duration_ns: int | None
    warmup_ns: int = 0
    """What is sent before is not counted, and does not count towards the limits."""
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
        """How long to wait before the next record; None if there is none."""
        load = self._load
        if load.records is not None and self._counted >= load.records:
            return None
        if load.duration_ns is not None and now_ns >= self._counted_from_ns + load.duration_ns:
            return None
        if load.rate is None:
            return 0
        return max(0, self._start_ns + self._sent * NS_PER_S // load.rate - now_ns)

    def sent(self, now_ns: int) -> None:
        """A record has been sent."""
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
        """Counts a record, and its latency if it is known when it was sent."""
        if (now_ns if sent_ns is None else sent_ns) < self.counted_from_ns:
            return
        counts = self._counts
        counts.records += 1
        counts.bytes += size
        self._end_ns = now_ns
        if sent_ns is not None:
            counts.latencies.record((now_ns - sent_ns) // 1000)

    def fail(self, reason: str) -> None:
        """Counts a record that was not written, also during the warm-up."""
        self._counts.errors += 1
        self.first_error = self.first_error or reason

    def interval(self, now_ns: int) -> Summary | None:
        """What was counted since the last interval, if it is time for the next one."""
        if now_ns < self._interval_start_ns + self._interval_ns:
            return None
        found = self._counts.summary(now_ns - self._interval_start_ns)
        self._interval_start_ns = now_ns
        self._collect()
        return found

    def total(self) -> Summary:
        """All that was counted, until the last record."""
        self._collect()
        return self._total.summary(self._end_ns - self.counted_from_ns)

    def _collect(self) -> None:
        self._total.add(self._counts)
        self._counts = _Counts()
