"""Sharing of the event loop among connections, and measurement of its iterations."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial

from kctl.server.loop_lag import BOUNDS_MS, Histogram, MeasuredEventLoop
from kctl.server.network.turns import Turns


class Busy:
    """A connection that always has more requests; each turn takes a few milliseconds of processor time."""

    is_urgent = False

    def __init__(self, name: str, turns: Turns, taken: list[str]) -> None:
        self.name, self._turns, self._taken = name, turns, taken
        self.is_open = True

    def take_turn(self) -> None:
        if not self.is_open:
            return
        self._taken.append(self.name)
        end_s = time.monotonic() + 0.003
        while time.monotonic() < end_s:
            pass
        self._turns.queue(self)


def test_busy_connections_take_turns_one_after_the_other_and_timers_run_in_between() -> None:
    taken: list[str] = []
    timer_ran_after: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns = Turns(loop)
        busy = [Busy(name, turns, taken) for name in "abcdefgh"]
        for connection in busy:
            turns.queue(connection)
        while len(taken) < 80:
            before = len(taken)
            await asyncio.sleep(0)
            timer_ran_after.append(len(taken) - before)
        for connection in busy:
            connection.is_open = False

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())
    counts = Counter(taken[:80])
    assert max(counts.values()) == min(counts.values()) == 10
    # A slice of 10 ms holds at most 4 turns of 3 ms, never all 8.
    assert max(timer_ran_after) <= 4


def test_a_turn_is_queued_once_the_iteration_has_used_up_its_slice() -> None:
    ran_at_once: list[bool] = []

    class Quick:
        is_urgent = False

        def take_turn(self) -> None:
            pass

    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        await asyncio.sleep(0)
        ran_at_once.append(turns.take_or_queue(Quick()))
        end_s = time.monotonic() + 0.011
        while time.monotonic() < end_s:
            pass
        ran_at_once.append(turns.take_or_queue(Quick()))

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())
    assert ran_at_once[1] is False


def test_the_loop_counts_its_long_iterations() -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        end_s = time.thread_time() + 0.03
        while time.thread_time() < end_s:
            pass
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=partial(MeasuredEventLoop, measures_cpu=True)) as runner:
        runner.run(main())
        loop = runner.get_loop()
        assert isinstance(loop, MeasuredEventLoop)
        assert loop.lag.cpu.above(20) == 1
        assert loop.lag.cpu.max_ms >= 30
        assert loop.lag.wall.above(20) >= 1
        assert "cpu_above_20_ms=1" in str(loop.lag)


def test_a_histogram_counts_each_duration_in_one_bucket() -> None:
    histogram = Histogram()
    for bound in BOUNDS_MS:
        histogram.observe(bound)
        histogram.observe(bound + 0.5)
    assert histogram.count == 2 * len(BOUNDS_MS)
    assert histogram.above(20) == 2 * len(BOUNDS_MS) - 2 * BOUNDS_MS.index(20) - 1
    assert histogram.max_ms == BOUNDS_MS[-1] + 0.5


def test_the_control_plane_does_not_queue_behind_other_connections() -> None:
    taken: list[str] = []

    class Named:
        def __init__(self, name: str, *, is_urgent: bool) -> None:
            self.name, self.is_urgent = name, is_urgent

        def take_turn(self) -> None:
            taken.append(self.name)

    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        for name in "ab":
            turns.queue(Named(name, is_urgent=False))
        assert not turns.take_or_queue(Named("data", is_urgent=False))
        assert turns.take_or_queue(Named("control", is_urgent=True))
        while len(taken) < 4:  # noqa: ASYNC110 - turns are taken in later iterations
            await asyncio.sleep(0)

    asyncio.run(main())
    assert taken == ["control", "a", "b", "data"]
