"""The offset index and the time index of a segment, which are changed together.

    offset index    an entry for the first batch after every `index.interval.bytes`
    time index      with each of them the largest timestamp so far, if it has grown; one more when the segment is closed

The largest timestamp of the batches after the last entry is in no file: it is kept in memory, and `resume` recomputes
it after a truncation.  While the segment is active both indexes are in memory and their files preallocated; afterwards
the files are trimmed, and the memory may be freed until a look-up needs it.

Indexes can be rebuilt from the batches.  The segment does that, because it has the batches; the methods here raise
errors for damaged files.  Kafka's LogSegment with its LazyIndexes.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.records.header import NO_TIMESTAMP, BatchHeader
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.offset_index import OffsetIndex
from kctl.storage.time_index import TimeIndex


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

    def add(self, header: BatchHeader, position: int) -> None:
        """Add entries for a batch appended at `position`, if they are due."""
        largest = self._largest
        assert largest is not None
        if header.max_timestamp > largest[0]:
            largest = self._largest = (header.max_timestamp, header.last_offset)
        if self._bytes_since_entry > self._interval_bytes and not self.offset.is_full:
            self.offset.append(header.last_offset, position)
            self.time.append(*largest)
            self._bytes_since_entry = 0
            self.is_full = self.offset.is_full or self.time.is_full
        self._bytes_since_entry += header.size

    def rebuild(self, headers: Iterable[BatchHeader]) -> None:
        """Write both from `headers` and close them, even if iterating raises."""
        self.create(preallocate=False)
        try:
            for header in headers:
                self.add(header, header.position)
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
