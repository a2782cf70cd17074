"""Syncs that appends wait for, off the loop: `flush.messages` says after how many records a log is on the disk.

Kafka syncs inside of the append, so whoever appended is answered after that, and the high watermark moves after that.
Here the append returns at once and leaves the log with an end that may not be acknowledged yet; a thread syncs, then
whoever waits for the partition is woken.  What is appended while a sync runs shares the next.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kctl.environment import Clock
from kctl.errors import LogDirFailure
from kctl.storage.log import Log


class AppendFlushes:
    """One sync at a time for each log; `close` before the logs."""

    def __init__(
        self, clock: Clock, *, on_settled: Callable[[Log], None], on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        self._clock = clock
        self._on_settled = on_settled
        self._on_failure = on_failure
        self._running: dict[Log, asyncio.Task[None]] = {}

    def request(self, log: Log) -> None:
        """Syncs the log soon, if appends wait for that and no sync of it is under way."""
        if log.awaits_flush and log not in self._running:
            self._running[log] = asyncio.get_running_loop().create_task(self._flush(log), name="flush")

    async def settle(self, logs: Iterable[Log]) -> None:
        """Returns when no append to these logs waits for a sync any more, or their directory has failed."""
        waiting = [log for log in logs if log.awaits_flush]
        for log in waiting:
            self.request(log)
        for log in waiting:
            task = self._running.get(log)
            if task is not None:
                await asyncio.wait([task])

    async def close(self) -> None:
        """Waits for the syncs that run."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _flush(self, log: Log) -> None:
        try:
            while log.awaits_flush:
                plan = log.plan_flush()
                try:
                    await asyncio.get_running_loop().run_in_executor(None, plan.run)
                except OSError as error:
                    if plan.directory == log.directory:
                        raise log.log_directory.fail(error) from error
                    continue  # It was moved meanwhile, or deleted, and then it awaits nothing any more.
                log.flushed(plan, self._clock.now_ms())
                self._on_settled(log)
        except LogDirFailure as failure:
            self._on_failure(failure)
        finally:
            del self._running[log]
