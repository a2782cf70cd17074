"""One segment of a log: a file of batches and its indexes.  Kafka's LogSegment.

The last segment of a log is active: it takes appends, and its index files are preallocated.  The others are closed:
their indexes are trimmed, and read when a look-up needs them (kctl.storage.segments.index_file).  After a clean start
the last one is closed too, until the first append.  A damaged or missing
index is rebuilt from the batches, with one warning.

Owner: event loop; recovery and cleaning use segments that are not in a log yet.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol
from weakref import WeakValueDictionary

from kctl.errors import CorruptLog
from kctl.records.header import NO_TIMESTAMP, BatchHeader
from kctl.storage.config import RELATIVE_OFFSET_MAX, LogConfig, Room
from kctl.storage.files import File, Files
from kctl.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from kctl.storage.segments.batch_reader import (
    first_offset,
    read_batches,
    read_headers,
    read_past_damage,
)
from kctl.storage.segments.draft import SegmentDraft
from kctl.storage.segments.index_file import SegmentIndexes
from kctl.storage.segments.transaction_index import TransactionIndex

# Closes files of segments when descriptors are scarce.
#
# Each segment that takes appends or has been read keeps its file open. Clients determine how many these are: a topic
# may have segments of one batch. A log directory in which no file can be opened goes offline, so that the files that
# were opened first are closed then, and opened again when they are used. Readers keep the file that they have.
#
# Descriptors belong to the process, and so does the one object here, in which several threads register segments.


CLOSED_TOGETHER = 16


class _Segment(Protocol):
    def close(self) -> None:
        """Close the file once no reader uses it, and call `closed`; the next use opens it again."""


class OpenSegments:
    """The segments with an open file."""

    def __init__(self) -> None:
        self.descriptor_max = sys.maxsize
        """With this descriptor or a larger one, descriptors are scarce: the system assigns the lowest that is free."""
        self._segments: WeakValueDictionary[int, _Segment] = WeakValueDictionary()
        """By identity; those that were opened first come first."""

    def opened(self, segment: _Segment, file: File) -> None:
        """Note that a segment has opened its file."""
        key = id(segment)
        self._segments.pop(key, None)
        if _descriptor(file) >= self.descriptor_max:
            self._close_oldest()
        self._segments[key] = segment

    def closed(self, segment: _Segment) -> None:
        """Note that a segment has closed its file."""
        self._segments.pop(id(segment), None)

    def _close_oldest(self) -> None:
        with contextlib.suppress(RuntimeError):  # Another thread registers segments: it is as scarce for the next one.
            for segment in list(islice(self._segments.values(), CLOSED_TOGETHER)):
                segment.close()


def _descriptor(file: File) -> int:
    try:
        return file.fileno()
    except OSError:  # A simulated file.
        return -1


OPEN_SEGMENTS = OpenSegments()
"""Those of this process."""


_logger = logging.getLogger(__name__)

INDEXES_FIRST = (*SEGMENT_SUFFIXES[1:], LOG_SUFFIX)
"""The offset index first and the batches last: kctl.storage.recovery.recovery infers the progress of a swap from this
order."""


class Segment:
    """The batches from `base_offset` on, in one file."""

    __slots__ = (
        "__weakref__",
        "_config",
        "_file",
        "_files",
        "_first_timestamp",
        "_has_transaction_index",
        "_last_position",
        "_last_start",
        "_made_indexes",
        "_made_transaction_index",
        "base_offset",
        "created_ms",
        "directory",
        "is_open",
        "roll_jitter_ms",
        "room",
        "size",
        "suffix",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        created_ms: int = 0,
        roll_jitter_ms: int = 0,
        has_transaction_index: bool = False,
        suffix: str = "",
    ) -> None:
        """Represent a segment that exists on the disk; `suffix` is that of a cleaner's draft."""
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._file: File | None = None
        self._config = config
        self.is_open = False
        """True if the segment can take appends: its indexes are loaded and preallocated."""
        self.room: Room | None = None
        """How far appends stay within the segment; None when it has to be found again."""
        self._made_indexes: SegmentIndexes | None = None
        self._has_transaction_index = has_transaction_index
        self._made_transaction_index: TransactionIndex | None = None
        self._first_timestamp: int | None = None
        self._last_start = base_offset
        self._last_position = -1
        """Base offset and position of the last appended batch, a shortcut for readers at the end of the log."""

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> Segment:
        """Create an empty active segment; existing files of that name are truncated."""
        segment = cls(
            files,
            directory,
            base_offset,
            config,
            size=0,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            suffix=suffix,
        )
        file = files.open(segment.path(LOG_SUFFIX), create=True)
        if file.size():
            file.truncate(0)
        if config.preallocate:
            file.truncate(config.segment_bytes)
        segment._file = file
        OPEN_SEGMENTS.opened(segment, file)
        segment._indexes.create(preallocate=not suffix)
        segment.transaction_index.clear()
        segment.is_open = True
        return segment

    def path(self, kind: str) -> str:
        """Return the path of the segment's file of one kind."""
        return f"{self.directory}/{offset_file_name(self.base_offset, kind)}{self.suffix}"

    @property
    def file(self) -> File:
        """The file of batches, opened when it is used, and again if it was closed because descriptors were scarce."""
        file = self._file
        if file is None:
            file = self._file = self._files.open(self.path(LOG_SUFFIX))
            OPEN_SEGMENTS.opened(self, file)
        return file

    @property
    def _indexes(self) -> SegmentIndexes:
        """Both indexes, made when they are first used: most segments of a broker with many partitions are idle."""
        made = self._made_indexes
        if made is None:
            made = self._made_indexes = SegmentIndexes(
                self._files,
                self.path(INDEX_SUFFIX),
                self.path(TIME_INDEX_SUFFIX),
                base_offset=self.base_offset,
                config=self._config,
            )
        return made

    @property
    def transaction_index(self) -> TransactionIndex:
        """The aborted transactions, made when they are first used."""
        made = self._made_transaction_index
        if made is None:
            made = self._made_transaction_index = TransactionIndex(
                self._files, self.path(TRANSACTION_INDEX_SUFFIX), exists=self._has_transaction_index
            )
        return made

    @property
    def indexes(self) -> SegmentIndexes:
        """Both indexes, loaded, and rebuilt if they are damaged."""
        made = self._made_indexes
        if made is None or not made.is_loaded:
            self._load_indexes()
            made = self._indexes
        return made

    @property
    def has_full_index(self) -> bool:
        """True if no more index entries fit; for the active segment."""
        indexes = self._made_indexes
        return indexes is not None and indexes.is_full

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the records in ms, or NO_TIMESTAMP."""
        try:
            return self._indexes.largest()[0]
        except (CorruptLog, FileNotFoundError):
            return self.indexes.largest()[0]

    @property
    def modified_ms(self) -> int:
        """Modification time of the file of batches in ms since the epoch."""
        return self._files.modified_ms(self.path(LOG_SUFFIX))

    @property
    def retention_timestamp(self) -> int:
        """The timestamp for retention: the largest timestamp, or the modification time if no record has a timestamp."""
        largest = self.largest_timestamp
        return largest if largest >= 0 else self.modified_ms

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the first batch in ms, or NO_TIMESTAMP; `segment.ms` counts from it."""
        if self._first_timestamp is None:
            header = next(self.headers(), None)
            if header is None:
                return NO_TIMESTAMP
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def append(self, buffer: memoryview, headers: Sequence[BatchHeader], draft: SegmentDraft | None = None) -> None:
        """Write whole batches, positioned in `buffer` by `headers`, to the end of the file.

        A draft has them already: it becomes the file of this segment, which is empty.
        """
        if not self.is_open:
            self.become_active()
        start = self.size
        if draft is None:
            self.file.write_at(start, buffer)
        else:
            assert start == 0, "only an empty segment can take another file"
            self.close()
            draft.become(self.path(LOG_SUFFIX), buffer)
        indexes = self._made_indexes
        assert indexes is not None
        for header in headers:
            if indexes.add(start + header.position, header.size, header.last_offset, header.max_timestamp):
                self.room = None
        if self._first_timestamp is None and start == 0:
            self._first_timestamp = headers[0].max_timestamp
        last = headers[-1]
        self._last_start, self._last_position = last.base_offset, start + last.position
        self.size = start + len(buffer)

    def append_one(self, batch: memoryview, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> None:
        """As `append`, for one batch, of which these values are known; the segment is not empty."""
        start = self.size
        (self._file or self.file).write_at(start, batch)
        if (self._made_indexes or self._indexes).add(start, size, last_offset, max_timestamp):
            self.room = None
        self._last_start, self._last_position = first_offset, start
        self.size = start + size

    def locate(self, offset: int) -> BatchHeader | None:
        """Return the first batch that ends at or after `offset`; None if all end before it.

        Raises CorruptLog when the log file itself is corrupt.
        """
        if offset >= self._last_start and self._last_position >= 0:
            header = next(read_headers(self.file, self._last_position, self.size), None)
            return header if header is not None and header.last_offset >= offset else None
        start = self.indexes.offset.lookup(offset)
        if start:
            try:
                return self._scan(start, offset)
            except CorruptLog as error:
                self._rebuild_after(error)
                start = self.indexes.offset.lookup(offset)
        return self._scan(start, offset)

    def last_batch_at(self, offset: int) -> int:
        """Return the position of the batch that was appended last if `offset` is in it or after it, else -1.

        It ends where the file ends, so a reader at the end of the log needs nothing from the file.
        """
        return self._last_position if offset >= self._last_start else -1

    def _scan(self, start: int, offset: int) -> BatchHeader | None:
        for header in read_headers(self.file, start, self.size):
            is_late = start and header.position == start and header.base_offset > offset
            if is_late and first_offset(self.file, header) > offset:
                raise CorruptLog(
                    self.path(INDEX_SUFFIX), 0, f"the entry for offset {offset} points past the batch that holds it"
                )
            if header.last_offset >= offset:
                return header
        return None

    def headers(self, start: int = 0) -> Iterator[BatchHeader]:
        """Yield the batch headers from a position on.  Raises CorruptLog."""
        return read_headers(self.file, start, self.size)

    def headers_before(self, offset: int, index_entries: int) -> Iterator[BatchHeader]:
        """Yield the headers of the last batches before an offset, from so many index entries before it on.

        Raises CorruptLog.
        """
        for header in self.headers(self.indexes.offset.lookup_earlier(offset, index_entries)):
            if header.base_offset >= offset:
                return
            yield header

    def batches(self, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches from a position on, with their bytes, without checking checksums.  Raises CorruptLog."""
        return read_batches(self.file, start, self.size)

    def next_offset(self) -> int:
        """Return the offset after the last record; reads from the last index entry on.  Raises CorruptLog."""
        tail = self._tail()
        return tail[-1].next_offset if tail else self.base_offset

    def _tail(self) -> list[BatchHeader]:
        """Yield the batch headers from the last index entry on."""
        start = self.indexes.offset.lookup(self.base_offset + RELATIVE_OFFSET_MAX)
        if start:
            try:
                return list(self.headers(start))
            except CorruptLog as error:
                self._rebuild_after(error)
                start = self.indexes.offset.lookup(self.base_offset + RELATIVE_OFFSET_MAX)
        return list(self.headers(start))

    def position_for_timestamp(self, timestamp: int, start_offset: int) -> int | None:
        """Return where to search for the first record at or after both `timestamp` and `start_offset`; None if not
        here.

        Raises CorruptLog as `locate` does.
        """
        if self.largest_timestamp < timestamp:
            return None
        first = self.locate(max(self.indexes.time.lookup(timestamp - 1), start_offset))
        return None if first is None else first.position

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains `offset` and all later ones; return the number of bytes removed."""
        position = self._cut_position(offset)
        self.indexes.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        removed = self.size - position
        if removed:
            self.file.truncate(position)
            self.size = position
        if self.size == 0:
            self._first_timestamp = None
        self.room = None
        self._last_start, self._last_position = self.base_offset, -1
        try:
            self._indexes.resume(self._tail())
        except CorruptLog:
            self._indexes.resume(read_past_damage(self.file, self.base_offset, self.size))
        return removed

    def _cut_position(self, offset: int) -> int:
        """Return the position of the batch that contains `offset`; if it cannot be read, the end of the last valid
        one below it.
        """
        try:
            header = self.locate(offset)
        except CorruptLog:
            headers = read_past_damage(self.file, self.base_offset, self.size)
            return max((header.end for header in headers if header.last_offset < offset), default=0)
        return self.size if header is None else header.position

    def cut_at(self, position: int) -> None:
        """Remove the bytes from `position` on, which are not batches; for recovery."""
        self.file.truncate(position)
        self.size = position

    def rebuild_indexes(self, headers: Iterator[BatchHeader] | None = None) -> None:
        """Write both indexes from `headers` (by default those of the file), up to the first corrupt batch.

        Raises CorruptLog from `headers`; the indexes then cover the batches before it.
        """
        self._indexes.rebuild(self.headers() if headers is None else headers)

    def become_inactive(self) -> bool:
        """Trim the files after the last append; return True if the time index got a final entry, which must be
        synced.
        """
        if not self.is_open:
            return False
        self.is_open = False
        has_closing_entry = self._indexes.close()
        if self._config.preallocate:
            self.file.truncate(self.size)
        return has_closing_entry

    def become_active(self) -> None:
        """Load the indexes and preallocate their files, before appends."""
        self.indexes.open_for_appends()
        self.is_open = True
        self.room = None

    def unload_indexes(self) -> None:
        """Free the memory of the indexes; not for the active segment."""
        if self._made_indexes is not None:
            self._made_indexes.unload()

    def files_to_sync(self) -> list[File]:
        """Return all files that must be synced before the recovery point may pass the segment, opened.

        A missing index is rebuilt: an empty one created in its place would be taken for a complete one.
        """
        self._indexes.write_pending()
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if not self._files.exists(self.path(kind)):
                self._rebuild_after(FileNotFoundError(errno.ENOENT, "no such file", self.path(kind)))
        kinds = [INDEX_SUFFIX, TIME_INDEX_SUFFIX]
        if self.transaction_index.exists:
            kinds.append(TRANSACTION_INDEX_SUFFIX)
        batches = self._file or self._files.open(self.path(LOG_SUFFIX))  # Not kept open.
        return [batches, *(self._files.open(self.path(kind), create=True) for kind in kinds)]

    def change_suffix(self, suffix: str, kinds: Sequence[str] = INDEXES_FIRST) -> list[str]:
        """Rename all files of the segment, by default the batches last; return their new paths.

        Readers with the file open are not affected.
        """
        new_paths: list[str] = []
        old_paths = [self.path(kind) for kind in kinds]
        self.suffix = suffix
        for kind, old_path in zip(kinds, old_paths, strict=True):
            if kind != LOG_SUFFIX and not self._files.exists(old_path):
                continue
            self._files.rename(old_path, self.path(kind))
            new_paths.append(self.path(kind))
        self._update_indexes()
        return new_paths

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory.  Readers with the file open are not affected."""
        self.directory = directory
        self._update_indexes()

    def _update_indexes(self) -> None:
        if self._made_indexes is not None:
            self._made_indexes.renamed(self.path(INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX))
        if self._made_transaction_index is not None:
            self._made_transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`, the batches first, so that a crash leaves no batches without indexes."""
        return self.change_suffix(DELETED_SUFFIX, SEGMENT_SUFFIXES)

    def remove(self) -> None:
        """Remove the files at once, the batches first."""
        for kind in SEGMENT_SUFFIXES:
            self._files.remove(self.path(kind))

    def close(self) -> None:
        """Close the file once no reader uses it."""
        OPEN_SEGMENTS.closed(self)
        self._file = None

    def _load_indexes(self) -> None:
        try:
            self._indexes.load(self.size)
        except (CorruptLog, FileNotFoundError) as error:
            self._rebuild_after(error)

    def _rebuild_after(self, error: CorruptLog | FileNotFoundError) -> None:
        _logger.warning("cannot use indexes, rebuilding them file=%s error=%s", self.path(LOG_SUFFIX), error)
        try:
            self.rebuild_indexes()
        except CorruptLog as damage:
            _logger.error(
                "cannot read all batches, leaving the damaged ones out of the indexes file=%s error=%s",
                self.path(LOG_SUFFIX),
                damage,
            )
            self.rebuild_indexes(read_past_damage(self.file, self.base_offset, self.size))
        # The segment may be below the recovery point, where recovery would not check its indexes after a power failure.
        for file in self.files_to_sync():
            file.sync()
