"""One cleaning: the work in a thread, on values taken from the log when the cleaning began.  Kafka's Cleaner.

    cleaning = Cleaning(log, ...)            loop: note segments, aborted transactions, active producers
    cleaning.note_keys()                     thread: note the last offset of each key of the dirty part
    for old, sources in cleaning.groups()    loop: adjacent segments that become one segment
        draft = Draft(cleaning, sources)
        draft.write()                        thread: write the remaining records to `.cleaned` files, with indexes; sync
        draft.segment                        loop: the segment to replace `old` with

Kept are the last record of each key, tombstones and transaction markers until their delete horizon, and the last batch
of each active producer, without records if necessary, because its sequence numbers are needed.  Offsets never change.

Closed segments are read by path and drafts are written beside them; the thread does not access the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kctl.errors import CorruptLog, KctlError
from kctl.records.batch import iterate_records, parse_any_header
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.storage.cleaning.compaction import Cleanable, SourceSegment, Transactions, group_segments, removal_horizon_ms
from kctl.storage.cleaning.compaction_batches import LatestRecords, without_records
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.log.log import Log
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
from kctl.storage.state.producer_state import NO_OFFSET, release


class CleaningAborted(KctlError):
    """The cleaning cannot continue: the log changed or the broker stops."""


class Pace(Protocol):
    """Limits the rate of a cleaning."""

    def spend(self, byte_count: int) -> None:
        """Account for `byte_count` bytes read or written; called in the thread.  Raises CleaningAborted to stop the
        cleaning.
        """
        ...


class FullSpeed:
    """A pace without a limit."""

    def spend(self, byte_count: int) -> None:
        """Return at once."""


@dataclass(frozen=True, slots=True)
class _LastOfProducer:
    """The batch that holds the state of an active producer: its last data batch, or a marker of its epoch."""

    data_offset: int
    epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        """Return whether `header` is the header of that batch."""
        if self.data_offset != NO_OFFSET:
            return header.last_offset == self.data_offset and not header.is_control
        return header.is_control and header.producer_epoch == self.epoch


class Cleaning:
    """One cleaning: the values taken from the log when it began, and its results so far."""

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
        self._first_offset, self._end_offset = first, end
        self._producers = log.producer_state.capture()
        self.last_of_producers: dict[int, _LastOfProducer] = {}

    def note_keys(self) -> None:
        """Find the last batch of each producer, and the last record of each key in the dirty part, or in as much of it
        as fits into memory.  Runs in a thread.
        """
        for entry in self._producers:
            offset = entry.last_offset
            if offset == NO_OFFSET or self._first_offset <= offset < self._end_offset:
                self.last_of_producers[entry.producer_id] = _LastOfProducer(offset, entry.epoch)
        release(self._producers)
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
                        latest.add(header, batch)
                except CorruptBatch as error:
                    raise CorruptLog(source.path, header.position, error.reason) from error
                if latest.is_full:
                    return
            latest.end_offset = source.end_offset

    def groups(self) -> Iterator[tuple[list[Segment], list[SourceSegment]]]:
        """Yield each group of segments that become one segment, as segments and as SourceSegment values."""
        old = iter(self.old)
        sources = [source for source in self._sources if source.base_offset < self.latest.end_offset]
        for group in group_segments(sources, self.config):
            yield [next(old) for _ in group], group

    def read(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of a source segment after checking their checksums.  Runs in a thread.  Raises
        CorruptLog.
        """
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


class Draft:
    """The segment that replaces a group of segments."""

    def __init__(self, cleaning: Cleaning, sources: Sequence[SourceSegment]) -> None:
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
        """The written segment."""
        assert self._segment is not None
        return self._segment

    def write(self) -> None:
        """Write, index and sync the segment.  Runs in a thread.  Raises OSError, CorruptLog, CleaningAborted."""
        cleaning = self._cleaning
        for path in self.paths:
            cleaning.files.remove(path)  # Files left by an aborted cleaning.
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
        # Retention without timestamps and the delete horizon use the modification time; the sync writes it too.
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
        return without_records(header) if left is None and is_last else left

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
