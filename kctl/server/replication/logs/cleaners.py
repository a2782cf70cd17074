"""The log cleaners of a broker: `log.cleaner.threads` threads, each of which compacts one log at a time.

A cleaner that has finished a log continues with the next at once; if there is none, after `log.cleaner.backoff.ms`.
They share the memory for keys, the buffers and the rate limit.  Kafka: LogCleaner.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from kctl.config.dynamic import ConfigView
from kctl.server.loop.slices import run_steps
from kctl.storage.cleaning.cleaner import CleanerBuffers, LogCleaner
from kctl.storage.cleaning.cleaning import CleaningAborted
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.system.environment import Clock, Random
from kctl.system.operating_system import heap_trim

# Rate limit of the log cleaners: bytes per second for all of them together; stops them when the broker stops.
#
# Owner: event loop, except for `spend`, which the cleaners' threads call.


_CREDIT_MS_MAX = 1_000
"""The most unused time that may be caught up by going faster than the limit."""
_WAIT_MS_MIN = 10
_YIELD_EVERY_S = 0.0005
"""How long a thread may hold the interpreter lock, if it calls `spend` that often."""


class Account:
    """Converts bytes into waiting time."""

    def __init__(self) -> None:
        self._paid_until_ms = 0.0

    def spend(self, byte_count: int, *, now_ms: int, bytes_per_second: float) -> float:
        """Return the milliseconds to wait for these bytes; zero or negative while there is unused time."""
        self._paid_until_ms = max(self._paid_until_ms, now_ms - _CREDIT_MS_MAX)
        self._paid_until_ms += byte_count * 1000 / bytes_per_second
        return self._paid_until_ms - now_ms


class CleanerPace:
    """Limits the threads to `bytes_per_second`, which may change at any time."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._stopped = threading.Event()
        self._account = Account()
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def stop(self) -> None:
        """Stop the threads after their current batch."""
        self._stopped.set()

    def spend(self, byte_count: int) -> None:
        """Wait until the bytes may have been read or written.  Raises CleaningAborted after `stop`."""
        with self._lock:
            wait_ms = self._account.spend(
                byte_count, now_ms=self._clock.monotonic_ms(), bytes_per_second=self._bytes_per_second()
            )
        if wait_ms >= _WAIT_MS_MIN:
            self._stopped.wait(wait_ms / 1000)
        else:
            self._yield_interpreter()
        if self._stopped.is_set():
            raise CleaningAborted("the broker is stopping")

    def _yield_interpreter(self) -> None:
        """Release the interpreter lock to the event loop before the switch interval is over."""
        now_s = time.monotonic()
        if now_s - getattr(self._of_thread, "yielded_s", 0.0) >= _YIELD_EVERY_S:
            time.sleep(0)
            self._of_thread.yielded_s = time.monotonic()


log = logging.getLogger(__name__)

_BACKOFF_MS_MIN = 100
_THREADS_MAX = 64
_RETURNED_BYTES_MIN = 4 << 20
"""Cleanings that used less memory for keys return none to the system: that takes about 4 ms of a thread."""


class LogCleaners:
    """Call `start` when the broker serves, and `stop` before the logs are closed."""

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
        self.longest_ms = 0
        """How long the longest cleaning took."""
        # A separate pool: cleaners may be delayed for long, and fsyncs must not wait for them.
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="log-cleaner")
        self._looking: asyncio.Task[None] | None = None
        self._selecting = asyncio.Lock()
        """Held while a log is selected: two cleaners would select the same."""
        self._backoff_ms = 0
        """That for which the check waits now."""
        self._working: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._keys_bytes_max = 0
        """The most memory for keys that a cleaning has used since memory was returned to the system."""
        self._trim = heap_trim()

    def start(self) -> None:
        """Start the periodic check for logs to compact."""
        self._restart_wait()
        self._configs.subscribe(self._changed)

    async def stop(self) -> None:
        """Stop; a running cleaning ends after its current batch."""
        self._is_stopped = True
        self._pace.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.idle()
        self._threads.shutdown()

    async def start_idle_cleaners(self) -> None:
        """Start every idle cleaner on the dirtiest log that no other one cleans."""
        async with self._selecting:
            await self._start_idle_cleaners()

    async def _start_idle_cleaners(self) -> None:
        try:
            while not self._is_stopped and len(self._working) < self._configs.current.log_cleaner_threads:
                due = await run_steps(self.cleaner.next(self._clock.now_ms()))
                if due is None or self._is_stopped:
                    return
                steps = self.cleaner.steps(*due, self._clock.now_ms())
                task = asyncio.get_running_loop().create_task(
                    self._clean(steps), name=f"clean {due[0].topic_partition}"
                )
                self._working.add(task)
        except Exception:
            log.exception(
                "cannot select logs to compact, trying again retry_ms=%s", self._configs.current.log_cleaner_backoff_ms
            )

    async def idle(self) -> None:
        """Return when no log is being cleaned."""
        while self._working:
            await asyncio.wait(self._working)

    def _changed(self) -> None:
        if not self._is_stopped and self._configs.current.log_cleaner_backoff_ms != self._backoff_ms:
            self._restart_wait()

    def _restart_wait(self) -> None:
        """Begin the wait for the next check: a shorter one need not wait for the end of the one before."""
        if self._looking is not None:
            self._looking.cancel()
        self._backoff_ms = self._configs.current.log_cleaner_backoff_ms
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="look for logs to clean")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(max(self._backoff_ms, _BACKOFF_MS_MIN) / 1000)
            await self.start_idle_cleaners()

    async def _clean(self, steps: Iterator[Callable[[], None]]) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            for work in steps:
                await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Exception:
            log.exception(
                "cannot compact a log, trying again retry_ms=%s", self._configs.current.log_cleaner_backoff_ms
            )
            self._done(self._clock.monotonic_ms() - started_ms)
        else:
            self._done(self._clock.monotonic_ms() - started_ms)
            self._keys_bytes_max = max(self._keys_bytes_max, self.cleaner.statistics.keys_bytes)
            await self.start_idle_cleaners()
            self._return_memory()

    def _return_memory(self) -> None:
        """Return the memory for keys to the system, unless a cleaning can use it again."""
        if self._trim is None or self._working or self._keys_bytes_max < _RETURNED_BYTES_MIN:
            return
        self._keys_bytes_max = 0
        self._threads.submit(self._trim)

    def _done(self, took_ms: int) -> None:
        self.longest_ms = max(self.longest_ms, took_ms)
        task = asyncio.current_task()
        assert task is not None
        self._working.discard(task)


def buffers(configs: ConfigView) -> CleanerBuffers:
    """Return the buffers of one cleaner: for reading, for writing, and for keys up to the load factor, as in Kafka."""
    current = configs.current
    threads = max(current.log_cleaner_threads, 1)
    return CleanerBuffers(
        keys_bytes=int(current.log_cleaner_dedupe_buffer_size / threads * current.log_cleaner_io_buffer_load_factor),
        io_bytes=current.log_cleaner_io_buffer_size // threads // 2,
    )
