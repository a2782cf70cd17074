"""Finding records in the segments of a log: by offset, by aborted transaction.

Nothing is changed here, except that indexes are loaded, and rebuilt where they turn out to be damaged.
"""

from __future__ import annotations

from kctl.storage.files import File
from kctl.storage.segment import Segment
from kctl.storage.segments import SegmentList
from kctl.storage.transaction_index import AbortedTransaction


class RecordsSlice:
    """Bytes of a log file, for sendfile or to be read.

    The slice holds its file open, so it stays readable when the segment is deleted meanwhile.  It starts with a batch
    and may end inside of one.
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
        """The descriptor; `position` and `size` say which part of it."""
        return self._file.fileno()

    def read(self) -> bytes:
        """The bytes.  Raises OSError."""
        return self._file.read_at(self.position, self.size) if self.size else b""

    def is_before_segment_of(self, offset: int, segments: SegmentList) -> bool:
        """Whether these are records of a segment that lies before the one that holds `offset`."""
        if self._segment is None or self.size == 0:
            return False
        return self._segment.base_offset < segments.at(offset).base_offset

    def upper_bound(self, max_offset: int) -> int:
        """An offset above all of its records, as near as the index tells, and not above `max_offset`."""
        if self._segment is None:
            return max_offset
        offset = self._segment.indexes.offset.offset_at_or_after(self.position + self.size)
        return max_offset if offset is None else min(offset, max_offset)


def read_slice(
    segments: SegmentList, offset: int, max_bytes: int, *, max_offset: int, log_end_offset: int, min_one_batch: bool
) -> RecordsSlice:
    """The batches from the one that holds `offset` on, up to `max_offset`, out of one segment.

    At most `max_bytes`, unless the first batch is larger and `min_one_batch` asks for it whole: otherwise a consumer
    with a small limit would never get past it.  Without that it gets nothing, since consumers take a part of a batch
    for a broker's mistake.  Raises CorruptLog.
    """
    bound = min(max_offset, log_end_offset)
    if offset < bound:
        index = segments.floor_index(offset)
        for segment in segments.from_index(index):
            header = segment.locate(offset)
            if header is None:  # All its batches end before: compaction took the last ones.
                continue
            end = _end_position(segment, bound, log_end_offset)
            size = min(max_bytes, max(end - header.position, 0))
            if size < header.size:
                size = header.size if min_one_batch and header.size <= end - header.position else 0
            return RecordsSlice(segment.file, header.position, size, segment)
    return RecordsSlice(segments.active.file, segments.active.size, 0)


def _end_position(segment: Segment, bound: int, log_end_offset: int) -> int:
    """Where the first batch starts that reaches `bound`; a batch is visible as a whole or not at all."""
    if bound >= log_end_offset:
        return segment.size
    header = segment.locate(bound)
    return segment.size if header is None else header.position


def aborted_transactions(segments: SegmentList, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [fetch_offset, upper_bound).  Raises CorruptLog."""
    found: list[AbortedTransaction] = []
    for segment in segments.from_index(segments.floor_index(fetch_offset)):
        if not segment.transaction_index.exists:
            continue
        entries, is_complete = segment.transaction_index.collect(fetch_offset, upper_bound)
        found += entries
        if is_complete:
            break
    return found
