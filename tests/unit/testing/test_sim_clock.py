"""Clocks that a test controls."""

from __future__ import annotations

import asyncio

from kctl.system.environment import Clock
from kctl.testing.sim_clock import START_MS, ManualClock, SimClock
from kctl.testing.sim_loop import SimLoop, simulate


def test_both_follow_the_loop() -> None:
    async def main(loop: SimLoop) -> None:
        clock: Clock = SimClock(loop.time)
        await asyncio.sleep(1.5)
        assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS + 1500, 1500)

    simulate(main, seed=1)


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop.time)
        await asyncio.sleep(1)
        clock.jump(-5000)
        assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS - 4000, 1000)

    simulate(main, seed=1)


def test_the_wall_clock_drifts_from_now_on() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop.time)
        await asyncio.sleep(100)
        clock.drift(10_000)
        assert clock.now_ms() == START_MS + 100_000
        await asyncio.sleep(100)
        assert clock.now_ms() == START_MS + 201_000
        assert clock.monotonic_ms() == 200_000

    simulate(main, seed=1)


def test_a_manual_clock_moves_when_advanced() -> None:
    clock = ManualClock(start_ms=10)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (15, 5)
    clock.jump(-10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5, 5)
