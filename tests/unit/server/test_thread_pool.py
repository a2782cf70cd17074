"""Threads exist before the event loop gives work to them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kctl.server.loop.tasks import in_thread, started_pool


def test_all_threads_of_a_pool_run_before_work_arrives() -> None:
    with started_pool(3, "early") as pool:
        before = {thread for thread in threading.enumerate() if thread.name.startswith("early")}
        assert len(before) == 3
        assert {pool.submit(threading.current_thread).result() for _ in range(20)} <= before


def test_a_cancelled_task_ends_after_its_thread() -> None:
    may_end = threading.Event()
    ended: list[str] = []

    def work() -> None:
        may_end.wait()
        ended.append("thread")

    async def main() -> None:
        task = asyncio.create_task(in_thread(work))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["thread"]

    asyncio.run(main())
