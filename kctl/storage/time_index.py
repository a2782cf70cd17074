"""The `.timeindex` of a segment: maps timestamps to offsets.

Entries are 12 bytes: the largest timestamp so far in ms, and the last offset of the batch that has it, minus the
segment's base offset.  Both ascend.  An entry is added with each entry of the offset index if the timestamp has grown,
and one more when the segment is closed; one slot is reserved for that.  Kafka's TimeIndex.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from kctl.errors import CorruptLog
from kctl.records.header import NO_TIMESTAMP
from kctl.storage.files import Files
from kctl.storage.index_file import IndexFile

ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qi")
_SWAP = sys.byteorder == "little"


class TimeIndex:
    """The entries as two columns in memory, read from the file by the first look-up."""

    __slots__ = ("_offsets", "_timestamps", "base_offset", "file")

    def __init__(self, files: Files, path: str, *, base_offset: int, size_max: int) -> None:
        self.file = IndexFile(files, path, entry_size=ENTRY_SIZE, size_max=size_max)
        self.base_offset = base_offset
        self._timestamps: array[int] | None = None
        self._offsets: array[int] = array("i")

    @property
    def is_full(self) -> bool:
        """True if only the slot for the final entry is left."""
        return self.file.size >= self.file.size_max - ENTRY_SIZE

    def __len__(self) -> int:
        return self.file.size // ENTRY_SIZE

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
            raise CorruptLog(self.file.path, len(data) - ENTRY_SIZE, "the last entry is smaller than the first")

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
            timestamp, relative = _ENTRY.unpack(entry) if entry else (NO_TIMESTAMP, 0)
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
        self.file.append(_ENTRY.pack(timestamp, offset - self.base_offset))

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
    count = len(data) // ENTRY_SIZE
    stamps, offsets = bytearray(8 * count), bytearray(4 * count)
    for plane in range(8):
        stamps[plane::8] = data[plane::ENTRY_SIZE]
    for plane in range(4):
        offsets[plane::4] = data[8 + plane :: ENTRY_SIZE]
    timestamps, relative = array("q", bytes(stamps)), array("i", bytes(offsets))
    if _SWAP:
        timestamps.byteswap()
        relative.byteswap()
    return timestamps, relative
