"""Measures how long the event loop is busy before it serves sockets and timers again."""

from __future__ import annotations

import asyncio
import selectors
from bisect import bisect_left
from collections.abc import Callable
from math import inf
from time import monotonic, thread_time
from typing import Any

from kctl.limits import Subject, bound
from kctl.server.loop.slow_iterations import (
    SLOW_S,
    DueCallbacks,
    Iteration,
    IterationSamples,
    SlowIterations,
    ThreadClocks,
)

READY_SOCKETS_MAX = bound(
    Subject.CONNECTIONS,
    "sockets with an event that are served in one iteration of the event loop",
    200,
    "sockets",
    on_excess="the others are served in the next iterations, in turn",
)
"""Closing a connection takes 0.02 ms: 5,000 clients that leave at once would take 0.1 s."""


# Measures how long the event loop is busy before it serves sockets and timers again.
#
# Every iteration of the loop is measured in wall time, as clients wait. The measurement is in the selector, between
# the end of one wait and the start of the next. Optionally the CPU time is measured too: it does not depend on the
# load of the machine, but reading it costs system calls in each iteration.
#
# kctl/server/loop/slow_iterations.py logs what a long iteration did.
#
# Owner: event loop.


BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Upper bounds of the histogram's buckets; one more bucket counts larger values."""
_READING_INTERVAL_S = 0.005
"""The clocks of thread and process are read this often at most, unless the CPU time is measured.  The figures of a long
iteration may include so much of those before it.
"""


