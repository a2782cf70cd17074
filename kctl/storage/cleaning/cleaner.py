"""The log cleaner: keeps the last record of each key in logs with the cleanup policy `compact`.

    cleaner.next(...)       loop    return the log with the highest dirty ratio that is due, if any; in steps
    cleaner.steps(log)      loop    a generator of callables; run each one in a thread, then take the next

One cleaning of one log (kctl.storage.cleaning.cleaning has the work of the thread):

    1. loop     note segments, aborted transactions and active producers; the thread works on these values only
    2. thread   read the dirty part and note the last offset of each key, until the memory for keys is full
    3. thread   for each group of adjacent segments: write the remaining records to `.cleaned` files, with indexes; sync
    4. loop     `.cleaned` -> `.swap`, the old files -> `.deleted`, `.swap` -> final names; steps 3 and 4 for each group
    5. thread   write the cleaner checkpoint

After a crash each group is either old or new (kctl.storage.recovery.recovery).  The checkpoint is written last, so a
clean part may be cleaned again, which changes nothing.  Appends and reads continue during a cleaning.  A cleaning is
aborted when the log is truncated or deleted, or when its first segments are deleted.  After any other failure the log
is uncleanable until the next start; a failed rename takes the log directory offline, because its files are then neither
old nor new.

Owner: event loop, except for the callables that `steps` yields.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kctl.errors import CorruptLog, LogDirFailure
from kctl.model import TopicPartition
from kctl.storage.cleaning.cleaning import Cleaning, CleaningAborted, Draft, FullSpeed, Pace
from kctl.storage.cleaning.compaction import Cleanable, clean_point, cleanable
from kctl.storage.cleaning.compaction_batches import LatestRecords
from kctl.storage.log.flushing import RemovalPlan
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.segments.segment import Segment
from kctl.system.environment import Random
from kctl.system.steps import Steps

_logger = logging.getLogger(__name__)

_IO_BYTES_MIN = 4096
SELECTED_PER_STEP = 100
"""Logs that are looked at in a step, which takes 5 ms if the last entries of their time indexes are read."""


class CleanerBuffers(NamedTuple):
    """Memory that one cleaning may use."""

    keys_bytes: int = 128 << 20
    """More than Kafka needs per key; kctl.records.compiled.key_table has the size of an entry."""
    io_bytes: int = 256 << 10
    """Size of the read buffer and of the write buffer; a larger batch is read and written as a whole."""


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
    ) -> None:
        self._logs = logs
        self._last_stable_offset_of = last_stable_offset_of
        self._pace = pace or FullSpeed()
        self._buffers = buffers
        self._secret = random.getrandbits(256).to_bytes(32, "big")
        self._under_way: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
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
            yield from self._guarded(log, self._clean(log, found, now_ms, drafts))
            if drafts:
                yield RemovalPlan(self._logs.files, [(path, False) for path in drafts]).run
        finally:
            self._under_way.discard(log.topic_partition)

    def _guarded(self, log: Log, steps: Iterator[Callable[[], None]]) -> Iterator[Callable[[], None]]:
        try:
            yield from steps
        except CleaningAborted as reason:
            _logger.info("log cleaning aborted log=%s reason=%s", log.topic_partition, reason)
        except LogDirFailure:
            return  # LogDirectory.fail has logged it.
        except Exception as error:  # One log that cannot be cleaned must not stop the cleaning of the others.
            if self._logs.get(log.topic_partition) is log:
                self._mark_uncleanable(log, error)

    def _mark_uncleanable(self, log: Log, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        _logger.error("cannot compact log, trying again after a restart log=%s error=%s", log.topic_partition, reason)
        self._uncleanable[log.topic_partition] = log, reason

    def _clean(self, log: Log, found: Cleanable, now_ms: int, drafts: list[str]) -> Iterator[Callable[[], None]]:
        buffers = self._buffers()
        cleaning = Cleaning(
            log,
            found,
            files=self._logs.files,
            pace=self._pace,
            io_bytes=max(buffers.io_bytes, _IO_BYTES_MIN),
            latest=LatestRecords(
                found.first_dirty_offset,
                memory_bytes=buffers.keys_bytes,
                secret=self._secret,
                pause=lambda: self._pace.spend(0),
            ),
            now_ms=now_ms,
        )
        truncations = log.truncations
        step = _Step(cleaning.note_keys)
        yield step.run
        self._check_unchanged(log, cleaning.old, truncations)
        step.check()
        for old, sources in cleaning.groups():
            draft = Draft(cleaning, sources)
            drafts += draft.paths
            step = _Step(draft.write)
            yield step.run
            self._check_unchanged(log, old, truncations)
            step.check()
            log.replace_segments(old, [draft.segment], now_ms=now_ms)
            drafts.clear()
        # Sync before the checkpoint: after a power failure the old files must not be back in a log marked as clean.
        step = _Step(lambda: self._logs.files.sync_directory(cleaning.directory))
        yield step.run
        self._check_unchanged(log, [], truncations)
        step.check()
        plan = self._logs.checkpoints.plan_cleaner_offset(log.topic_partition, cleaning.latest.end_offset)
        if plan is not None:
            yield plan.run
            self._logs.take_failures(plan)
        self.statistics = CleanerStatistics(
            cleaning.bytes_read,
            cleaning.bytes_written,
            len(cleaning.latest),
            cleaning.latest.memory_bytes,
            min(cleaning.latest.memory_bytes / max(buffers.keys_bytes, 1), 1.0),
        )
        _logger.info(
            "cleaned log=%s from=%s to=%s keys=%s bytes_before=%s bytes_after=%s",
            log.topic_partition,
            found.first_dirty_offset,
            cleaning.latest.end_offset,
            len(cleaning.latest),
            cleaning.bytes_read,
            cleaning.bytes_written,
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


class _Step:
    """Work for a thread; keeps the exception for the event loop."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the work in the current thread; never raises."""
        try:
            self._work()
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise the exception of the work, if any."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error
