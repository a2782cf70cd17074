"""Measures how long the event loop is busy before it serves sockets and timers again.

Every iteration of the loop is measured in wall time, as clients wait.  The measurement is in the selector,
between the end of one wait and the start of the next.  Optionally the CPU time of the loop's thread is measured too: it
does not depend on the load of the machine, but reading it costs a system call per iteration.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from bisect import bisect_left
from time import monotonic
from typing import Any, Protocol

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Upper bounds of the histogram's buckets; one more bucket counts larger values."""


class Histogram:
    """A histogram of durations."""

    __slots__ = ("counts", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.max_ms = 0.0
        """The longest duration above the first bound; 0 if there was none."""
        self.sum_ms = 0.0

    def reset(self) -> None:
        """Removes all observations."""
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.max_ms = self.sum_ms = 0.0

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def observe(self, duration_ms: float) -> None:
        """Adds one duration."""
        self.sum_ms += duration_ms
        if duration_ms <= BOUNDS_MS[0]:
            self.counts[0] += 1
            return
        self.counts[bisect_left(BOUNDS_MS, duration_ms)] += 1
        self.max_ms = max(self.max_ms, duration_ms)

    def percentile_ms(self, share: float) -> float:
        """The bound below which this share of the observations is, rounded up to one of BOUNDS_MS or the maximum."""
        left = self.count * share
        for bound_ms, count in zip(BOUNDS_MS, self.counts, strict=False):
            left -= count
            if left <= 0:
                return float(bound_ms)
        return self.max_ms

    def above(self, bound_ms: int) -> int:
        """The number of observations above one of BOUNDS_MS."""
        return sum(self.counts[BOUNDS_MS.index(bound_ms) + 1 :])


class LoopLag:
    """The measurements since the broker has served clients: the start is not interrupted for anybody."""

    def __init__(self) -> None:
        self.wall = Histogram()
        self.cpu = Histogram()

    def __str__(self) -> str:
        """The log form: `iterations=... wall_p99.9_ms=... wall_max_ms=... wall_above_20_ms=...`, and the same for
        `cpu` if it was measured.
        """
        kinds = {"wall": self.wall, "cpu": self.cpu}
        figures = [
            f"{kind}_p99.9_ms={each.percentile_ms(0.999):.1f} {kind}_max_ms={each.max_ms:.1f} "
            f"{kind}_above_20_ms={each.above(20)}"
            for kind, each in kinds.items()
            if each.count
        ]
        return " ".join([f"iterations={self.wall.count}", *figures])

    def reset(self) -> None:
        """Removes all observations, of both clocks."""
        self.wall.reset()
        self.cpu.reset()


class _MeasuringSelector(selectors.DefaultSelector):
    """Measures the time between two calls of `select`."""

    def __init__(self, *, measures_cpu: bool) -> None:
        super().__init__()
        self.lag = LoopLag()
        self.started_s = monotonic()
        self._measures_cpu = measures_cpu
        self._cpu_started_s = time.thread_time()

    def select(self, timeout: float | None = None) -> Any:
        self.lag.wall.observe((monotonic() - self.started_s) * 1000)
        if self._measures_cpu:
            cpu_s = time.thread_time()
            self.lag.cpu.observe((cpu_s - self._cpu_started_s) * 1000)
            self._cpu_started_s = cpu_s
        ready = super().select(timeout)
        self.started_s = monotonic()
        return ready


class MeasuredEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with the measurements in `lag`."""

    def __init__(self, *, measures_cpu: bool = False) -> None:
        self._measuring = _MeasuringSelector(measures_cpu=measures_cpu)
        super().__init__(self._measuring)
        self.time = monotonic  # type: ignore[method-assign] # As asyncio's method, which is a call more.

    @property
    def lag(self) -> LoopLag:
        """The measurements of the iterations."""
        return self._measuring.lag

    @property
    def iteration(self) -> Iteration:
        """The current iteration, and later ones in their turn."""
        return self._measuring


class Iteration(Protocol):
    """The current iteration of a loop."""

    @property
    def started_s(self) -> float:
        """Its start, in the loop's time."""
        ...


class _UnmeasuredIteration:
    """Iterations of a loop without measurements: each starts now."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def started_s(self) -> float:
        return self._loop.time()


def iteration_of(loop: asyncio.AbstractEventLoop) -> Iteration:
    """The current iteration of the loop; for loops without measurements, one that starts now."""
    return loop.iteration if isinstance(loop, MeasuredEventLoop) else _UnmeasuredIteration(loop)
