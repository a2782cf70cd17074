"""Sharing of the event loop among connections, and measurement of its iterations."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from kctl.server.loop.lag import BOUNDS_MS, Histogram, MeasuredEventLoop
from kctl.server.network.connections import turns as turns_module
from kctl.server.network.connections.turns import RECEIVED_PER_ITERATION_MAX, URGENT_RECEIVED_PER_ITERATION_MAX, Turns


@pytest.mark.parametrize("is_urgent", [False, True], ids=["data plane", "control plane"])
def test_a_turn_is_queued_once_the_iteration_has_used_up_its_slice(*, is_urgent: bool) -> None:
    ran_at_once: list[bool] = []

    class Quick:
        share_used_until_s = 0.0
        had_more = False

        def __init__(self) -> None:
            self.is_urgent = is_urgent

        def take_turn(self) -> bool:
            return False

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


def test_connections_receive_until_the_bytes_or_the_time_of_an_iteration_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        monkeypatch.setattr(turns_module, "_SLICE_S", 3600.0)
        turns.received = RECEIVED_PER_ITERATION_MAX - 1
        assert turns.may_receive(is_urgent=False)
        turns.received = RECEIVED_PER_ITERATION_MAX
        assert not turns.may_receive(is_urgent=False)
        assert turns.may_receive(is_urgent=True)
        turns.received = URGENT_RECEIVED_PER_ITERATION_MAX
        assert not turns.may_receive(is_urgent=True)

        turns.received = 0
        monkeypatch.setattr(turns_module, "_SLICE_S", 0.0)
        assert not turns.may_receive(is_urgent=False)
        assert not turns.may_receive(is_urgent=True)

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())


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
        share_used_until_s = 0.0
        had_more = False

        def __init__(self, name: str, *, is_urgent: bool) -> None:
            self.name, self.is_urgent = name, is_urgent

        def take_turn(self) -> bool:
            taken.append(self.name)
            return False

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


class Steered:
    """A loop whose time the turns move."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._soon: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def iterate(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Worker:
    """A connection whose turns take `turn_s`, with `requests` turns to do."""

    is_urgent = False

    def __init__(self, name: str, loop: Steered, taken: list[str], *, turn_s: float, requests: int = 1 << 30) -> None:
        self.share_used_until_s = 0.0
        self.had_more = False
        self._name, self._loop, self._taken, self._turn_s = name, loop, taken, turn_s
        self._requests = requests

    def take_turn(self) -> bool:
        self._taken.append(self._name)
        self._loop.now_s += self._turn_s
        self._requests -= 1
        return self._requests > 0


def steered() -> tuple[Steered, Turns]:
    loop = Steered()
    return loop, Turns(cast("asyncio.AbstractEventLoop", loop))


def test_busy_connections_take_turns_one_after_the_other_and_timers_run_in_between() -> None:
    loop, turns = steered()
    taken: list[str] = []
    for name in "abcdefgh":
        turns.queue(Worker(name, loop, taken, turn_s=0.003))
    per_iteration: list[int] = []
    while len(taken) < 80:
        before = len(taken)
        loop.iterate()
        per_iteration.append(len(taken) - before)
    counts = Counter(taken[:80])
    assert max(counts.values()) - min(counts.values()) <= 2, "the order changes once, when they become busy"
    # A slice of 10 ms holds at most 4 turns of 3 ms, one of 2 ms for busy connections one more, never all 8.
    assert max(per_iteration) <= 5


def test_a_client_with_few_requests_does_not_wait_for_clients_with_thousands() -> None:
    """Before, it waited for a turn of 2 ms of each of them, and for a slice of 10 ms."""
    loop, turns = steered()
    taken: list[str] = []
    for number in range(20):
        turns.queue(Worker(f"busy {number}", loop, taken, turn_s=0.002))
    for _ in range(20):
        loop.iterate()
    for _ in range(5):
        quick = Worker("quick", loop, taken, turn_s=0.0001, requests=1)
        taken.clear()
        began_s = loop.now_s
        loop.iterate()
        assert loop.now_s - began_s <= 0.002 + 0.002, "the time until sockets are polled again"
        turns.take_or_queue(quick)
        assert taken[-1] == "quick"


