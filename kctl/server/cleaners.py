"""The log cleaners of a broker: as many as `log.cleaner.threads` says, each with one log at a time, in its own thread.

When a cleaner is done with its log it looks for the next at once; when there is none, after `log.cleaner.backoff.ms`.
The memory for keys and the buffers are shared out among them, and they keep one pace.  Kafka: LogCleaner.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from kctl.config.dynamic import ConfigView
from kctl.environment import Clock, Random
from kctl.server.cleaner_pace import CleanerPace
from kctl.storage.cleaner import CleanerBuffers, LogCleaner
from kctl.storage.log import Log
from kctl.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_BACKOFF_MS_MIN = 100
_THREADS_MAX = 64


class LogCleaners:
    """`start` after the broker serves; `stop` before the logs close."""

    def __init__(
        self,
        logs: LogManager,
        last_stable_offset_of: Callable[[Log], int],
        clock: Clock,
        *,
        configs: ConfigView,
        random: Random,
    ) -> None:
        self._configs = configs
        self._clock = clock
        self._pace = CleanerPace(clock, lambda: configs.current.log_cleaner_io_max_bytes_per_second)
        self.cleaner = LogCleaner(
            logs, last_stable_offset_of, random=random, pace=self._pace, buffers=lambda: buffers(configs)
        )
        # Threads of their own: they may be held up for long, and syncs must not wait for them.
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="log-cleaner")
        self._looking: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def start(self) -> None:
        """Begins to look for what is to be cleaned."""
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="look for logs to clean")

    async def stop(self) -> None:
        """Ends all; a cleaning that is under way with the batch that it is at."""
        self._is_stopped = True
        self._pace.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.idle()
        self._threads.shutdown()

    def set_to_work(self) -> None:
        """Every cleaner that is free begins with the dirtiest log that nobody is at."""
        try:
            while not self._is_stopped and len(self._working) < self._configs.current.log_cleaner_threads:
                due = self.cleaner.next(self._clock.now_ms())
                if due is None:
                    return
                steps = self.cleaner.steps(*due, self._clock.now_ms())
                task = asyncio.get_running_loop().create_task(
                    self._clean(steps), name=f"clean {due[0].topic_partition}"
                )
                self._working.add(task)
        except Exception:
            log.exception("looking for logs to compact failed; it is tried again")

    async def idle(self) -> None:
        """Returns once nothing is being cleaned."""
        while self._working:
            await asyncio.wait(self._working)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(max(self._configs.current.log_cleaner_backoff_ms, _BACKOFF_MS_MIN) / 1000)
            self.set_to_work()

    async def _clean(self, steps: Iterator[Callable[[], None]]) -> None:
        try:
            for work in steps:
                await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Exception:
            log.exception("a cleaning failed; it is tried again")
            self._done()
        else:
            self._done()
            self.set_to_work()

    def _done(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._working.discard(task)


def buffers(configs: ConfigView) -> CleanerBuffers:
    """The share of one cleaner.  A buffer for reading and one for writing; keys up to the load factor, as in Kafka."""
    current = configs.current
    threads = max(current.log_cleaner_threads, 1)
    return CleanerBuffers(
        keys_bytes=int(current.log_cleaner_dedupe_buffer_size / threads * current.log_cleaner_io_buffer_load_factor),
        io_bytes=current.log_cleaner_io_buffer_size // threads // 2,
    )
