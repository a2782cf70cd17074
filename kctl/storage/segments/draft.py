"""A file that a thread writes with large batches, before it becomes the file of a new segment.

Writing hundreds of megabytes takes as many milliseconds.  The offset of a batch is known only when it is appended, on
the event loop: then its header is written again, whose offset and leader epoch the checksum does not cover, and the
file is renamed.  A crash before that leaves a file that the next start removes (kctl.storage.recovery.recovery).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from kctl.records.header import HEADER_SIZE
from kctl.records.validate import ValidBatches
from kctl.storage.files import File, Files
from kctl.storage.names import DRAFT_SUFFIX

_WRITTEN_AT_ONCE = 1 << 20
"""Other threads run in between."""
_numbers = count()


class SegmentDraft:
    """`write` and `remove` may be called in a thread, one after the other."""

    def __init__(self, files: Files, directory: str) -> None:
        """`directory` is that of the log."""
        self.directory = directory
        self.path = f"{directory}/batches-{next(_numbers)}{DRAFT_SUFFIX}"
        self.is_taken = False
        """Whether the file has become that of a segment."""
        self._files = files
        self._file: File | None = None

    def write(self, batches: memoryview) -> None:
        """Create the file with these batches.  Raises OSError."""
        file = self._file = self._files.open(self.path, create=True)
        for start in range(0, len(batches), _WRITTEN_AT_ONCE):
            file.write_at(start, batches[start : start + _WRITTEN_AT_ONCE])

    def become(self, path: str, batches: memoryview) -> None:
        """Write the header of the first batch again, and rename the file.  Raises OSError."""
        assert self._file is not None, "write first"
        self._file.write_at(0, batches[:HEADER_SIZE])
        self._files.rename(self.path, path)
        self.is_taken, self._file = True, None

    def with_batches(self, valid: ValidBatches) -> DraftedBatches:
        """Create the file, and return the batches with it.  Raises OSError."""
        self.write(valid.buffer)
        return DraftedBatches(valid.buffer, valid.headers, valid.is_converted, draft=self)

    def remove(self) -> None:
        """Remove a file that was not taken.  Raises OSError."""
        self._file = None
        self._files.remove(self.path)


@dataclass(slots=True, kw_only=True)
class DraftedBatches(ValidBatches):
    """Batches that are in a file already."""

    draft: SegmentDraft
