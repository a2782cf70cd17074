"""The file of an index of a segment: fixed-size entries, preallocated with zeros while the segment is active.

New entries are buffered and written a block at a time.  That is safe because an index is only used unchecked after a
clean shutdown or when its segment is below the recovery point, and both write and sync it first; recovery rebuilds all
others from the log.  The file is opened for each block and closed again, so idle logs hold no descriptors.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kctl.errors import CorruptLog
from kctl.records.header import NO_TIMESTAMP, BatchHeader
from kctl.storage.config import LogConfig
from kctl.storage.files import Files

_PENDING_MAX = 4096


class IndexFile:
    """Entries of `entry_size` bytes in a file of at most `size_max` bytes."""

    __slots__ = ("_files", "_pending", "_written", "entry_size", "path", "size_max")

    def __init__(self, files: Files, path: str, *, entry_size: int, size_max: int) -> None:
        self._files = files
        self.path = path
        self.entry_size = entry_size
        self.size_max = size_max - size_max % entry_size
        self._pending = bytearray()
        self._written = 0

    @property
    def size(self) -> int:
        """Bytes of all entries, including buffered ones."""
        return self._written + len(self._pending)

    def create(self, *, preallocate: bool) -> None:
        """Create an index without entries, replacing an existing file."""
        self._pending.clear()
        self._written = 0
        file = self._files.open(self.path, create=True)
        try:
            if file.size():
                file.truncate(0)
            if preallocate:
                file.truncate(self.size_max)
        finally:
            file.close()

    def read(self) -> bytes:
        """Return all entries without the zeros at the end.  Raises CorruptLog, FileNotFoundError."""
        data = self._files.read(self.path)
        if len(data) % self.entry_size:
            raise CorruptLog(self.path, len(data), f"size is not a multiple of {self.entry_size}")
        size = len(data.rstrip(b"\0"))
        self._written = -(-size // self.entry_size) * self.entry_size
        self._pending.clear()
        return data[: self._written]

    def read_last(self) -> bytes:
        """Return the last entry of a trimmed file, empty if there is none.  Raises CorruptLog, FileNotFoundError."""
        file = self._files.open(self.path)
        try:
            size = file.size()
            if size % self.entry_size:
                raise CorruptLog(self.path, size, f"size is not a multiple of {self.entry_size}")
            return file.read_at(size - self.entry_size, self.entry_size) if size else b""
        finally:
            file.close()

    def append(self, entry: bytes) -> None:
        """Add an entry.  Raises OSError when a block is full and cannot be written."""
        self._pending += entry
        if len(self._pending) >= _PENDING_MAX:
            self.write_pending()

    def write_pending(self) -> None:
        """Write all buffered entries to the file."""
        if self._pending:
            file = self._files.open(self.path, create=True)
            try:
                file.write_at(self._written, self._pending)
            finally:
                file.close()
            self._written += len(self._pending)
            self._pending.clear()

    def cut(self, entry_count: int) -> None:
        """Keep the first `entry_count` entries and truncate the file."""
        self.write_pending()
        self._written = entry_count * self.entry_size
        self._set_length(self._written)

    def trim(self) -> None:
        """Truncate the preallocated space after the entries."""
        self.write_pending()
        self._set_length(self._written)

    def preallocate(self) -> None:
        """Extend the file with zeros to its full size."""
        self._set_length(self.size_max)

    def _set_length(self, size: int) -> None:
        file = self._files.open(self.path, create=True)
        try:
            if file.size() != size:
                file.truncate(size)
        finally:
            file.close()


# The `.index` of a segment: maps offsets to file positions.
#
# Entries are 8 bytes: the last offset of a batch minus the segment's base offset, and the position of the batch. Both
# ascend. The index is sparse: one entry for the first batch after every `index.interval.bytes`. Kafka's OffsetIndex.


OFFSET_ENTRY_SIZE = 8
_OFFSET_ENTRY = struct.Struct(">ii")
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """The entries as two columns in memory, read from the file by the first look-up."""

    __slots__ = ("_offsets", "_positions", "base_offset", "file")

    def __init__(self, files: Files, path: str, *, base_offset: int, size_max: int) -> None:
        self.file = IndexFile(files, path, entry_size=OFFSET_ENTRY_SIZE, size_max=size_max)
        self.base_offset = base_offset
        self._offsets: array[int] | None = None
        self._positions: array[int] = array("i")

    @property
    def is_full(self) -> bool:
        """True if no more entries fit."""
        return self.file.size >= self.file.size_max

    def __len__(self) -> int:
        return self.file.size // OFFSET_ENTRY_SIZE

    def create(self, *, preallocate: bool) -> None:
        """Create an index without entries."""
        self._offsets, self._positions = array("i"), array("i")
        self.file.create(preallocate=preallocate)

    def load(self, log_size: int) -> None:
        """Read the entries.  Raises CorruptLog when they cannot belong to a log file of this size."""
        columns = array("i", self.file.read())
        if _SWAP:
            columns.byteswap()
        offsets, positions = columns[0::2], columns[1::2]
        # Kafka checks the last entry only; the segment checks the result of a look-up against the log.
        if offsets and not (offsets[0] >= 0 and offsets[-1] >= offsets[0] and 0 <= positions[-1] < log_size):
            last = len(positions) - 1
            raise CorruptLog(
                self.file.path,
                last * OFFSET_ENTRY_SIZE,
                f"last entry (offset {offsets[-1]}, position {positions[-1]}) does not fit the log file",
            )
        self._offsets, self._positions = offsets, positions

    def unload(self) -> None:
        """Free the memory; the next look-up reads the file again."""
        self.file.write_pending()
        self._offsets, self._positions = None, array("i")

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offset and position must be larger than those of all others."""
        assert self._offsets is not None
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)
        self.file.append(_OFFSET_ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> int:
        """Return the position of the last entry at or below `offset`; 0 if there is none."""
        assert self._offsets is not None
        slot = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def lookup_earlier(self, offset: int, entries: int) -> int:
        """Return the position of the entry that is `entries` before that of `lookup`; 0 if there is none."""
        assert self._offsets is not None
        slot = bisect_right(self._offsets, offset - self.base_offset) - entries
        return self._positions[slot - 1] if slot > 0 else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """Return the offset of the first entry whose batch starts at or after `position`; None if there is none."""
        assert self._offsets is not None
        slot = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[slot] if slot < len(self._offsets) else None

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset` and truncate the file."""
        assert self._offsets is not None
        count = bisect_left(self._offsets, offset - self.base_offset)
        del self._offsets[count:]
        del self._positions[count:]
        self.file.cut(count)


# The `.timeindex` of a segment: maps timestamps to offsets.
#
# Entries are 12 bytes: the largest timestamp so far in ms, and the last offset of the batch that has it, minus the
# segment's base offset. Both ascend. An entry is added with each entry of the offset index if the timestamp has
# grown, and one more when the segment is closed; one slot is reserved for that. Kafka's TimeIndex.


TIME_ENTRY_SIZE = 12
_TIME_ENTRY = struct.Struct(">qi")


class TimeIndex:
    """The entries as two columns in memory, read from the file by the first look-up."""

    __slots__ = ("_offsets", "_timestamps", "base_offset", "file")

    def __init__(self, files: Files, path: str, *, base_offset: int, size_max: int) -> None:
        self.file = IndexFile(files, path, entry_size=TIME_ENTRY_SIZE, size_max=size_max)
        self.base_offset = base_offset
        self._timestamps: array[int] | None = None
        self._offsets: array[int] = array("i")

    @property
    def is_full(self) -> bool:
        """True if only the slot for the final entry is left."""
        return self.file.size >= self.file.size_max - TIME_ENTRY_SIZE

    def __len__(self) -> int:
        return self.file.size // TIME_ENTRY_SIZE

    def create(self, *, preallocate: bool) -> None:
        """Create an index without entries."""
        self._timestamps, self._offsets = array("q"), array("i")
        self.file.create(preallocate=preallocate)

    def load(self) -> None:
        """Read the entries.  Raises CorruptLog when the last one is not the largest."""
        data = self.file.read()
        self._timestamps, self._offsets = _columns(data)
        stamps, offsets = self._timestamps, self._offsets
        if stamps and (stamps[-1] < stamps[0] or offsets[-1] < offsets[0] or offsets[0] < 0):
            self._timestamps = None
            raise CorruptLog(self.file.path, len(data) - TIME_ENTRY_SIZE, "the last entry is smaller than the first")

    def unload(self) -> None:
        """Free the memory; the next look-up reads the file again."""
        self.file.write_pending()
        self._timestamps, self._offsets = None, array("i")

    def last(self) -> tuple[int, int]:
        """Return (largest timestamp, offset), or (NO_TIMESTAMP, base offset) without entries.  Reads only the last
        entry.
        """
        if self._timestamps is None:
            entry = self.file.read_last()
            timestamp, relative = _TIME_ENTRY.unpack(entry) if entry else (NO_TIMESTAMP, 0)
            return timestamp, self.base_offset + relative
        if not self._timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def append(self, timestamp: int, offset: int, *, closing: bool = False) -> None:
        """Add an entry if `timestamp` has grown and there is room; `closing` may use the reserved slot."""
        assert self._timestamps is not None
        if self._timestamps and timestamp <= self._timestamps[-1]:
            return
        if timestamp == NO_TIMESTAMP or (self.is_full and not closing):
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)
        self.file.append(_TIME_ENTRY.pack(timestamp, offset - self.base_offset))

    def lookup(self, timestamp: int) -> int:
        """Return the offset of the last entry at or below `timestamp`; the base offset if there is none.

        No record before that offset has a larger timestamp.
        """
        assert self._timestamps is not None
        slot = bisect_right(self._timestamps, timestamp)
        return self.base_offset + (self._offsets[slot - 1] if slot else 0)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset` and truncate the file."""
        assert self._timestamps is not None
        count = bisect_left(self._offsets, offset - self.base_offset)
        del self._timestamps[count:]
        del self._offsets[count:]
        self.file.cut(count)


def _columns(data: bytes) -> tuple[array[int], array[int]]:
    """Return both columns of 12-byte entries; gathers byte planes, to avoid a Python loop over entries."""
    count = len(data) // TIME_ENTRY_SIZE
    stamps, offsets = bytearray(8 * count), bytearray(4 * count)
    for plane in range(8):
        stamps[plane::8] = data[plane::TIME_ENTRY_SIZE]
    for plane in range(4):
        offsets[plane::4] = data[8 + plane :: TIME_ENTRY_SIZE]
    timestamps, relative = array("q", bytes(stamps)), array("i", bytes(offsets))
    if _SWAP:
        timestamps.byteswap()
        relative.byteswap()
    return timestamps, relative


# The offset index and the time index of a segment, which are changed together.
#
#     offset index    an entry for the first batch after every `index.interval.bytes`
#   time index      with each of them the largest timestamp so far, if it has grown; one more when the segment is closed
#
# The largest timestamp of the batches after the last entry is in no file: it is kept in memory, and `resume`
# recomputes it after a truncation. While the segment is active both indexes are in memory and their files
# preallocated; afterwards the files are trimmed, and the memory may be freed until a look-up needs it.
#
# Indexes can be rebuilt from the batches. The segment does that, because it has the batches; the methods here raise
# errors for damaged files. Kafka's LogSegment with its LazyIndexes.


class SegmentIndexes:
    """The indexes of one segment.  Owner: that of the segment."""

    __slots__ = (
        "_base_offset",
        "_bytes_since_entry",
        "_interval_bytes",
        "_largest",
        "is_full",
        "is_loaded",
        "offset",
        "time",
    )

    def __init__(self, files: Files, offset_path: str, time_path: str, *, base_offset: int, config: LogConfig) -> None:
        """Indexes that exist on the disk; they are not loaded."""
        self._base_offset = base_offset
        self._interval_bytes = config.index_interval_bytes
        size_max = config.segment_index_bytes
        self.offset = OffsetIndex(files, offset_path, base_offset=base_offset, size_max=size_max)
        self.time = TimeIndex(files, time_path, base_offset=base_offset, size_max=size_max)
        self.is_loaded = False
        """True if both are in memory, as look-ups need."""
        self.is_full = False
        """True if no more entries fit; for active segments."""
        self._bytes_since_entry = 0
        self._largest: tuple[int, int] | None = None

    def create(self, *, preallocate: bool) -> None:
        """Create both without entries."""
        self.offset.create(preallocate=preallocate)
        self.time.create(preallocate=preallocate)
        self.is_loaded = True
        self._largest = (NO_TIMESTAMP, self._base_offset)
        self._bytes_since_entry = 0

    def load(self, log_size: int) -> None:
        """Read both.  Raises CorruptLog, FileNotFoundError."""
        self.offset.load(log_size)
        self.time.load()
        self.is_loaded = True

    def unload(self) -> None:
        """Free the memory except the largest timestamp; not for the active segment."""
        if self.is_loaded:
            self.largest()
            self.offset.unload()
            self.time.unload()
            self.is_loaded = False

    def largest(self) -> tuple[int, int]:
        """Return (largest timestamp, last offset of its batch); (NO_TIMESTAMP, base offset) if no record has a
        timestamp.

        For a closed segment only the last entry is read.  Raises CorruptLog, FileNotFoundError.
        """
        if self._largest is None:
            self._largest = self.time.last()
        return self._largest

    def add(self, position: int, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Add entries for a batch of `size` bytes appended at `position`, if they are due; return whether they were."""
        largest = self._largest
        assert largest is not None
        if max_timestamp > largest[0]:
            largest = self._largest = (max_timestamp, last_offset)
        is_due = self._bytes_since_entry > self._interval_bytes and not self.offset.is_full
        if is_due:
            self.offset.append(last_offset, position)
            self.time.append(*largest)
            self._bytes_since_entry = 0
            self.is_full = self.offset.is_full or self.time.is_full
        self._bytes_since_entry += size
        return is_due

    def rebuild(self, headers: Iterable[BatchHeader]) -> None:
        """Write both from `headers` and close them, even if iterating raises."""
        self.create(preallocate=False)
        try:
            for header in headers:
                self.add(header.position, header.size, header.last_offset, header.max_timestamp)
        finally:
            self.close()

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`; call `resume` next."""
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)
        self._largest = None
        self._bytes_since_entry = 0

    def resume(self, tail: Iterable[BatchHeader]) -> None:
        """Restore the largest timestamp after a truncation; `tail` are the batches from the last entry on."""
        largest = self.time.last()
        for header in tail:
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        self._largest = largest

    def open_for_appends(self) -> None:
        """Preallocate the files."""
        self.largest()
        self.is_full = self.offset.is_full or self.time.is_full
        self.offset.file.preallocate()
        self.time.file.preallocate()

    def close(self) -> bool:
        """Add the final time index entry and trim the files; return True if the entry was added."""
        entries = len(self.time)
        if self.is_loaded:
            self.time.append(*self.largest(), closing=True)
        self.offset.file.trim()
        self.time.file.trim()
        return len(self.time) != entries

    def write_pending(self) -> None:
        """Write all buffered entries to the files."""
        self.offset.file.write_pending()
        self.time.file.write_pending()

    def renamed(self, offset_path: str, time_path: str) -> None:
        """Use the new paths of the files."""
        self.offset.file.path = offset_path
        self.time.file.path = time_path
