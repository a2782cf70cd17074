"""The log cleaner: keeps the last record of each key in logs with the cleanup policy `compact`.

    cleaner.next(...)       loop    return the log with the highest dirty ratio that is due, if any; in steps
    cleaner.steps(log)      loop    a generator of callables; run each one in a thread, then take the next

One cleaning of one log (kctl.storage.cleaning.cleaning has the work, which a thread or a process does):

    1. loop     note segments, aborted transactions and active producers; the worker gets these values only
    2. worker   read the dirty part and note the last offset of each key, until the memory for keys is full
    3. worker   for each group of adjacent segments: write the remaining records to `.cleaned` files, with indexes; sync
    4. loop     `.cleaned` -> `.swap`, the old files -> `.deleted`, `.swap` -> final names; steps 3 and 4 for each group
    5. thread   write the cleaner checkpoint

After a crash each group is either old or new (kctl.storage.recovery.recovery).  The checkpoint is written last, so a
clean part may be cleaned again, which changes nothing.  Appends and reads continue during a cleaning.  A cleaning is
aborted when the log is truncated or deleted, or when its first segments are deleted.  If the process of the work ends,
the log is cleaned again after a pause, up to WORKERS_MAX times.  After any other failure the log is uncleanable until
the next start; a failed rename takes the log directory offline, because its files are then neither old nor new.

Owner: event loop, except for the callables that `steps` yields.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from kctl.errors import CorruptLog, LogDirFailure
from kctl.model import TopicPartition
from kctl.storage.cleaning.cleaning import (
    CleanerBuffers,
    Cleaning,
    CleaningAborted,
    CleaningTask,
    CleaningWork,
    WorkerEnded,
)
from kctl.storage.cleaning.compaction import Cleanable, clean_point, cleanable
from kctl.storage.cleaning.pace import FullSpeed, Pace
from kctl.storage.log.flushing import RemovalPlan
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.names import CLEANED_SUFFIX
from kctl.storage.segments.segment import Segment
from kctl.system.environment import Random
from kctl.system.steps import Steps

_logger = logging.getLogger(__name__)

SELECTED_PER_STEP = 100
"""Logs that are looked at in a step, which takes 5 ms if the last entries of their time indexes are read."""


WORKERS_MAX = 6
"""After so many processes have ended during the cleaning of a log, it is uncleanable."""
_RETRY_MS = 1_000
_RETRY_FACTOR = 4

T = TypeVar("T")


class CleanerStatistics(NamedTuple):
    """The statistics of the last cleaning."""

    bytes_read: int
    bytes_written: int
    keys: int
    keys_bytes: int = 0
    """The memory for keys that was used."""
    keys_memory_share: float = 0.0
    """The part of the memory for keys that was used, from 0 to 1."""


class LogCleaner:
    """Selects logs to clean and cleans them; several cleanings may run at the same time."""

    def __init__(
        self,
        logs: LogManager,
        last_stable_offset_of: Callable[[Log], int],
        *,
        random: Random,
        pace: Pace | None = None,
        buffers: Callable[[], CleanerBuffers] = CleanerBuffers,
        work_on: Callable[[CleaningTask], CleaningWork] | None = None,
    ) -> None:
        """`work_on` chooses where the work on a log is done; by default in the thread that runs the steps."""
        self._logs = logs
        self._last_stable_offset_of = last_stable_offset_of
        self._pace = pace or FullSpeed()
        self._buffers = buffers
        self._work_on = work_on or self.work_in_thread
        self._secret = random.getrandbits(256).to_bytes(32, "big")
        self._under_way: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        self._retried: dict[TopicPartition, _Retry] = {}
        self.statistics = CleanerStatistics(0, 0, 0)
        self.last_selection_ms: int | None = None
        """The time of the last call of `next`."""
        self.dirty_ratio_max = 0.0
        """The highest ratio that the last call of `next` found."""
        self.overdue_max_ms = 0
        """By how much a log exceeds `max.compaction.lag.ms`, of those that the last call of `next` found; at most."""

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Return the logs that are not cleaned until the next start, with the reason."""
        return {tp: why for tp, (log, why) in self._uncleanable.items() if self._logs.get(tp) is log}

    def next(self, now_ms: int) -> Steps[tuple[Log, Cleanable] | None]:
        """Return the log with the highest dirty ratio that is due and is not being cleaned; None if there is none.

        In steps of SELECTED_PER_STEP logs, between which logs may come and go.
        """
        due: list[tuple[Log, Cleanable]] = []
        self.last_selection_ms = now_ms
        ratios = [0.0]
        overdue_ms = [0]
        uncleanable = self.uncleanable
        compacted = [log for log in self._logs.logs.values() if log.config.is_compacted]
        for number, log in enumerate(compacted, 1):
            if not number % SELECTED_PER_STEP:
                yield
            tp = log.topic_partition
            if not log.log_directory.is_online or not self._logs.is_current(log):
                continue
            if tp in uncleanable or tp in self._under_way:
                continue
            if (retry := self._retried.get(tp)) is not None and retry.not_before_ms > now_ms >= retry.since_ms:
                continue
            if self._logs.futures.get(tp) is not None:
                continue  # The future log would be partly clean, and the cleaner checkpoint moves with it.
            try:
                found = self.cleanable(log, now_ms)
            except (OSError, CorruptLog) as error:
                self._mark_uncleanable(log, error)
                continue
            ratios.append(found.dirty_ratio)
            overdue_ms.append(found.overdue_ms)
            if found.is_due(log.config):
                due.append((log, found))
        self.dirty_ratio_max = max(ratios)
        self.overdue_max_ms = max(overdue_ms)
        due = [candidate for candidate in due if self._logs.is_current(candidate[0])]
        return max(due, key=lambda candidate: candidate[1].dirty_ratio, default=None)

    def cleanable(self, log: Log, now_ms: int) -> Cleanable:
        """Return the part of the log that may be cleaned now.  Raises OSError, CorruptLog."""
        self._follow_truncations(log)
        return cleanable(
            log.segments,
            log.config,
            first_dirty_offset=clean_point(
                self._logs.checkpoints.cleaner_offset(log.topic_partition),
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
            ),
            last_stable_offset=self._last_stable_offset_of(log),
            now_ms=now_ms,
        )

    def _follow_truncations(self, log: Log) -> None:
        """Lower the cleaner checkpoint to the truncation point: records appended after a truncation are dirty."""
        offset = log.take_truncation()
        checkpointed = self._logs.checkpoints.cleaner_offset(log.topic_partition)
        if offset is not None and checkpointed is not None and offset < checkpointed:
            self._logs.checkpoints.write_cleaner_offset(log.topic_partition, offset)

    def steps(self, log: Log, found: Cleanable, now_ms: int) -> Iterator[Callable[[], None]]:
        """Clean one log.  Run each yielded callable in a thread before taking the next one; they never raise.

        `next` does not return this log until the generator is exhausted or closed.
        """
        self._under_way.add(log.topic_partition)
        return self._steps(log, found, now_ms)

    def _steps(self, log: Log, found: Cleanable, now_ms: int) -> Iterator[Callable[[], None]]:
        try:
            drafts: list[str] = []
            yield from self._guarded(log, self._clean(log, found, now_ms, drafts), now_ms)
            if drafts:
                yield RemovalPlan(self._logs.files, [(path, False) for path in drafts]).run
        finally:
            self._under_way.discard(log.topic_partition)

    def _guarded(self, log: Log, steps: Iterator[Callable[[], None]], now_ms: int) -> Iterator[Callable[[], None]]:
        try:
            yield from steps
            self._retried.pop(log.topic_partition, None)
        except CleaningAborted as reason:
            _logger.info("log cleaning aborted log=%s reason=%s", log.topic_partition, reason)
        except WorkerEnded as ended:
            if self._logs.get(log.topic_partition) is log:
                self._retry(log, ended, now_ms)
        except LogDirFailure:
            return  # LogDirectory.fail has logged it.
        except Exception as error:  # One log that cannot be cleaned must not stop the cleaning of the others.
            if self._logs.get(log.topic_partition) is log:
                self._mark_uncleanable(log, error)

    def _mark_uncleanable(self, log: Log, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        _logger.error("cannot compact log, trying again after a restart log=%s error=%s", log.topic_partition, reason)
        self._uncleanable[log.topic_partition] = log, reason

    def _retry(self, log: Log, ended: WorkerEnded, now_ms: int) -> None:
        """Clean the log again after a pause, unless too many workers have ended: it may be what ends them."""
        tp = log.topic_partition
        before = self._retried.pop(tp, None)
        count = 1 if before is None else before.workers + 1
        if count >= WORKERS_MAX:
            self._mark_uncleanable(log, ended)
            return
        pause_ms = _RETRY_MS * _RETRY_FACTOR ** (count - 1)
        self._retried = {other: retry for other, retry in self._retried.items() if self._logs.get(other) is not None}
        self._retried[tp] = _Retry(count, now_ms, now_ms + pause_ms)
        _logger.warning("log cleaning aborted, trying again log=%s retry_ms=%s reason=%s", tp, pause_ms, ended)

    def work_in_thread(self, task: CleaningTask) -> CleaningWork:
        """Return the work that is done in the thread that runs the steps."""
        return Cleaning(task, files=self._logs.files, pace=self._pace)

    def _clean(self, log: Log, found: Cleanable, now_ms: int, drafts: list[str]) -> Iterator[Callable[[], None]]:
        buffers = self._buffers()
        task = CleaningTask.of(log, found, self._logs.files, buffers, self._secret, now_ms)
        old = log.segments[: len(task.sources)]
        producers = log.producer_state.capture()
        truncations = log.truncations
        work = self._work_on(task)
        bytes_read = bytes_written = 0
        try:
            noting = _Step(lambda: work.note_keys(producers))
            yield noting.run
            self._check_unchanged(log, old, truncations)
            keys = noting.result()
            for first, end in task.groups(keys.end_offset):
                drafts += task.draft_paths(first)
                writing = _Step(partial(work.write, first, end))
                yield writing.run
                self._check_unchanged(log, old[first:end], truncations)
                written = writing.result()
                bytes_read += written.bytes_read
                bytes_written += written.size
                draft = Segment(
                    self._logs.files,
                    task.directory,
                    written.base_offset,
                    task.config,
                    size=written.size,
                    created_ms=now_ms,
                    has_transaction_index=written.has_transaction_index,
                    suffix=CLEANED_SUFFIX,
                )
                log.replace_segments(old[first:end], [draft], now_ms=now_ms)
                drafts.clear()
        finally:
            work.close()
        # Sync before the checkpoint: after a power failure the old files must not be back in a log marked as clean.
        syncing = _Step(lambda: self._logs.files.sync_directory(task.directory))
        yield syncing.run
        self._check_unchanged(log, [], truncations)
        syncing.result()
        plan = self._logs.checkpoints.plan_cleaner_offset(log.topic_partition, keys.end_offset)
        if plan is not None:
            yield plan.run
            self._logs.take_failures(plan)
        self.statistics = CleanerStatistics(
            bytes_read,
            bytes_written,
            keys.key_count,
            keys.memory_bytes,
            min(keys.memory_bytes / max(buffers.keys_bytes, 1), 1.0),
        )
        _logger.info(
            "cleaned log=%s from=%s to=%s keys=%s bytes_before=%s bytes_after=%s",
            log.topic_partition,
            found.first_dirty_offset,
            keys.end_offset,
            keys.key_count,
            bytes_read,
            bytes_written,
        )

    def _check_unchanged(self, log: Log, old: Sequence[Segment], truncations: int) -> None:
        if self._logs.get(log.topic_partition) is not log or not log.log_directory.is_online:
            raise CleaningAborted("the log was deleted")
        if self._logs.futures.get(log.topic_partition) is not None:
            raise CleaningAborted("the log is being moved to another directory")
        if log.truncations != truncations:
            raise CleaningAborted("the log was truncated")
        present = {id(segment) for segment in log.segments}
        if not all(id(segment) in present for segment in old):
            raise CleaningAborted("its first segments were deleted")


class _Retry(NamedTuple):
    """When a log is cleaned again whose workers have ended."""

    workers: int
    """How many have ended."""
    since_ms: int
    not_before_ms: int


class _Step(Generic[T]):
    """Work for a thread; keeps its result or its exception for the event loop."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the work in the current thread; never raises."""
        try:
            self._results.append(self._work())
        except Exception as error:
            self._error = error

    def result(self) -> T:
        """Return the result of the work, or raise its exception."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._results.pop()
        finally:
            del error