class Histogram:
    """A histogram of durations."""

    __slots__ = ("counts", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.max_ms = 0.0
        """The longest duration above the first bound; 0 if there was none."""
        self.sum_ms = 0.0

    def reset(self) -> None:
        """Remove all observations."""
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.max_ms = self.sum_ms = 0.0

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def observe(self, duration_ms: float) -> None:
        """Add one duration."""
        self.sum_ms += duration_ms
        if duration_ms <= BOUNDS_MS[0]:
            self.counts[0] += 1
            return
        self.counts[bisect_left(BOUNDS_MS, duration_ms)] += 1
        self.max_ms = max(self.max_ms, duration_ms)

    def percentile_ms(self, share: float) -> float:
        """Return the bound below which this share of the observations is, rounded up to one of BOUNDS_MS or the
        maximum.
        """
        left = self.count * share
        for bound_ms, count in zip(BOUNDS_MS, self.counts, strict=False):
            left -= count
            if left <= 0:
                return float(bound_ms)
        return self.max_ms

    def above(self, bound_ms: int) -> int:
        """Return the number of observations above one of BOUNDS_MS."""
        return sum(self.counts[BOUNDS_MS.index(bound_ms) + 1 :])


class LoopLag:
    """The measurements since the broker began to serve clients; iterations during its start delay no client."""

    def __init__(self) -> None:
        self.wall = Histogram()
        self.cpu = Histogram()
        self.slow = SlowIterations()

    def __str__(self) -> str:
        """Return the log form: `iterations=... wall_p99.9_ms=... wall_max_ms=... wall_above_20_ms=...`, and the same
        for `cpu` if it was measured.
        """
        kinds = {"wall": self.wall, "cpu": self.cpu}
        figures = [
            f"{kind}_p99.9_ms={durations.percentile_ms(0.999):.1f} {kind}_max_ms={durations.max_ms:.1f} "
            f"{kind}_above_20_ms={durations.above(20)}"
            for kind, durations in kinds.items()
            if durations.count
        ]
        return " ".join([f"iterations={self.wall.count}", *figures])

    def reset(self) -> None:
        """Remove all observations, of both clocks."""
        self.wall.reset()
        self.cpu.reset()


class _SomeReady:
    """An epoll object that reports a bounded number of sockets; those it has reported come last the next time."""

    def __init__(self, epoll: Any) -> None:
        self._poll = epoll.poll
        self.register = epoll.register
        self.unregister = epoll.unregister
        self.modify = epoll.modify
        self.fileno = epoll.fileno
        self.close = epoll.close

    def poll(self, timeout: float, _events_max: int) -> list[tuple[int, int]]:
        """Wait for events, of READY_SOCKETS_MAX sockets at most."""
        ready: list[tuple[int, int]] = self._poll(timeout, READY_SOCKETS_MAX)
        return ready


class _MeasuringSelector(selectors.DefaultSelector):
    """Measures the time between two calls of `select`."""

    def __init__(self, due: DueCallbacks, *, measures_cpu: bool) -> None:
        super().__init__()
        if hasattr(selectors, "EpollSelector"):  # kqueue, of macOS, reports all.
            self._selector: Any = _SomeReady(self._selector)
        self.lag = LoopLag()
        self.started_s = monotonic()
        self._due = due
        self._measures_cpu = measures_cpu
        self._reading_interval_s = 0.0 if measures_cpu else _READING_INTERVAL_S
        if measures_cpu:
            self.lag.slow.info_s = SLOW_S
        self._clocks = ThreadClocks()
        self.samples = IterationSamples(self, self.lag.slow.threshold_s, self._needs_samples)
        self._regular: Callable[[], None] = _nothing
        self._interval_s = self._regular_due_s = inf
        self.restart()

    def restart(self) -> None:
        """Measure from now on, as if an iteration began now."""
        self.lag.reset()
        self.started_s = self._read_s = monotonic()
        self._due.begin(self.started_s)
        self._reading = self._clocks.read()

    def run_regularly(self, call: Callable[[], None], interval_s: float) -> None:
        """See MeasuredEventLoop."""
        self._regular, self._interval_s, self._regular_due_s = call, interval_s, 0.0

    def select(self, timeout: float | None = None) -> Any:
        now_s = monotonic()
        if now_s >= self._regular_due_s:
            self._regular()
            now_s = monotonic()
            self._regular_due_s = now_s + self._interval_s
        busy_s = now_s - self.started_s
        due = self._due
        if due.is_timed:
            due.end(now_s)
        self.lag.wall.observe(busy_s * 1000)
        if self._measures_cpu:
            self.lag.cpu.observe((thread_time() - self._reading.thread_s) * 1000)
        if busy_s >= SLOW_S:
            self.lag.slow.report(self.started_s, busy_s, self._reading, self._clocks.read, due, self.samples.of)
            due.time(now_s)
            self.sample()
        ready = super().select(timeout)
        self.started_s = now_s = monotonic()
        if due.is_timed:
            due.begin(now_s)
        if now_s - self._read_s >= self._reading_interval_s:
            self._read_s = now_s
            self._reading = self._clocks.read()
        return ready

    def sample(self) -> None:
        """Take samples from now on, if a long iteration is logged and another one is likely."""
        if self.lag.slow.is_on and self._needs_samples():
            self.samples.start()

    def _needs_samples(self) -> bool:
        return self._due.is_timed or self.lag.slow.threshold_s() <= SLOW_S

    def close(self) -> None:
        super().close()
        self.samples.stop()
        self._clocks.close()


class MeasuredEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with the measurements in `lag`."""

    def __init__(self, *, measures_cpu: bool = False) -> None:
        due = DueCallbacks(monotonic)
        self._measuring = _MeasuringSelector(due, measures_cpu=measures_cpu)
        super().__init__(self._measuring)
        self._ready = due  # asyncio's queue of callbacks, from which it takes each before it calls it.
        self.time = monotonic  # type: ignore[method-assign] # As asyncio's method, which is a call more.

    @property
    def lag(self) -> LoopLag:
        """The measurements of the iterations."""
        return self._measuring.lag

    def restart_measurements(self) -> None:
        """Forget all measurements, also of this iteration; long iterations are logged from now on."""
        self._measuring.restart()
        self.lag.slow.is_on = True
        self._measuring.sample()

    def run_between_iterations(self, call: Callable[[], None], interval_s: float) -> None:
        """Call a function at the end of iterations, unless less than `interval_s` have passed since the last call.

        Unlike a timer, this does not wake an idle loop.  Its time is part of the iteration.
        """
        self._measuring.run_regularly(call, interval_s)

    @property
    def iteration(self) -> Iteration:
        """Describes the iteration that is running whenever it is read."""
        return self._measuring


def _nothing() -> None:
    """Do nothing, between iterations until something is set; it is never due."""


class _UnmeasuredIteration:
    """Iterations of a loop without measurements: each starts now."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def started_s(self) -> float:
        return self._loop.time()


def iteration_of(loop: asyncio.AbstractEventLoop) -> Iteration:
    """Return the current iteration of the loop; for loops without measurements, one that starts now."""
    return loop.iteration if isinstance(loop, MeasuredEventLoop) else _UnmeasuredIteration(loop)
