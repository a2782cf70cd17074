"""The timing wheel against a sorted list: same expiries, never early, never lost."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.server.loop.timer import TIMERS_PER_ITERATION_MAX, WheelTimer
from kctl.server.loop.timing_wheel import Entry, TimingWheel
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-5, 300_000)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.integers(0, 20_000)),
    ),
    max_size=60,
)


@given(start_ms=st.integers(0, 1 << 40), steps=STEPS)
def test_expires_exactly_what_is_due(start_ms: int, steps: list[Step]) -> None:
    wheel: TimingWheel[int] = TimingWheel(start_ms)
    waiting: dict[int, Entry[int]] = {}
    now_ms, number = start_ms, 0
    for kind, value in steps:
        if kind == "add":
            waiting[number] = wheel.add(number, now_ms + value)
            number += 1
        elif kind == "cancel" and value in waiting:
            waiting.pop(value).cancel()
        elif kind == "advance":
            now_ms += value
            due = {item for item, entry in waiting.items() if entry.deadline_ms <= now_ms}
            assert set(wheel.advance(now_ms)) == due
            for item in due:
                del waiting[item]
        assert len(wheel) == len(waiting)


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=40))
def test_advancing_only_at_next_due_misses_no_timer_and_is_never_late(delays_ms: list[int]) -> None:
    """A timer that sleeps until next_due_ms expires each entry at its own millisecond."""
    wheel: TimingWheel[int] = TimingWheel(0)
    for delay_ms in delays_ms:
        wheel.add(delay_ms, delay_ms)
    expired: list[int] = []
    while (due_ms := wheel.next_due_ms()) is not None:
        for deadline_ms in wheel.advance(due_ms):
            assert deadline_ms == due_ms
            expired.append(deadline_ms)
    assert expired == sorted(delays_ms)


def test_cancelling_late_or_twice_does_nothing() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    entry = wheel.add("once", 10)
    assert wheel.advance(10) == ["once"]
    entry.cancel()
    entry.cancel()
    assert len(wheel) == 0


def test_expired_entries_are_returned_a_few_at_a_time_and_can_be_cancelled_meanwhile() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    entries = [wheel.add(number, 10) for number in range(5)]
    assert wheel.advance(10, 2) == [0, 1]
    assert len(wheel) == 3
    entries[0].cancel()
    entries[3].cancel()
    assert wheel.next_due_ms() == 10
    assert wheel.advance(11, 2) == [2, 4]
    assert wheel.next_due_ms() is None


def test_other_work_runs_between_callbacks_that_are_due_together() -> None:
    async def main(loop: SimLoop) -> None:
        timer = WheelTimer(SimClock(loop.time), loop)
        fired: list[int] = []
        for number in range(3 * TIMERS_PER_ITERATION_MAX):
            timer.schedule(10, partial(fired.append, number))
        counts = [0]
        while counts[-1] < 3 * TIMERS_PER_ITERATION_MAX:
            await asyncio.sleep(0.001 if not fired else 0)
            counts.append(len(fired))
        assert max(after - before for before, after in pairwise(counts)) == TIMERS_PER_ITERATION_MAX
        assert fired == sorted(fired)

    simulate(main, seed=1)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100_000)), min_size=1, max_size=30))
def test_timer_is_neither_early_nor_late_when_deadlines_are_added_in_any_order(waits: list[tuple[int, int]]) -> None:
    """Each callback is scheduled some time after the one before it."""

    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop.time)
        timer = WheelTimer(clock, loop)
        late_ms: list[int] = []

        def schedule(delay_ms: int) -> None:
            due_ms = clock.monotonic_ms() + delay_ms
            timer.schedule(delay_ms, lambda: late_ms.append(clock.monotonic_ms() - due_ms))

        for pause_ms, delay_ms in waits:
            await asyncio.sleep(pause_ms / 1000)
            schedule(delay_ms)
        await asyncio.sleep(101)
        assert late_ms == [pytest.approx(0, abs=1)] * len(waits)
        assert min(late_ms) >= 0

    simulate(main, seed=1)


def test_failing_callback_does_not_stop_the_others() -> None:
    async def main(loop: SimLoop) -> None:
        timer = WheelTimer(SimClock(loop.time), loop)
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        called: list[int] = []

        def fail() -> None:
            raise RuntimeError("a bug")

        timer.schedule(10, fail)
        timer.schedule(10, lambda: called.append(1))
        timer.schedule(20, lambda: called.append(2))
        await asyncio.sleep(1)
        assert called == [1, 2]
        assert len(failures) == 1

    simulate(main, seed=1)
