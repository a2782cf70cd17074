"""The log names what made an iteration of the event loop long."""

from __future__ import annotations

import asyncio
import logging
import re
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import pytest

from kctl.server.loop.lag import MeasuredEventLoop
from kctl.server.loop.slow_iterations import (
    SAMPLED_FRAMES_MAX,
    SAMPLES_MAX,
    SLOW_S,
    TIMED_S,
    DueCallbacks,
    IterationSamples,
    stack_of,
)


def keep_busy() -> None:
    end_s = time.monotonic() + 2 * SLOW_S
    while time.monotonic() < end_s:
        pass


async def busy_task() -> None:
    keep_busy()


class Cancelled:
    """A callback that cancels its own handle, as that of a connection which is closed."""

    def __init__(self) -> None:
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        assert self.handle is not None
        self.handle.cancel()
        keep_busy()


async def call(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def call_cancelled() -> None:
    cancelled = Cancelled()
    cancelled.handle = asyncio.get_running_loop().call_soon(cancelled.run)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def run_task(name: str | None) -> None:
    await asyncio.get_running_loop().create_task(busy_task(), name=name)
    await asyncio.sleep(0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("scene", "name"),
    [
        (partial(call, keep_busy), "keep_busy"),
        (partial(call, partial(keep_busy)), "keep_busy"),
        (call_cancelled, "Cancelled.run"),
        (partial(run_task, "controller"), "task-controller"),
        (partial(run_task, None), "task-busy_task"),
    ],
)
@pytest.mark.parametrize("measures_cpu", [False, True])
def test_a_long_iteration_is_logged_with_its_callback(
    caplog: pytest.LogCaptureFixture,
    scene: Callable[[], Coroutine[object, object, None]],
    name: str,
    measures_cpu: bool,
) -> None:
    with (
        caplog.at_level(logging.DEBUG, "kctl.server.loop.slow_iterations"),
        asyncio.Runner(loop_factory=partial(MeasuredEventLoop, measures_cpu=measures_cpu)) as runner,
    ):
        loop = runner.get_loop()
        assert isinstance(loop, MeasuredEventLoop)
        loop.lag.slow.latest_request = lambda: "delete_groups"
        runner.run(scene())
        assert not caplog.records, "nobody is delayed while a broker starts"
        loop.restart_measurements()
        loop.lag.slow.collected(time.monotonic() - 3600, 1.0, 2)
        loop.lag.slow.collected(time.monotonic() + 3600, 0.0125, 1)
        loop.lag.slow.collected(time.monotonic() + 3600, 0.0025, 0)
        runner.run(scene())
    lines = [record.getMessage() for record in caplog.records]
    line = next(line for line in lines if f"{name}:" in line)
    assert line.startswith("event loop was busy cause=")
    assert " garbage_collection_ms=15.0 generations=1,0 " in line
    assert " latest_request=delete_groups stacks=" in line
    fields = dict(field.split("=") for field in line.split() if "=" in field)
    parts = [float(fields[f"{name}_ms"]) for name in ("cpu", "without_processor", "blocked")]
    assert sum(parts) == pytest.approx(float(fields["busy_ms"]), abs=0.2)


def test_a_short_iteration_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kctl.server.loop.slow_iterations"), asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
    assert not caplog.records


def test_callbacks_are_timed_only_after_a_long_iteration() -> None:
    """Otherwise the queue is a deque, without a call of Python for each callback."""
    due = DueCallbacks(lambda: 0.0)
    taken_by = [type(due).popleft]
    due.time(5.0)
    for now_s in (5.0 + TIMED_S / 2, 5.0 + TIMED_S):
        due.begin(now_s)
        taken_by.append(type(due).popleft)
    assert [function is deque.popleft for function in taken_by] == [True, False, True]


def test_the_line_about_an_iteration_without_timed_callbacks_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "kctl.server.loop.slow_iterations"),
        asyncio.Runner(loop_factory=MeasuredEventLoop) as runner,
    ):
        loop = runner.get_loop()
        assert isinstance(loop, MeasuredEventLoop)
        loop.restart_measurements()
        runner.run(call(keep_busy))
    assert " callbacks=not_timed " in caplog.records[0].getMessage()


def test_the_line_about_a_long_iteration_has_the_stacks_of_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "kctl.server.loop.slow_iterations"),
        asyncio.Runner(loop_factory=MeasuredEventLoop) as runner,
    ):
        loop = runner.get_loop()
        assert isinstance(loop, MeasuredEventLoop)
        loop.restart_measurements()
        samples = loop._measuring.samples

        def keep_busy_until_sampled() -> None:
            while len(samples.of(loop.iteration.started_s)) < 2:
                pass

        runner.run(call(keep_busy_until_sampled))
        assert any(thread.name == "iteration-samples" for thread in threading.enumerate())
    # On a busy machine the start of the thread that samples is a long iteration too.
    stacks = [re.findall(r" stacks=(\S+)$", record.getMessage()) for record in caplog.records]
    module = __name__.rpartition(".")[2]
    function = "test_the_line_about_a_long_iteration_has_the_stacks_of_the_loop.keep_busy_until_sampled"
    assert any(re.search(rf"\d+x:[^|]*\b{module}:\d+:{function}(\||$)", stack) for stack in chain.from_iterable(stacks))
    assert not any(thread.name == "iteration-samples" for thread in threading.enumerate())


class Started:
    """An iteration that began at a given time."""

    def __init__(self) -> None:
        self.started_s = 1.0


def test_few_stacks_are_kept_and_only_those_of_the_latest_iteration() -> None:
    iteration = Started()
    samples = IterationSamples(iteration, lambda: SLOW_S)
    for _ in range(2 * SAMPLES_MAX):
        samples.take(1.0)
    assert len(samples.of(1.0)) == SAMPLES_MAX
    samples.take(2.0)
    assert len(samples.of(1.0)) == SAMPLES_MAX, "the loop is not in that iteration any more"
    iteration.started_s = 2.0
    samples.take(2.0)
    assert not samples.of(1.0)
    assert len(samples.of(2.0)) == 1


def test_a_loop_that_waits_is_not_sampled() -> None:
    samples = IterationSamples(Started(), lambda: SLOW_S)
    main = threading.get_ident()

    def sample_when_waiting() -> None:
        while sys._current_frames()[main].f_code is not selectors.DefaultSelector.select.__code__:
            pass
        samples.take(1.0)
        writing.send(b"x")

    reading, writing = socket.socketpair()
    with reading, writing, selectors.DefaultSelector() as selector, ThreadPoolExecutor(1) as executor:
        selector.register(reading, selectors.EVENT_READ)
        done = executor.submit(sample_when_waiting)
        selector.select()
        done.result()
    assert not samples.of(1.0)


def test_a_stack_is_bounded() -> None:
    def recurse(depth: int) -> str:
        return recurse(depth - 1) if depth else stack_of(sys._getframe())

    assert stack_of(sys._getframe()).count("<") < SAMPLED_FRAMES_MAX
    assert recurse(2 * SAMPLED_FRAMES_MAX).split("<")[0].endswith("_bounded.recurse")
    assert recurse(2 * SAMPLED_FRAMES_MAX).count("<") == SAMPLED_FRAMES_MAX - 1


def test_the_thread_of_samples_ends_when_they_are_not_needed() -> None:
    is_over = threading.Event()
    samples = IterationSamples(Started(), lambda: 0.0, lambda: not is_over.is_set())
    samples.start()
    watching = next(thread for thread in threading.enumerate() if thread.name == "iteration-samples")
    is_over.set()
    watching.join()
    samples.stop()
