"""The virtual loop: time, determinism, deadlocks, unhandled exceptions."""

from __future__ import annotations

import asyncio

import pytest

from kctl.testing.sim_loop import SimDeadlockError, SimLoop, simulate
from kctl.testing.sim_process import SimProcess


def test_waiting_takes_virtual_time_only() -> None:
    async def main(loop: SimLoop) -> float:
        await asyncio.sleep(365 * 86_400)
        return loop.time()

    assert simulate(main, seed=1) == 365 * 86_400


def test_timers_fire_at_their_time_in_order() -> None:
    async def main(loop: SimLoop) -> list[tuple[str, float]]:
        fired: list[tuple[str, float]] = []

        def fire(name: str) -> None:
            fired.append((name, loop.time()))

        for name, delay_s in (("c", 0.3), ("a", 0.1), ("b", 0.2)):
            loop.call_later(delay_s, fire, name)
        await asyncio.sleep(1)
        return fired

    assert simulate(main, seed=1) == [("a", 0.1), ("b", 0.2), ("c", 0.3)]


def test_asyncio_primitives_work() -> None:
    async def main(loop: SimLoop) -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        taken: list[str] = []

        async def producer() -> None:
            for item in ("a", "b", "c"):
                await queue.put(item)
                await asyncio.sleep(1)

        async def consumer() -> None:
            while True:
                try:
                    async with asyncio.timeout(1.5):
                        taken.append(await queue.get())
                except TimeoutError:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(producer())
            group.create_task(consumer())
        assert loop.time() == pytest.approx(3.5)
        return taken

    assert simulate(main, seed=1) == ["a", "b", "c"]


def test_a_deadlock_is_reported_with_the_waiting_tasks() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main(loop: SimLoop) -> None:
        task = asyncio.create_task(stuck())
        await asyncio.sleep(2)
        await task

    with pytest.raises(SimDeadlockError, match=r"deadlock at 2\.000 s(.|\n)*test_sim_loop\.py") as caught:
        simulate(main, seed=1)
    assert "waits at" in str(caught.value)


def test_an_unawaited_failure_fails_the_run() -> None:
    async def broken() -> None:
        raise ValueError("lost")

    async def main(loop: SimLoop) -> None:
        task = asyncio.create_task(broken())
        await asyncio.sleep(1)
        del task

    with pytest.raises(BaseExceptionGroup, match="seed 5") as caught:
        simulate(main, seed=5)
    assert caught.group_contains(ValueError, match="lost")


def test_tasks_left_running_are_cancelled() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("cancelled")

    async def main(loop: SimLoop) -> None:
        loop.create_task(forever())
        await asyncio.sleep(1)

    simulate(main, seed=1)
    assert ended == ["cancelled"]


def test_a_function_in_an_executor_takes_a_while_and_returns_or_raises() -> None:
    async def main(loop: SimLoop) -> None:
        assert await loop.run_in_executor(None, len, "abc") == 3
        assert loop.time() > 0
        assert await asyncio.to_thread(sum, [1, 2]) == 3
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    simulate(main, seed=1)


def test_the_seed_decides_in_which_order_an_executor_is_done() -> None:
    def order(seed: int) -> list[int]:
        async def main(loop: SimLoop) -> list[int]:
            done: list[int] = []
            await asyncio.gather(*(loop.run_in_executor(None, done.append, number) for number in range(10)))
            return done

        return simulate(main, seed=seed)

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(10))


def test_tasks_in_a_set_have_an_order() -> None:
    """TaskGroup cancels its tasks by walking a set."""

    def cancelled(seed: int) -> list[int]:
        order: list[int] = []

        async def waits(number: int) -> None:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                order.append(number)
                raise

        async def fails() -> None:
            await asyncio.sleep(1)
            raise ValueError

        async def main(loop: SimLoop) -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(waits(number))
                group.create_task(fails())

        with pytest.raises(ExceptionGroup):
            simulate(main, seed=seed)
        return order

    assert cancelled(1) == cancelled(1)
    assert len(cancelled(1)) == 50


def test_a_killed_process_runs_no_cleanup() -> None:
    done: list[str] = []

    async def works() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                done.append("worked")
        finally:
            done.append("cleaned up")

    async def main(loop: SimLoop) -> None:
        process = SimProcess("host")
        with process.running():
            loop.create_task(works())
            loop.call_later(3, done.append, "fired")
            ready = loop.create_future()
            ready.add_done_callback(lambda _: done.append("called back"))
        await asyncio.sleep(1.5)
        ready.set_result(None)
        loop.freeze(process)
        await asyncio.sleep(10)
        assert done == ["worked"]

    simulate(main, seed=1)
    assert done[-1] == "cleaned up", "at the end of the run, so that nothing is left behind"


def test_other_processes_continue_when_one_is_killed() -> None:
    async def main(loop: SimLoop) -> float:
        dying, living = SimProcess("a"), SimProcess("b")
        with living.running():
            task = loop.create_task(asyncio.sleep(5))
        with dying.running():
            loop.create_task(asyncio.sleep(100))
        loop.freeze(dying)
        await task
        return loop.time()

    assert simulate(main, seed=1) == 5


def test_process_is_killed_by_a_callback_while_its_own_are_the_last_that_are_ready() -> None:
    async def main(loop: SimLoop) -> None:
        dying = SimProcess("a")
        ran: list[str] = []
        loop.call_soon(loop.freeze, dying)
        with dying.running():
            loop.call_soon(ran.append, "callback of the killed process")
        await asyncio.sleep(1)
        assert ran == []

    simulate(main, seed=1)


def test_without_a_network_nothing_connects() -> None:
    async def main(loop: SimLoop) -> None:
        with pytest.raises(OSError, match="SimNetwork"):
            await asyncio.open_connection("broker", 9092)

    simulate(main, seed=1)


def test_executor_calls_of_a_killed_process_end_with_the_run() -> None:
    """Also for a task that continues to wait for its thread after it is cancelled."""

    async def waits_for_its_thread(loop: SimLoop) -> None:
        running = loop.run_in_executor(None, int)
        try:
            await asyncio.shield(running)
        finally:
            await asyncio.gather(running, return_exceptions=True)

    async def main(loop: SimLoop) -> None:
        process = SimProcess("host")
        with process.running():
            task = loop.create_task(waits_for_its_thread(loop))
        await asyncio.sleep(0)
        loop.freeze(process)
        await asyncio.sleep(1)
        assert not task.done()

    simulate(main, seed=1)


def test_the_step_observer_is_called_before_time_advances() -> None:
    looks: list[float] = []

    async def main(loop: SimLoop) -> None:
        loop.on_step = lambda: looks.append(loop.time())
        await asyncio.sleep(1)
        await asyncio.sleep(1)

    simulate(main, seed=1)
    assert looks == [0.0, 1.0]
