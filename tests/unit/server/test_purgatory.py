"""Operations in the purgatory complete once: by a check of one of their keys, or by their timeout."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Collection

import pytest

from kctl.server.loop.timing_wheel import Entry, TimingWheel
from kctl.server.requests.purgatory import DELAYED_TRIED_MAX, Purgatory


class WheelOnly:
    """A timer whose time the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wheel: TimingWheel[Callable[[], None]] = TimingWheel(0)

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Entry[Callable[[], None]]:
        return self.wheel.add(callback, self.now_ms + delay_ms)

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for callback in self.wheel.advance(self.now_ms):
            callback()


class Need:
    """Completes when `have` reaches `required`."""

    future: asyncio.Future[None] | None = None

    def __init__(self, required: int) -> None:
        self.required = required
        self.have = 0
        self.outcome: list[str] = []

    def try_complete(self, changed: Collection[str]) -> bool:
        if self.have < self.required:
            return False
        self.outcome.append("completed")
        return True

    def on_timeout(self) -> None:
        self.outcome.append("timed out")


def test_a_completable_operation_does_not_wait() -> None:
    purgatory: Purgatory[str] = Purgatory(WheelOnly())
    need = Need(0)
    purgatory.complete_or_watch(need, ["a"], 100)
    assert need.outcome == ["completed"]
    assert "a" not in purgatory.watched
    assert len(purgatory) == 0


def test_a_check_of_any_key_completes_the_operation_and_removes_all_keys() -> None:
    timer = WheelOnly()
    purgatory: Purgatory[str] = Purgatory(timer)
    need = Need(1)
    purgatory.complete_or_watch(need, ["a", "b"], 100)
    purgatory.check("a")
    assert need.outcome == []
    need.have = 1
    purgatory.check("b")
    purgatory.check("a")
    timer.advance(200)
    assert need.outcome == ["completed"]
    assert "a" not in purgatory.watched
    assert len(timer.wheel) == 0


def test_the_timeout_completes_once() -> None:
    timer = WheelOnly()
    purgatory: Purgatory[str] = Purgatory(timer)
    need = Need(1)
    purgatory.complete_or_watch(need, ["a"], 100)
    timer.advance(99)
    assert need.outcome == []
    timer.advance(1)
    need.have = 1
    purgatory.check("a")
    assert need.outcome == ["timed out"]
    assert purgatory.expired_count == 1


def test_a_completion_that_checks_the_same_key_completes_nothing_twice() -> None:
    timer = WheelOnly()
    purgatory: Purgatory[str] = Purgatory(timer)
    second = Need(1)

    class First(Need):
        def try_complete(self, changed: Collection[str]) -> bool:
            if self.have < self.required:
                return False
            second.have = 1
            purgatory.check("a")
            return super().try_complete(changed)

    first = First(1)
    purgatory.complete_or_watch(first, ["a"], 100)
    purgatory.complete_or_watch(second, ["a"], 100)
    first.have = 1
    purgatory.check("a")
    assert second.outcome == ["completed"]
    assert first.outcome == ["completed"]


def test_shutdown_completes_all_waiting_operations() -> None:
    purgatory: Purgatory[str] = Purgatory(WheelOnly())
    needs = [Need(1) for _ in range(3)]
    for need in needs:
        purgatory.complete_or_watch(need, ["a", "b"], 100)
    purgatory.expire_all()
    assert [need.outcome for need in needs] == [["timed out"]] * 3
    assert len(purgatory) == 0


def test_an_operation_on_many_changed_keys_is_tried_once() -> None:
    purgatory: Purgatory[str] = Purgatory(WheelOnly())
    tries: list[int] = []

    class Counting(Need):
        def try_complete(self, changed: Collection[str]) -> bool:
            tries.append(self.have)
            return super().try_complete(changed)

    need, other = Counting(1), Need(0)
    purgatory.complete_or_watch(need, ["a", "b", "c"], 100)
    other.required = 1
    purgatory.complete_or_watch(other, ["c", "d"], 100)
    other.have = 1
    tries.clear()
    purgatory.check("a", "b", "c")
    assert tries == [0]
    assert other.outcome == ["completed"]
    assert len(purgatory) == 1


class Failing(Need):
    """Raises when it is completed."""

    def try_complete(self, changed: Collection[str]) -> bool:
        if self.have < self.required:
            return False
        raise RuntimeError("cannot complete")

    def on_timeout(self) -> None:
        raise RuntimeError("cannot time out")


@pytest.mark.parametrize("by", ["check", "timeout", "shutdown"])
def test_failing_operation_raises_only_to_its_caller(by: str) -> None:
    async def main() -> None:
        timer = WheelOnly()
        purgatory: Purgatory[str] = Purgatory(timer)
        failing, other = Failing(1), Need(1)
        failing.future = asyncio.get_running_loop().create_future()
        for operation in (failing, other):
            purgatory.complete_or_watch(operation, ["a"], 100)
        failing.have = other.have = 1
        match by:
            case "check":
                purgatory.check("a")
            case "timeout":
                timer.advance(100)
            case _:
                purgatory.expire_all()
        assert isinstance(failing.future.exception(), RuntimeError)
        assert other.outcome == ["completed" if by == "check" else "timed out"]
        assert len(purgatory) == 0
        assert "a" not in purgatory.watched
        assert len(timer.wheel) == 0

    asyncio.run(main())


@pytest.mark.parametrize("tries", [0, 2])
def test_operation_of_a_cancelled_caller_is_removed(tries: int) -> None:
    async def main() -> None:
        timer = WheelOnly()
        purgatory: Purgatory[str] = Purgatory(timer)
        need = Need(1)
        need.future = asyncio.get_running_loop().create_future()
        purgatory.complete_or_watch(need, ["a"], 100)
        for _ in range(tries):
            purgatory.check("a")
        need.future.cancel()
        await asyncio.sleep(0)
        assert len(purgatory) == 0
        assert "a" not in purgatory.watched
        assert len(timer.wheel) == 0

    asyncio.run(main())


def test_a_change_that_many_requests_wait_for_completes_them_in_slices() -> None:
    needs = [Need(1) for _ in range(3 * DELAYED_TRIED_MAX)]

    def completed() -> int:
        return sum(need.outcome == ["completed"] for need in needs)

    async def main() -> list[int]:
        purgatory: Purgatory[str] = Purgatory(WheelOnly())
        for need in needs:
            purgatory.complete_or_watch(need, ["key"], 1_000)
            need.have = 1
        purgatory.check("key")
        counts = [completed()]
        while len(purgatory):
            await asyncio.sleep(0)
            counts.append(completed())
        return counts

    assert asyncio.run(main()) == [DELAYED_TRIED_MAX, 2 * DELAYED_TRIED_MAX, 3 * DELAYED_TRIED_MAX]


@pytest.mark.parametrize("end", ["check", "timeout", "cancelled caller"])
def test_an_operation_that_has_ended_is_freed_without_the_garbage_collector(end: str) -> None:
    """Each fetch that waited for records left 2.7 KB to the rare collections of old objects."""

    async def main() -> None:
        timer = WheelOnly()
        purgatory: Purgatory[str] = Purgatory(timer)
        need = Need(1)
        need.future = asyncio.get_running_loop().create_future()
        purgatory.complete_or_watch(need, ["a"], 100)
        if end == "check":
            need.have = 1
            purgatory.check("a")
        elif end == "timeout":
            timer.advance(100)
        need.future.cancel() if end == "cancelled caller" else need.future.set_result(None)
        await asyncio.sleep(0)
        ended = weakref.ref(need)
        del need
        assert ended() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
