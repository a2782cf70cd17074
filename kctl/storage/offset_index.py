"""The `.index` of a segment: maps offsets to file positions.

Entries are 8 bytes: the last offset of a batch minus the segment's base offset, and the position of the batch.  Both
ascend.  The index is sparse: one entry for the first batch after every `index.interval.bytes`.  Kafka's OffsetIndex.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from kctl.errors import CorruptLog
from kctl.storage.files import Files
from kctl.storage.index_file import IndexFile

ENTRY_SIZE = 8
_ENTRY = struct.Struct(">ii")
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """The entries as two columns in memory, read from the file by the first look-up."""

    __slots__ = ("_offsets", "_positions", "base_offset", "file")

    def __init__(self, files: Files, path: str, *, base_offset: int, size_max: int) -> None:
        self.file = IndexFile(files, path, entry_size=ENTRY_SIZE, size_max=size_max)
        self.base_offset = base_offset
        self._offsets: array[int] | None = None
        self._positions: array[int] = array("i")

    @property
    def is_full(self) -> bool:
        """True if no more entries fit."""
        return self.file.size >= self.file.size_max

    def __len__(self) -> int:
        return self.file.size // ENTRY_SIZE

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
                last * ENTRY_SIZE,
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
        self.file.append(_ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> int:
        """Return the position of the last entry at or below `offset`; 0 if there is none."""
        assert self._offsets is not None
        slot = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

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
