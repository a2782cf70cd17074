"""The port to the client that produces and consumes."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from kctl.admin.perf.measurement import Load, Measurement, Schedule
from kctl.client.producing.producer import ProducerSettings
from kctl.errors import UsageError
from kctl.limits import PERF_PAYLOAD_BYTES_MAX
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducedRecords:
    """The values of the test records, and the settings of their producer."""

    values: Iterator[bytes]
    settings: ProducerSettings


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One run of a client: how much it sends or receives, and where it counts that."""

    load: Load
    measured: Measurement
    report: Callable[[], None]
    """Called often; shows an interval when one is over, and raises KeyboardInterrupt after a signal."""
    until_signal: Callable[[Awaitable[None]], Coroutine[Any, Any, None]]
    """Awaits work on an event loop; a signal cancels it and raises KeyboardInterrupt."""

    def schedule(self) -> Schedule:
        """When to send or receive, from the start of the measurement."""
        return Schedule(self.load, self.measured.start_ns)


class LoadClient(Protocol):
    """Produces and consumes test records.  All methods block; a signal ends them within a second."""

    @property
    def name(self) -> str:
        """Name and version, which results show."""
        ...

    def produce(self, topic: str, records: ProducedRecords, run: LoadRun) -> None:
        """Write values by the schedule of the load, and wait for their acknowledgements.  Raises KctlError."""
        ...

    def consume(self, ranges: Mapping[TopicPartition, tuple[int, int]], run: LoadRun) -> None:
        """Read the partitions from and to these offsets, until the load is reached.  Raises KctlError."""
        ...

    def round_trips(self, ends: Mapping[TopicPartition, int], records: ProducedRecords, run: LoadRun) -> None:
        """Write one value at a time, and read it at the end of its partition.  Raises KctlError."""
        ...


# Values of test records: random bytes of given sizes, or the lines of a file. Callers pass `random`.


_BLOCK_BYTES = 1 << 20
"""Values are slices of a random block, because creating random bytes takes longer than sending them."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes from `low` to `high` bytes, all equally likely."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """Ranges of sizes, of which one is drawn by its weight."""

    ranges: tuple[SizeRange, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(0 <= range_.low <= range_.high for range_ in self.ranges):
            raise UsageError("a range of sizes must begin with the smaller size")
        if self.largest > PERF_PAYLOAD_BYTES_MAX:
            raise UsageError(f"a record can have at most {PERF_PAYLOAD_BYTES_MAX} bytes")
        if not any(self.weights):
            raise UsageError("all weights are 0")

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(range_.high for range_ in self.ranges)

    @property
    def mean(self) -> float:
        """The mean size."""
        weighted = zip(self.ranges, self.weights, strict=True)
        return sum((range_.low + range_.high) / 2 * weight for range_, weight in weighted) / sum(self.weights)


def random_values(sizes: SizeDistribution, random: Random) -> Iterator[bytes]:
    """Yield values of random bytes without end.

    They hardly compress; zstd and others see each value once per block.
    """
    block = random.randbytes(max(_BLOCK_BYTES, 2 * sizes.largest))
    bounds = list(itertools.accumulate(sizes.weights))
    while True:
        range_ = sizes.ranges[bisect.bisect_right(bounds, random.randrange(bounds[-1])) if len(bounds) > 1 else 0]
        size = range_.low if range_.low == range_.high else random.randint(range_.low, range_.high)
        start = random.randrange(len(block) - size + 1)
        yield block[start : start + size]


def values_of_lines(data: bytes, random: Random) -> Iterator[bytes]:
    """Return the lines of a file in random order, each as often as needed.  Raises UsageError if there is none."""
    lines: Sequence[bytes] = data.removesuffix(b"\n").split(b"\n") if data else []
    if not lines:
        raise UsageError("the payload file has no lines")
    return (lines[random.randrange(len(lines))] for _ in itertools.count())
