"""The file of an index of a segment: fixed-size entries, preallocated with zeros while the segment is active.

New entries are buffered and written a block at a time.  That is safe because an index is only used unchecked after a
clean shutdown or when its segment is below the recovery point, and both write and sync it first; recovery rebuilds all
others from the log.  The file is opened for each block and closed again, so idle logs hold no descriptors.
"""

from __future__ import annotations

from kctl.errors import CorruptLog
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
