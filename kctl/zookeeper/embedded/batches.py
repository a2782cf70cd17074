"""Executes work in order of arrival and commits it in batches.

A batch is executed at once; if it changed anything, a thread commits the changes, and the batch is done after that.
Work that arrives meanwhile is the next batch, so the speed of the disk determines how much work shares one fsync.

Long work returns a generator, which does a part of it until each `yield`.  The loop serves other connections meanwhile,
but no other work is executed and nothing is committed, so that the whole of it is one transaction.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeAlias, TypeVar

from kctl.system.steps import Steps

BATCH_MAX = 500
"""Maximum pieces of work executed at once, so that they do not block the loop for long."""
_TURN_S = 0.004
"""After this time no more work is begun before the loop has served other connections."""

Work: TypeAlias = Callable[[], Steps[None] | None]
C = TypeVar("C")


class Batches(Generic[C]):
    """`take_changes` returns the changes of a batch (None if there are none), `commit` writes them in the writer's
    thread.

    `on_done` is called with the arrival times (loop time) of the work in a completed batch.  When a commit fails,
    `on_failed` is called and no more work is executed, because memory and disk differ.
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
        self._waiting: deque[tuple[float, Work]] = deque()
        self._running: list[float] = []
        self._unfinished: Steps[None] | None = None
        self._committing: asyncio.Future[None] | None = None
        self._is_scheduled = False
        self._is_held = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: Work) -> None:
        """Execute `work` in the current or the next batch."""
        self._waiting.append((self._loop.time(), work))
        self._schedule()

    async def stop(self) -> None:
        """Drop waiting and unfinished work and wait for the running batch."""
        self._is_held = True
        self._waiting.clear()
        self._unfinished = None
        if self._committing is not None:
            await asyncio.wait([self._committing])

    def _schedule(self) -> None:
        if (
            (self._waiting or self._unfinished)
            and self._committing is None
            and not self._is_held
            and not self._is_scheduled
        ):
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if self._is_held:
            return
        self._continue()
        ends_s = self._loop.time() + _TURN_S
        for _ in range(min(len(self._waiting), BATCH_MAX)):
            if self._unfinished is not None or self._loop.time() > ends_s:
                break
            arrived, work = self._waiting.popleft()
            self._running.append(arrived)
            self._unfinished = work()
            self._continue()
        if self._unfinished is not None:
            self._schedule()
            return
        changes = self._take_changes()
        if changes is None:
            self._done()
        else:
            self._committing = self._loop.run_in_executor(self._writer, self._commit, changes)
            self._committing.add_done_callback(self._committed)

    def _continue(self) -> None:
        """Do the next part of long work, if any."""
        if self._unfinished is not None:
            try:
                next(self._unfinished)
            except StopIteration:
                self._unfinished = None

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
