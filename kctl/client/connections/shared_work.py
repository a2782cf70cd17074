"""Work that goes on when a caller who waits for it is cancelled.  Owner: event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SharedWork:
    """Runs coroutines as tasks of its own, which only `stop` cancels."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Return a task for the work; what it raises is for those who wait for it, if there are any."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Return the result of the work, which goes on if the caller is cancelled."""
        return await asyncio.shield(self.start(work, name))

    async def finished(self) -> None:
        """Wait for what was started before."""
        if others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others)

    async def stop(self) -> None:
        """Cancel everything, and wait for its end."""
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the caller who would get it may have been cancelled
