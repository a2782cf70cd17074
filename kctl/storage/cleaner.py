"""The log cleaner: keeps the last record of each key of logs whose cleanup policy says `compact`.

    cleaner.next(...)       loop    the dirtiest log with enough to do, if any
    cleaner.steps(log)      loop    a generator; what it yields is to be called in a thread, then the next is asked for

One cleaning of one log:

    1. loop     looks at segments, aborted transactions, active producers; from here on the work is on values
    2. thread   reads the dirty part and notes the last offset of each key, until the memory for that is used up
    3. thread   per group of neighbours: writes what is left of them to `.cleaned` files, indexes and all, synced
    4. loop     `.cleaned` -> `.swap`, the old files -> `.deleted`, `.swap` -> final names; steps 3 and 4 for each group
    5. thread   the cleaner checkpoint

A crash leaves each group as it was or as it shall be (kctl.storage.leftovers); the checkpoint comes last, and cleaning
once more what is clean changes nothing.  Appends and reads go on meanwhile.  When the log was truncated or deleted, or
its first segments went, the cleaning is given up.  Whatever else goes wrong makes the log uncleanable until the next
start, except that a rename that fails takes the log directory offline: its files are neither old nor new then.

Owner: event loop, except for what `steps` yields.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from kctl.environment import Random
from kctl.errors import CorruptLog, KctlError, LogDirFailure
from kctl.model import TopicPartition
from kctl.records.batch import iterate_records, parse_any_header
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.storage.batch_reader import check_crc, read_batches
from kctl.storage.compaction import (
    Cleanable,
    SourceSegment,
    Transactions,
    clean_point,
    cleanable,
    group_segments,
    removal_horizon_ms,
)
from kctl.storage.compaction_batches import LatestRecords, emptied
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    offset_file_name,
)
from kctl.storage.plans import RemovalPlan
from kctl.storage.producer_state import NO_OFFSET
from kctl.storage.segment import Segment

_logger = logging.getLogger(__name__)

_IO_BYTES_MIN = 4096


class CleaningGivenUp(KctlError):
    """The log changed, or the broker stops."""


class Pace(Protocol):
    """Holds a cleaning down to the speed it may have."""

    def spend(self, byte_count: int) -> None:
        """Called in the thread for all that is read and written.  Raises CleaningGivenUp when it is to stop."""
        ...


class FullSpeed:
    """A pace that never waits."""

    def spend(self, byte_count: int) -> None:
        """Nothing to wait for."""


class CleanerBuffers(NamedTuple):
    """Memory that one cleaning may use."""

    keys_bytes: int = 128 << 20
    """Kctl reckons more for a key than Kafka does: kctl.storage.compaction_batches."""
    io_bytes: int = 256 << 10
    """For reading, and as much for writing; a larger batch is read and written whole."""


class CleanerStatistics(NamedTuple):
    """What the last cleaning did."""

    bytes_read: int
    bytes_written: int
    keys: int


@dataclass(frozen=True, slots=True)
class _LastOfProducer:
    """Which batch carries an active producer's state: that of its last data, or else a marker of its epoch."""

    data_offset: int
    epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        if self.data_offset != NO_OFFSET:
            return header.last_offset == self.data_offset and not header.is_control
        return header.is_control and header.producer_epoch == self.epoch


