"""Time, periodic tasks and threads of a broker, and the process that it stops with."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import TypeVar

from kctl.system.operating_system import end_of_process, is_process_alive

# The system clock.


_WITH_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A monotonic clock that goes on while the machine is suspended, as CLOCK_MONOTONIC does on macOS."""


class SystemClock:
    """environment.Clock of this machine."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        """Return the milliseconds of the clock that goes on while the machine is suspended."""
        return time.clock_gettime_ns(_WITH_SUSPENSION) // 1_000_000


# Periodic tasks of the broker.


log = logging.getLogger(__name__)


async def run_every(
    interval_ms: int, task: Callable[[], Awaitable[None] | None], *, first_after_ms: int | None = None
) -> None:
    """Run `task` until cancelled; a failure is logged and does not stop later runs."""
    await asyncio.sleep((interval_ms if first_after_ms is None else first_after_ms) / 1000)
    while True:
        try:
            result = task()
            if result is not None:
                await result
        except Exception:
            name = getattr(task, "__name__", repr(task))
            log.exception("periodic task failed, trying again task=%s retry_ms=%s", name, interval_ms)
        await asyncio.sleep(interval_ms / 1000)


# Threads for blocking work.
#
# The threads of a pool exist before work is given to it. Otherwise a pool starts a thread when work arrives, and
# waits until it runs: on a busy machine the event loop waited for 127 ms.


T = TypeVar("T")


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool of so many threads, which run; `name` is the prefix of their names."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    # No thread is idle before all wait, so that each submission starts one.
    all_run = Barrier(threads + 1)
    for _ in range(threads):
        pool.submit(all_run.wait)
    all_run.wait()
    return pool


async def in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread and return its result.

    Shielded: a task that is cancelled ends after the thread, which could write while logs are closed otherwise.  So it
    is not for what may wait for another machine, as a key server; that uses `run_in_executor`.  Work on records, which
    needs much memory, is run by requests/record_work.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
    finally:
        # An exception refers to this frame, and the future to the exception: all that the work refers to would stay
        # in memory until the next garbage collection.
        del running


# The end of another process.


STOP_WITH_POLL_S = 0.25
"""How often a process is looked at whose end the system does not report."""


async def stop_at_end_of(pid: int, stop: Callable[[], None]) -> None:
    """Call `stop` when the process has ended, also if it was killed; at once if there is none."""
    with suppress(ProcessLookupError):
        end = end_of_process(pid)
        if end is None:
            while is_process_alive(pid):  # noqa: ASYNC110 - nothing reports the end of the process
                await asyncio.sleep(STOP_WITH_POLL_S)
        else:
            loop = asyncio.get_running_loop()
            ended = asyncio.Event()
            loop.add_reader(end, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(end)
    log.info("stopping: the process of --stop-with has ended pid=%s", pid)
    stop()
