"""Work in the order it comes, and the disk in between: one commit for all that arrived while the last one ran.

A batch is carried out at once; if it changed anything a thread commits the changes, and only then the batch counts as
done.  What arrives meanwhile is the next batch, so the disk's pace decides how much work shares one fsync.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

BATCH_MAX = 500
"""Pieces of work carried out in one go, so that a flood does not hold the loop."""

C = TypeVar("C")


class Batches(Generic[C]):
    """`take_changes` tells what a batch has changed (None: nothing), `commit` makes it durable on the writer's thread.

    `on_done` hears when each piece of a finished batch arrived (loop time).  When a commit fails `on_failed` is told,
    and nothing more is carried out: memory and disk differ.
    """

    def __init__(
        self,
        writer: Executor,
        *,
        take_changes: Callable[[], C | None],
        commit: Callable[[C], None],
        on_done: Callable[[list[float]], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._take_changes = take_changes
        self._commit = commit
        self._on_done = on_done
        self._on_failed = on_failed
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._running: list[float] = []
        self._committing: asyncio.Future[None] | None = None
        self._is_scheduled = False
        self._is_held = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: Callable[[], None]) -> None:
        self._waiting.append((self._loop.time(), work))
        self._schedule()

    async def stop(self) -> None:
        """Forget what waits, see through what runs."""
        self._is_held = True
        self._waiting.clear()
        if self._committing is not None:
            await asyncio.wait([self._committing])

    def _schedule(self) -> None:
        if self._waiting and self._committing is None and not self._is_held and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        for _ in range(min(len(self._waiting), BATCH_MAX)):
            arrived, work = self._waiting.popleft()
            self._running.append(arrived)
            work()
        changes = self._take_changes()
        if changes is None:
            self._done()
        else:
            self._committing = self._loop.run_in_executor(self._writer, self._commit, changes)
            self._committing.add_done_callback(self._committed)

    def _committed(self, commit: asyncio.Future[None]) -> None:
        self._committing = None
        error = commit.exception()
        if error is None:
            self._done()
        else:
            self._is_held = True
            self._on_failed(error)

    def _done(self) -> None:
        arrived, self._running = self._running, []
        self._on_done(arrived)
        self._schedule()
