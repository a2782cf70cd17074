"""Runs the fsyncs that appends wait for (`flush.messages`) off the event loop.

Kafka flushes inside the append, so the response is sent and the high watermark advances after the flush.  Here the
append returns at once, and the log reports records that must not be acknowledged yet; a thread flushes, then requests
that wait for the partition are woken.  Appends during a flush share the next one.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kctl.environment import Clock
from kctl.errors import LogDirFailure
from kctl.server.metrics.durations import Durations
from kctl.storage.log import Log


class AppendFlushes:
    """Runs one flush at a time per log; call `close` before the logs are closed."""

    def __init__(
        self, clock: Clock, *, on_settled: Callable[[Log], None], on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        self.times = Durations()
        """Durations of all flushes of this broker."""
        self._clock = clock
        self._on_settled = on_settled
        self._on_failure = on_failure
        self._running: dict[Log, asyncio.Task[None]] = {}

    def request(self, log: Log) -> None:
        """Flushes the log soon, if appends wait for it and no flush of it is running."""
        if log.awaits_flush and log not in self._running:
            self._running[log] = asyncio.get_running_loop().create_task(self._flush(log), name="flush")

    async def settle(self, logs: Iterable[Log]) -> None:
        """Returns when no append to these logs waits for a flush, or their log directory has failed."""
        waiting = [log for log in logs if log.awaits_flush]
        for log in waiting:
            self.request(log)
        for log in waiting:
            task = self._running.get(log)
            if task is not None:
                await asyncio.wait([task])

    async def close(self) -> None:
        """Waits for running flushes."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _flush(self, log: Log) -> None:
        try:
            while log.awaits_flush:
                plan = log.plan_flush()
                started_ms = self._clock.monotonic_ms()
                try:
                    await asyncio.get_running_loop().run_in_executor(None, plan.run)
                except OSError as error:
                    if plan.directory == log.directory:
                        raise log.log_directory.fail(error) from error
                    continue  # It was moved or deleted in the meantime; then nothing waits for it.
                self.times.record(self._clock.monotonic_ms() - started_ms)
                log.flushed(plan, self._clock.now_ms())
                self._on_settled(log)
        except LogDirFailure as failure:
            self._on_failure(failure)
        finally:
            del self._running[log]
