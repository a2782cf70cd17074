"""One cleaning: the work of a thread or a process, on values taken from the log when it began.  Kafka's Cleaner.

    task = CleaningTask.of(log, ...)         loop: note segments and aborted transactions
    cleaning = Cleaning(task, ...)
    cleaning.note_keys(producers)            worker: note the last offset of each key of the dirty part
    for first, end in task.groups(offset)    loop: adjacent segments that become one segment
        cleaning.write(first, end)           worker: write the remaining records to `.cleaned` files, with indexes; sync

Kept are the last record of each key, tombstones and transaction markers until their delete horizon, and the last batch
of each active producer, without records if necessary, because its sequence numbers are needed.  Offsets never change.

Closed segments are read by path and drafts are written beside them; the worker does not access the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kctl.errors import CorruptLog, KctlError
from kctl.records.batch import iterate_records, parse_any_header
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.storage.cleaning.compaction import Cleanable, SourceSegment, Transactions, group_segments, removal_horizon_ms
from kctl.storage.cleaning.compaction_batches import LatestRecords, without_records
from kctl.storage.cleaning.pace import Pace
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    offset_file_name,
)
from kctl.storage.segments.batch_reader import check_crc, read_batches
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.producer_state import NO_OFFSET, ProducerEntry, release

if TYPE_CHECKING:
    from kctl.storage.log.log import Log

_IO_BYTES_MIN = 4096


class CleaningAborted(KctlError):
    """The cleaning cannot continue: the log changed or the broker stops."""


class WorkerEnded(KctlError):
    """The process that did the work has ended; the log is unchanged, and can be cleaned again."""


class CleanerBuffers(NamedTuple):
    """Memory that one cleaning may use."""

    keys_bytes: int = 128 << 20
    """More than Kafka needs per key; kctl.records.compiled.key_table has the size of an entry."""
    io_bytes: int = 256 << 10
    """Size of the read buffer and of the write buffer; a larger batch is read and written as a whole."""


class ProducerBatch(NamedTuple):
    """The batch that holds the state of an active producer: its last data batch, or a marker of its epoch."""

    producer_id: int
    data_offset: int
    epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        """Return whether `header` is the header of that batch."""
        if self.data_offset != NO_OFFSET:
            return header.last_offset == self.data_offset and not header.is_control
        return header.is_control and header.producer_epoch == self.epoch


class CleaningTask(NamedTuple):
    """What a cleaning has to know of the log, in values that can be sent to another process."""

    directory: str
    config: LogConfig
    first_dirty_offset: int
    end_offset: int
    """That of the cleanable part."""
    sources: tuple[SourceSegment, ...]
    aborted: array[int]
    """The fields of the aborted transactions, one after the other."""
    horizon_ms: int
    now_ms: int
    buffers: CleanerBuffers
    secret: bytes
    """From which the digests of keys are made."""

    @classmethod
    def of(
        cls, log: Log, found: Cleanable, files: Files, buffers: CleanerBuffers, secret: bytes, now_ms: int
    ) -> CleaningTask:
        """Take the values from a log.  Raises OSError, LogDirFailure."""
        sources = tuple(
            _source(files, segment, following.base_offset)
            for segment, following in pairwise(log.segments)
            if segment.base_offset < found.end_offset
        )
        aborted = array("q")
        for transaction in log.aborted_transactions(sources[0].base_offset, found.end_offset):
            aborted.extend(transaction)
        return cls(
            log.directory,
            replace(log.config, preallocate=False),
            found.first_dirty_offset,
            found.end_offset,
            sources,
            aborted,
            removal_horizon_ms(sources, found.first_dirty_offset, log.config),
            now_ms,
            buffers,
            secret,
        )

    @property
    def size(self) -> int:
        """The bytes that are read at least once."""
        return sum(source.size for source in self.sources)

    def groups(self, end_offset: int) -> Iterator[tuple[int, int]]:
        """Yield the groups of sources before `end_offset` that become one segment each, by first and end index."""
        first = 0
        for group in group_segments(
            [source for source in self.sources if source.base_offset < end_offset], self.config
        ):
            yield first, first + len(group)
            first += len(group)

    def draft_paths(self, first: int) -> list[str]:
        """Return the paths of the files that replace the sources from the index `first` on."""
        base_offset = self.sources[first].base_offset
        return [f"{self.directory}/{offset_file_name(base_offset, kind)}{CLEANED_SUFFIX}" for kind in SEGMENT_SUFFIXES]


class NotedKeys(NamedTuple):
    """The result of the first pass."""

    end_offset: int
    """The first offset that is not cleaned this time."""
    key_count: int
    memory_bytes: int
    """The memory for keys that was used."""


class WrittenSegment(NamedTuple):
    """A segment that was written and synced, under names with the suffix of drafts."""

    base_offset: int
    size: int
    has_transaction_index: bool
    bytes_read: int


class CleaningWork(Protocol):
    """The work of one cleaning; all methods but `close` block, and run outside of the event loop."""

    def note_keys(self, producers: list[ProducerEntry]) -> NotedKeys:
        """Find the last record of each key; takes the producers, as `ProducerState.capture` returned them, apart.

        Raises OSError, CorruptLog, CleaningAborted, WorkerEnded.
        """
        ...

    def write(self, first: int, end: int) -> WrittenSegment:
        """Write the segment that replaces these sources.  Raises OSError, CorruptLog, CleaningAborted, WorkerEnded."""
        ...

    def close(self) -> None:
        """End the work; called on the event loop, once."""


def producer_batches(producers: list[ProducerEntry], task: CleaningTask) -> Iterator[ProducerBatch]:
    """Yield the batches that hold the state of producers and may be in the task; frees the entries at the end."""
    first_offset = task.sources[0].base_offset
    for entry in producers:
        offset = entry.last_offset
        if offset == NO_OFFSET or first_offset <= offset < task.end_offset:
            yield ProducerBatch(entry.producer_id, offset, entry.epoch)
    release(producers)


class Cleaning:
    """The work on one task, in this process."""

    def __init__(self, task: CleaningTask, *, files: Files, pace: Pace) -> None:
        self.task = task
        self.files = files
        self.pace = pace
        self.io_bytes = max(task.buffers.io_bytes, _IO_BYTES_MIN)
        self.latest = LatestRecords(
            task.first_dirty_offset,
            memory_bytes=task.buffers.keys_bytes,
            secret=task.secret,
            pause=lambda: pace.spend(0),
        )
        fields = iter(task.aborted)
        self._aborted = [AbortedTransaction(*values) for values in zip(fields, fields, fields, fields, strict=True)]
        self.transactions = Transactions(self._aborted)
        self.last_of_producers: dict[int, ProducerBatch] = {}

    def note_keys(self, producers: list[ProducerEntry]) -> NotedKeys:
        """Implement CleaningWork."""
        return self.note_keys_beside(producer_batches(producers, self.task))

    def note_keys_beside(self, batches: Iterable[ProducerBatch]) -> NotedKeys:
        """Find the last record of each key in the dirty part, or in as much of it as fits into memory."""
        self.last_of_producers = {batch.producer_id: batch for batch in batches}
        self._note_keys()
        return NotedKeys(self.latest.end_offset, len(self.latest), self.latest.memory_bytes)

    def _note_keys(self) -> None:
        latest = self.latest
        dirty = [source for source in self.task.sources if source.end_offset > latest.start_offset]
        first = dirty[0].base_offset
        transactions = Transactions(transaction for transaction in self._aborted if transaction.last_offset >= first)
        for source in dirty:
            for header, batch in self.read(source):
                try:
                    if header.is_control:
                        transactions.on_marker(header, _kind_of(batch))
                        latest.skip(header)
                    elif transactions.is_aborted(header):
                        latest.skip(header)
                    else:
                        latest.add(header, batch)
                except CorruptBatch as error:
                    raise CorruptLog(source.path, header.position, error.reason) from error
                if latest.is_full:
                    return
            latest.end_offset = source.end_offset

    def write(self, first: int, end: int) -> WrittenSegment:
        """Implement CleaningWork."""
        return _Draft(self, self.task.sources[first:end], self.task.draft_paths(first)).write()

    def close(self) -> None:
        """Return at once: nothing is held but memory."""

    def read(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of a source segment after checking their checksums.  Raises CorruptLog."""
        file = self.files.open(source.path)
        try:
            for header, batch in read_batches(file, 0, source.size, read_size=self.io_bytes):
                self.pace.spend(header.size)
                check_crc(file, header, batch)
                yield header, batch
        finally:
            file.close()


