"""Threads for blocking work.

The threads of a pool exist before work is given to it.  Otherwise a pool starts a thread when work arrives, and waits
until it runs: on a busy machine the event loop waited for 127 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool of so many threads, which run; `name` is the prefix of their names."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    # No thread is idle before all wait, so that each submission starts one.
    all_run = Barrier(threads + 1)
    for _ in range(threads):
        pool.submit(all_run.wait)
    all_run.wait()
    return pool


async def in_thread(work: Callable[[], T]) -> T:
    """Runs work in a thread and returns its result.

    Shielded: a task that is cancelled ends after the thread, which could write while logs are closed otherwise.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