class LogCleaner:
    """Finds logs to clean, and cleans them, several at a time if asked to."""

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

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The logs that are not cleaned until the next start, and why."""
        return {tp: why for tp, (log, why) in self._uncleanable.items() if self._logs.get(tp) is log}

    def next(self, now_ms: int) -> tuple[Log, Cleanable] | None:
        """The dirtiest of the logs that are due and not being cleaned."""
        due: list[tuple[Log, Cleanable]] = []
        uncleanable = self.uncleanable
        for tp, log in self._logs.logs.items():
            if not log.config.is_compacted or not log.log_directory.is_online:
                continue
            if tp in uncleanable or tp in self._under_way:
                continue
            if self._logs.futures.get(tp) is not None:
                continue  # Its copy would be part clean and part not, and the checkpoint moves with it.
            try:
                found = self.cleanable(log, now_ms)
            except (OSError, CorruptLog) as error:
                self._give_up_on(log, error)
                continue
            if found.is_due(log.config):
                due.append((log, found))
        return max(due, key=lambda candidate: candidate[1].dirty_ratio, default=None)

    def cleanable(self, log: Log, now_ms: int) -> Cleanable:
        """What of the log may be cleaned now.  Raises OSError, CorruptLog."""
        self._follow_truncations(log)
        return cleanable(
            log.segments,
            log.config,
            first_dirty_offset=clean_point(
                self._logs.cleaner_offset(log.topic_partition),
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
            ),
            last_stable_offset=self._last_stable_offset_of(log),
            now_ms=now_ms,
        )

    def _follow_truncations(self, log: Log) -> None:
        """What was appended after a truncation is dirty again, even below the checkpoint."""
        offset = log.take_truncation()
        checkpointed = self._logs.cleaner_offset(log.topic_partition)
        if offset is not None and checkpointed is not None and offset < checkpointed:
            self._logs.checkpoint_cleaner_offset(log.topic_partition, offset)

    def steps(self, log: Log, found: Cleanable, now_ms: int) -> Iterator[Callable[[], None]]:
        """Clean one log.  Call what comes, in a thread, before asking for the next; it raises nothing.

        Until it has come to its end or was closed, `next` does not name the log.
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
        except CleaningGivenUp as reason:
            _logger.info("cleaning given up log=%s reason=%s", log.topic_partition, reason)
        except LogDirFailure:
            return  # The directory has said so in the log.
        except Exception as error:  # One log that cannot be cleaned must not keep the others dirty.
            if self._logs.get(log.topic_partition) is log:
                self._give_up_on(log, error)

    def _give_up_on(self, log: Log, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        _logger.error("not cleaned until the next start log=%s reason=%s", log.topic_partition, reason)
        self._uncleanable[log.topic_partition] = log, reason

    def _clean(self, log: Log, found: Cleanable, now_ms: int, drafts: list[str]) -> Iterator[Callable[[], None]]:
        buffers = self._buffers()
        cleaning = _Cleaning(
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
            draft = _Draft(cleaning, sources)
            drafts += draft.paths
            step = _Step(draft.write)
            yield step.run
            self._check_unchanged(log, old, truncations)
            step.check()
            log.replace_segments(old, [draft.segment], now_ms=now_ms)
            drafts.clear()
        # The old files must not be what a power failure leaves of a log whose checkpoint says that it is clean.
        step = _Step(lambda: self._logs.files.sync_directory(cleaning.directory))
        yield step.run
        self._check_unchanged(log, [], truncations)
        step.check()
        plan = self._logs.plan_cleaner_checkpoint(log.topic_partition, cleaning.latest.end_offset)
        if plan is not None:
            yield plan.run
            self._logs.take_failures(plan)
        self.statistics = CleanerStatistics(cleaning.bytes_read, cleaning.bytes_written, len(cleaning.latest))
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
            raise CleaningGivenUp("the log is gone")
        if self._logs.futures.get(log.topic_partition) is not None:
            raise CleaningGivenUp("the log moves to another directory")
        if log.truncations != truncations:
            raise CleaningGivenUp("the log was truncated")
        present = {id(segment) for segment in log.segments}
        if not all(id(segment) in present for segment in old):
            raise CleaningGivenUp("its segments were deleted")


class _Step:
    """Work for a thread, which keeps what it raised for the loop."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


class _Cleaning:
    """One cleaning: what was true of the log when it began, and what has been found since."""

    def __init__(
        self, log: Log, found: Cleanable, *, files: Files, pace: Pace, io_bytes: int, latest: LatestRecords, now_ms: int
    ) -> None:
        self.files = files
        self.pace = pace
        self.io_bytes = io_bytes
        self.latest = latest
        self.directory = log.directory
        self.now_ms = now_ms
        self.bytes_read = self.bytes_written = 0
        self.config: LogConfig = replace(log.config, preallocate=False)
        segments = log.segments
        self.old = [segment for segment in segments[:-1] if segment.base_offset < found.end_offset]
        self._sources = [
            _source(files, segment, following.base_offset)
            for segment, following in zip(self.old, segments[1:], strict=False)
        ]
        self.horizon_ms = removal_horizon_ms(self._sources, found.first_dirty_offset, log.config)
        first, end = self._sources[0].base_offset, found.end_offset
        self._aborted = log.aborted_transactions(first, end)
        self.transactions = Transactions(self._aborted)
        self.last_of_producers = {
            producer_id: _LastOfProducer(entry.last_offset, entry.epoch)
            for producer_id, entry in log.producer_state.producers.items()
        }

    def note_keys(self) -> None:
        """Thread: find the last record of each key in the dirty part, or in as much of it as memory has room for."""
        self._take_in_keys()
        for _ in self.latest.settle():
            self.pace.spend(0)

    def _take_in_keys(self) -> None:
        latest = self.latest
        dirty = [source for source in self._sources if source.end_offset > latest.start_offset]
        first = dirty[0].base_offset
        transactions = Transactions(transaction for transaction in self._aborted if transaction.last_offset >= first)
        for source in dirty:
            for header, batch in self._batches(source):
                try:
                    if header.is_control:
                        transactions.on_marker(header, _kind_of(batch))
                        latest.skip(header)
                    elif transactions.is_aborted(header):
                        latest.skip(header)
                    else:
                        latest.take_in(header, batch)
                except CorruptBatch as error:
                    raise CorruptLog(source.path, header.position, error.reason) from error
                if latest.is_full:
                    return
            latest.end_offset = source.end_offset

    def groups(self) -> Iterator[tuple[list[Segment], list[SourceSegment]]]:
        """Segments that become one, and the same as values."""
        old = iter(self.old)
        sources = [source for source in self._sources if source.base_offset < self.latest.end_offset]
        for group in group_segments(sources, self.config):
            yield [next(old) for _ in group], group

    def read(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Thread: the batches of a segment that is to be cleaned, each checked.  Raises CorruptLog."""
        for header, batch in self._batches(source):
            self.bytes_read += header.size
            yield header, batch

    def _batches(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        file = self.files.open(source.path)
        try:
            for header, batch in read_batches(file, 0, source.size, read_size=self.io_bytes):
                self.pace.spend(header.size)
                check_crc(file, header, batch)
                yield header, batch
        finally:
            file.close()


class _Draft:
    """What a group of segments becomes."""

    def __init__(self, cleaning: _Cleaning, sources: Sequence[SourceSegment]) -> None:
        self._cleaning = cleaning
        self._sources = sources
        self._base_offset = sources[0].base_offset
        self._buffer = bytearray()
        self._headers: list[BatchHeader] = []
        self.paths = [
            f"{cleaning.directory}/{offset_file_name(self._base_offset, kind)}{CLEANED_SUFFIX}"
            for kind in SEGMENT_SUFFIXES
        ]
        self._segment: Segment | None = None

    @property
    def segment(self) -> Segment:
        """The segment, once it has been written."""
        assert self._segment is not None
        return self._segment

    def write(self) -> None:
        """Thread: write, index and sync it.  Raises OSError, CorruptLog, CleaningGivenUp."""
        cleaning = self._cleaning
        for path in self.paths:
            cleaning.files.remove(path)  # Of a cleaning that was given up.
        segment = self._segment = Segment.create(
            cleaning.files,
            cleaning.directory,
            self._base_offset,
            cleaning.config,
            now_ms=cleaning.now_ms,
            suffix=CLEANED_SUFFIX,
        )
        for source in self._sources:
            for header, batch in cleaning.read(source):
                try:
                    left = self._left_of(header, batch, source)
                except CorruptBatch as error:
                    raise CorruptLog(source.path, header.position, error.reason) from error
                if left is batch:
                    self._take(header, batch)
                elif left is not None:
                    self._take(parse_any_header(left), left)
        self._write_buffer()
        segment.become_inactive()
        # Retention without timestamps and the age of tombstones go by this time; the sync takes it along.
        cleaning.files.set_modified_ms(segment.path(LOG_SUFFIX), self._sources[-1].modified_ms)
        for file in segment.files_to_sync():
            file.sync()
            file.close()
        segment.close()
        segment.unload_indexes()
        cleaning.files.sync_directory(cleaning.directory)

    def _left_of(self, header: BatchHeader, batch: memoryview, source: SourceSegment) -> bytes | memoryview | None:
        cleaning = self._cleaning
        horizon_ms = header.delete_horizon_ms if header.magic == 2 else None
        may_remove = source.modified_ms <= cleaning.horizon_ms if horizon_ms is None else horizon_ms <= cleaning.now_ms
        last = cleaning.last_of_producers.get(header.producer_id)
        is_last = last is not None and last.is_in(header)
        if header.is_control:
            return batch if self._keeps_marker(header, batch, may_remove=may_remove) or is_last else None
        left: bytes | memoryview | None = None
        if not cleaning.transactions.is_aborted(header):
            left = cleaning.latest.filter(header, batch, drops_tombstones=may_remove)
        return emptied(header) if left is None and is_last else left

    def _keeps_marker(self, header: BatchHeader, batch: memoryview, *, may_remove: bool) -> bool:
        kind = _kind_of(batch)
        has_data, aborted = self._cleaning.transactions.on_marker(header, kind)
        if has_data and aborted is not None:
            self.segment.transaction_index.append(aborted)
        is_of_another_kind = kind is ControlType.UNKNOWN and header.record_count > 0
        return has_data or not may_remove or is_of_another_kind

    def _take(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        self._cleaning.pace.spend(len(batch))
        header.position = len(self._buffer)
        self._headers.append(header)
        self._buffer += batch
        if len(self._buffer) >= self._cleaning.io_bytes:
            self._write_buffer()

    def _write_buffer(self) -> None:
        if self._headers:
            self._cleaning.bytes_written += len(self._buffer)
            self.segment.append(memoryview(self._buffer), self._headers)
        self._buffer, self._headers = bytearray(), []


def _kind_of(batch: memoryview) -> ControlType:
    """What a control batch says; one without a record, which Apache Kafka's cleaner leaves, says nothing."""
    record = next(iterate_records(batch), None)
    return ControlType.UNKNOWN if record is None else control_type(record)


def _source(files: Files, segment: Segment, end_offset: int) -> SourceSegment:
    return SourceSegment(
        path=segment.path(LOG_SUFFIX),
        base_offset=segment.base_offset,
        end_offset=end_offset,
        size=segment.size,
        index_size=_size_of(files, segment.path(INDEX_SUFFIX)),
        time_index_size=_size_of(files, segment.path(TIME_INDEX_SUFFIX)),
        modified_ms=segment.modified_ms,
    )


def _size_of(files: Files, path: str) -> int:
    return files.size(path) if files.exists(path) else 0