class _Draft:
    """The segment that replaces a group of segments."""

    def __init__(self, cleaning: Cleaning, sources: Sequence[SourceSegment], paths: Sequence[str]) -> None:
        self._cleaning = cleaning
        self._sources = sources
        self._paths = paths
        self._buffer = bytearray()
        self._headers: list[BatchHeader] = []
        self._bytes_read = 0
        task = cleaning.task
        for path in paths:
            cleaning.files.remove(path)  # Files left by an aborted cleaning.
        self._segment = Segment.create(
            cleaning.files,
            task.directory,
            sources[0].base_offset,
            task.config,
            now_ms=task.now_ms,
            suffix=CLEANED_SUFFIX,
        )

    def write(self) -> WrittenSegment:
        """Write, index and sync the segment.  Raises OSError, CorruptLog, CleaningAborted."""
        cleaning, segment = self._cleaning, self._segment
        for source in self._sources:
            for header, batch in cleaning.read(source):
                self._bytes_read += header.size
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
        # Retention without timestamps and the delete horizon use the modification time; the sync writes it too.
        cleaning.files.set_modified_ms(segment.path(LOG_SUFFIX), self._sources[-1].modified_ms)
        for file in segment.files_to_sync():
            file.sync()
            file.close()
        segment.close()
        segment.unload_indexes()
        cleaning.files.sync_directory(cleaning.task.directory)
        return WrittenSegment(segment.base_offset, segment.size, segment.transaction_index.exists, self._bytes_read)

    def _left_of(self, header: BatchHeader, batch: memoryview, source: SourceSegment) -> bytes | memoryview | None:
        cleaning, task = self._cleaning, self._cleaning.task
        horizon_ms = header.delete_horizon_ms if header.magic == 2 else None
        may_remove = source.modified_ms <= task.horizon_ms if horizon_ms is None else horizon_ms <= task.now_ms
        last = cleaning.last_of_producers.get(header.producer_id)
        is_last = last is not None and last.is_in(header)
        if header.is_control:
            return batch if self._keeps_marker(header, batch, may_remove=may_remove) or is_last else None
        left: bytes | memoryview | None = None
        if not cleaning.transactions.is_aborted(header):
            left = cleaning.latest.filter(header, batch, drops_tombstones=may_remove)
        return without_records(header) if left is None and is_last else left

    def _keeps_marker(self, header: BatchHeader, batch: memoryview, *, may_remove: bool) -> bool:
        kind = _kind_of(batch)
        has_data, aborted = self._cleaning.transactions.on_marker(header, kind)
        if has_data and aborted is not None:
            self._segment.transaction_index.append(aborted)
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
            self._segment.append(memoryview(self._buffer), self._headers)
        self._buffer, self._headers = bytearray(), []


def _kind_of(batch: memoryview) -> ControlType:
    """Return the control type; UNKNOWN for a batch without records, which Apache Kafka's cleaner leaves."""
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
