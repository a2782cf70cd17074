"""The log cleaners of a broker: `log.cleaner.threads` threads, each of which compacts one log at a time.

A cleaner that has finished a log continues with the next at once; if there is none, after `log.cleaner.backoff.ms`.
They share the memory for keys, the buffers and the rate limit.  Kafka: LogCleaner.

The thread of a cleaner waits for a process that does the work (kctl.server.replication.logs.cleaner_processes), because
what a thread computes delays the event loop.  It does the work itself on a log below PROCESS_BYTES_MIN.

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
from kctl.server.replication.logs.cleaner_processes import CleanerProcesses
from kctl.storage.cleaning.cleaner import LogCleaner
from kctl.storage.cleaning.cleaning import CleanerBuffers, CleaningAborted, CleaningTask, CleaningWork
from kctl.storage.cleaning.pace import WAIT_MS_MIN, Account
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.system.environment import Clock, Random
from kctl.system.operating_system import heap_trim

# Rate limit of the log cleaners: bytes per second for all of them together; stops them when the broker stops.
#
# Owner: event loop, except for `spend`, which the cleaners' threads call.


_YIELD_EVERY_S = 0.0005
"""How long a thread may hold the interpreter lock, if it calls `spend` that often."""


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
        if wait_ms >= WAIT_MS_MIN:
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
PROCESS_BYTES_MIN = 8 << 20
"""A smaller log takes less time in a thread than the start of a process."""
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
        process_bytes_min: int = PROCESS_BYTES_MIN,
    ) -> None:
        self._configs = configs
        self._clock = clock
        self._pace = CleanerPace(clock, lambda: self._rate_of_each() * max(self._in_threads, 1))
        self.cleaner = LogCleaner(
            logs,
            last_stable_offset_of,
            random=random,
            pace=self._pace,
            buffers=lambda: buffers(configs),
            work_on=self._work_on,
        )
        self._process_bytes_min = process_bytes_min
        self._has_real_files = logs.files.are_real
        self.longest_ms = 0
        """How long the longest cleaning took."""
        # A separate pool: cleaners may be delayed for long, and fsyncs must not wait for them.
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="log-cleaner")
        self.processes = CleanerProcesses(self._threads.submit)
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
        self.processes.stop()
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
                self._share_rate()
        except Exception:
            log.exception(
                "cannot select logs to compact, trying again retry_ms=%s", self._configs.current.log_cleaner_backoff_ms
            )

    async def idle(self) -> None:
        """Return when no log is being cleaned."""
        while self._working:
            await asyncio.wait(self._working)

    def _work_on(self, task: CleaningTask) -> CleaningWork:
        """Choose where the work on a log is done."""
        if task.size < self._process_bytes_min or not self._has_real_files:
            return self.cleaner.work_in_thread(task)
        return self.processes.work_on(task, lambda: self.cleaner.work_in_thread(task))

    @property
    def _in_threads(self) -> int:
        """How many cleaners do the work in their thread."""
        return len(self._working) - self.processes.busy_count

    def _rate_of_each(self) -> float:
        """Return the part of the rate limit that one cleaner may use."""
        return self._configs.current.log_cleaner_io_max_bytes_per_second / max(len(self._working), 1)

    def _share_rate(self) -> None:
        self.processes.set_rate(self._rate_of_each())

    def _changed(self) -> None:
        self._share_rate()
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
        self._share_rate()


def buffers(configs: ConfigView) -> CleanerBuffers:
    """Return the buffers of one cleaner: for reading, for writing, and for keys up to the load factor, as in Kafka."""
    current = configs.current
    threads = max(current.log_cleaner_threads, 1)
    return CleanerBuffers(
        keys_bytes=int(current.log_cleaner_dedupe_buffer_size / threads * current.log_cleaner_io_buffer_load_factor),
        io_bytes=current.log_cleaner_io_buffer_size // threads // 2,
    )
