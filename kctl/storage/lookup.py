"""Finds records in the segments of a log by offset, and aborted transactions.

Changes nothing, except that indexes are loaded, and rebuilt if they are damaged.
"""

from __future__ import annotations

from kctl.storage.files import File
from kctl.storage.segment import Segment
from kctl.storage.segments import SegmentList
from kctl.storage.transaction_index import AbortedTransaction


class RecordsSlice:
    """A byte range of a log file, for sendfile or to be read.

    The slice keeps its file open, so it stays readable when the segment is deleted.  It starts with a batch and may end
    inside of one.
    """

    __slots__ = ("_file", "_segment", "position", "size")

    def __init__(self, file: File, position: int, size: int, segment: Segment | None = None) -> None:
        self._file = file
        self._segment = segment
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        """Return the descriptor of the file; the slice is `size` bytes at `position`."""
        return self._file.fileno()

    def read(self) -> bytes:
        """Return the bytes.  Raises OSError."""
        return self._file.read_at(self.position, self.size) if self.size else b""

    def is_before_segment_of(self, offset: int, segments: SegmentList) -> bool:
        """True if the slice is in a segment before the one that contains `offset`."""
        if self._segment is None or self._segment is segments.active or self.size == 0:
            return False
        return self._segment.base_offset < segments.at(offset).base_offset

    def upper_bound(self, max_offset: int) -> int:
        """Return an offset above all records of the slice, as exact as the index allows, at most `max_offset`."""
        if self._segment is None:
            return max_offset
        offset = self._segment.indexes.offset.offset_at_or_after(self.position + self.size)
        return max_offset if offset is None else min(offset, max_offset)


def read_slice(
    segments: SegmentList, offset: int, max_bytes: int, *, max_offset: int, log_end_offset: int, min_one_batch: bool
) -> RecordsSlice:
    """Return the batches of one segment from the one that contains `offset`, up to `max_offset`.

    At most `max_bytes`, unless the first batch is larger and `min_one_batch` is set (KIP-74): otherwise a consumer with
    a small limit could not make progress.  Without `min_one_batch` a larger batch gives an empty slice, because
    consumers of old Fetch versions report an incomplete batch as an error.  Raises CorruptLog.
    """
    bound = min(max_offset, log_end_offset)
    if offset < bound:
        if bound >= log_end_offset and (position := segments.active.last_batch_at(offset)) >= 0:
            size = segments.active.size - position
            if max_bytes < size and not min_one_batch:
                size = 0
            return RecordsSlice(segments.active.file, position, size, segments.active)
        index = segments.floor_index(offset)
        for segment in segments.from_index(index):
            header = segment.locate(offset)
            if header is None:  # All batches of the segment end before it: compaction removed the last ones.
                continue
            end = _end_position(segment, bound, log_end_offset)
            size = min(max_bytes, max(end - header.position, 0))
            if size < header.size:
                size = header.size if min_one_batch and header.size <= end - header.position else 0
            return RecordsSlice(segment.file, header.position, size, segment)
    return RecordsSlice(segments.active.file, segments.active.size, 0)


def _end_position(segment: Segment, bound: int, log_end_offset: int) -> int:
    """Return the position of the first batch that reaches `bound`; a batch is visible as a whole or not at all."""
    if bound >= log_end_offset:
        return segment.size
    header = segment.locate(bound)
    return segment.size if header is None else header.position


def aborted_transactions(segments: SegmentList, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [fetch_offset, upper_bound).  Raises CorruptLog."""
    found: list[AbortedTransaction] = []
    for segment in segments.from_index(segments.floor_index(fetch_offset)):
        if not segment.transaction_index.exists:
            continue
        entries, is_complete = segment.transaction_index.collect(fetch_offset, upper_bound)
        found += entries
        if is_complete:
            break
    return found