def test_a_flood_on_the_control_plane_leaves_time_for_other_connections() -> None:
    """Each of its turns was run at once, however many there were in an iteration."""
    loop, turns = steered()
    taken: list[str] = []
    for _ in range(50):
        urgent = Worker("control", loop, taken, turn_s=0.001)
        urgent.is_urgent = True
        turns.queue(urgent)
    turns.queue(Worker("data", loop, taken, turn_s=0.001))
    for _ in range(20):
        taken.clear()
        loop.iterate()
        assert taken[:2] == ["control", "control"]
        assert set(taken[2:]) == {"data"}


def test_busy_connections_progress_beside_many_that_use_little() -> None:
    loop, turns = steered()
    taken: list[str] = []
    busy = Worker("busy", loop, taken, turn_s=0.002)
    turns.queue(busy)
    for _ in range(5):
        loop.iterate()
    for _ in range(50):
        for _ in range(30):
            turns.queue(Worker("new", loop, taken, turn_s=0.001, requests=1))
        taken.clear()
        loop.iterate()
        assert taken.count("busy") == 1
        assert taken.count("new") == 10


def test_a_connection_with_more_to_do_is_busy_also_if_it_has_few_turns() -> None:
    """Many such connections use little of the loop each, and all of it together."""
    loop, turns = steered()
    taken: list[str] = []
    slow = [Worker("slow", loop, taken, turn_s=0.002) for _ in range(100)]
    for connection in slow:
        turns.take_or_queue(connection)
    while len(taken) < 100:
        loop.iterate()
    for _ in range(10):
        loop.iterate()
    taken.clear()
    turns.queue(Worker("quick", loop, taken, turn_s=0.0001, requests=1))
    loop.iterate()
    assert taken == ["quick", "slow"]


def test_a_connection_that_has_paused_has_its_share_again() -> None:
    loop, turns = steered()
    taken: list[str] = []
    turns.queue(Worker("busy", loop, taken, turn_s=0.002))
    for _ in range(20):
        loop.iterate()
    frequent = Worker("frequent", loop, taken, turn_s=0.001, requests=1)
    turns_at_once = 0
    while turns.take_or_queue(frequent):
        turns_at_once += 1
        loop.iterate()
    assert 10 < turns_at_once < 30, "it uses a third of the loop, and its share is a quarter"
    taken.clear()
    loop.iterate()
    assert taken[0] == "busy"
    while "frequent" not in taken:
        loop.iterate()
    loop.now_s += 0.1
    assert turns.take_or_queue(frequent)


def test_a_lone_busy_connection_runs_at_once() -> None:
    loop, turns = steered()
    taken: list[str] = []
    busy = Worker("busy", loop, taken, turn_s=0.002, requests=1)
    for _ in range(100):
        assert turns.take_or_queue(busy)


def test_turns_are_shorter_while_many_connections_wait_for_one() -> None:
    """Before, a new client waited for 1,000 turns of 2 ms when as many others had sent thousands of requests."""
    loop, turns = steered()
    taken: list[str] = []

    class Flooding(Worker):
        def take_turn(self) -> bool:
            self._turn_s = 0.00001 + turns.turn_s
            return super().take_turn()

    for number in range(1_000):
        turns.queue(Flooding(f"flooding {number}", loop, taken, turn_s=0.0))
    turns.queue(Worker("new", loop, taken, turn_s=0.0001, requests=1))
    began_s = loop.now_s
    while "new" not in taken:
        loop.iterate()
    assert loop.now_s - began_s < 0.1


def test_a_turn_has_its_full_time_again_when_nothing_is_queued() -> None:
    loop, turns = steered()
    full_s = turns.turn_s
    for number in range(100):
        turns.queue(Worker(str(number), loop, [], turn_s=0.0, requests=1))
    loop.iterate()
    assert turns.turn_s == full_s
