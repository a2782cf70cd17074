"""Finds records in a log by offset and by timestamp."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kctl.errors import CorruptLog
from kctl.limits import DECOMPRESSED_BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX
from kctl.records.allowance import Allowance, decompressed_size_max
from kctl.records.batch import iterate_plain, parse_any_header, records_region
from kctl.records.header import CODEC_MASK, BatchHeader, BatchTooLarge, CorruptBatch, Record
from kctl.records.old_formats.legacy import iterate_messages
from kctl.storage.files import File
from kctl.storage.segments.batch_reader import read_headers
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.segments import SegmentList
from kctl.storage.segments.transaction_index import AbortedTransaction

# Finds records in the segments of a log by offset, and aborted transactions.
#
# Changes nothing, except that indexes are loaded, and rebuilt if they are damaged.


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
        """Return whether the slice is in a segment before the one that contains `offset`."""
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


# Finds the first record at or after a timestamp.
#
# The indexes give a starting position; from there batches are read. That may take long: batches are decompressed, and
# a producer may have set a max timestamp that no record has. The search is therefore divided into scans of bounded
# cost. `TimestampSearch` selects them on the event loop; a `TimestampScan` only reads an open file and can run in a
# thread.


SCAN_BYTES_MAX = 2 * DECOMPRESSED_BATCH_BYTES_MAX
"""Memory in bytes that one scan with the allowance of `scan_allowance` uses at most: a batch and its plain records."""


def scan_allowance() -> Allowance:
    """Return an allowance that is enough for any batch within the bounds of kctl.limits."""
    return Allowance(DECOMPRESSED_BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX)


class TimestampOffset(NamedTuple):
    """The record that was found."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampScan:
    """A scan over the batches of one segment from a position on."""

    def __init__(
        self, file: File, position: int, end: int, timestamp: int, *, start_offset: int, max_offset: int
    ) -> None:
        self.found: TimestampOffset | None = None
        self.is_done = False
        self._file = file
        self._position = position
        self._end = end
        self._timestamp = timestamp
        self._start_offset = start_offset
        self._max_offset = max_offset

    def run(self, allowance: Allowance) -> None:
        """Read until the record is found, the segment ends (`is_done`) or the allowance is used up.

        Raises OSError, and CorruptLog for damage or a batch that exceeds the bounds of kctl.limits.
        """
        for header in read_headers(self._file, self._position, self._end):
            self._position = header.position
            if header.base_offset >= self._max_offset:
                break
            if header.max_timestamp >= self._timestamp and header.last_offset >= self._start_offset:
                if not self._search_batch(header, allowance):
                    return
                if self.found is not None:
                    break
            elif allowance.records <= 0:
                return
            allowance.records -= 1
        self.is_done = True

    def _search_batch(self, header: BatchHeader, allowance: Allowance) -> bool:
        """Search one batch; return False if the allowance was not enough."""
        bound = decompressed_size_max(header.size)
        size_max = min(allowance.plain_bytes, bound)
        if header.record_count > RECORDS_PER_BATCH_MAX or header.size > DECOMPRESSED_BATCH_BYTES_MAX:
            reason = f"{header.record_count} records in {header.size} bytes are too many for a search"
            raise CorruptLog(self._file.path, header.position, reason)
        if header.record_count > allowance.records or header.size > allowance.plain_bytes:
            return False
        try:
            for record in _records(self._file.read_at(header.position, header.size), size_max, allowance):
                if record.timestamp >= self._timestamp and record.offset >= self._start_offset:
                    self.found = TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
                    break
        except CorruptBatch as error:
            if isinstance(error, BatchTooLarge) and size_max < bound:
                return False
            raise CorruptLog(self._file.path, header.position, error.reason) from error
        return True


def _records(batch: bytes, size_max: int, allowance: Allowance) -> Iterator[Record]:
    header = parse_any_header(batch)
    if header.magic != 2:
        count_max = allowance.records if header.attributes & CODEC_MASK else 1
        allowance.records -= count_max
        return iterate_messages(batch, header, size_max=size_max, count_max=count_max)
    plain = bytes(records_region(batch, header, size_max))
    allowance.plain_bytes -= len(plain)
    allowance.records -= header.record_count
    return iterate_plain(plain, header)


class TimestampSearch:
    """A search over the segments of a log.  Owner: event loop."""

    def __init__(self, segments: Iterable[Segment], timestamp: int, *, log_start_offset: int, max_offset: int) -> None:
        self.found: TimestampOffset | None = None
        """The first record at or after the timestamp within [log_start_offset, max_offset), once there are no more
        scans.
        """
        self._segments = deque(segments)
        self._timestamp = timestamp
        self._start_offset = log_start_offset
        self._max_offset = max_offset
        self._scan: TimestampScan | None = None

    def next_scan(self) -> TimestampScan | None:
        """Return the scan to run next, the same one again if it is not done; None at the end.  Raises OSError,
        CorruptLog.
        """
        scan = self._scan
        if scan is not None:
            if not scan.is_done:
                return scan
            if scan.found is not None:
                self.found = scan.found if scan.found.offset < self._max_offset else None
                return None
            self._scan = None
        while self._scan is None and self._segments:
            segment = self._segments.popleft()
            position = segment.position_for_timestamp(self._timestamp, self._start_offset)
            if position is not None:
                self._scan = TimestampScan(
                    segment.file,
                    position,
                    segment.size,
                    self._timestamp,
                    start_offset=self._start_offset,
                    max_offset=self._max_offset,
                )
        return self._scan
