"""Finds the first record at or after a timestamp.

The indexes give a starting position; from there batches are read.  That may take long: batches are decompressed, and a
producer may have set a max timestamp that no record has.  The search is therefore divided into scans of bounded cost.
`TimestampSearch` selects them on the event loop; a `TimestampScan` only reads an open file and can run in a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kctl.errors import CorruptLog
from kctl.limits import DECOMPRESSED_BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX
from kctl.records.allowance import Allowance, decompressed_size_max
from kctl.records.batch import iterate_plain, parse_any_header, records_region
from kctl.records.header import CODEC_MASK, BatchHeader, BatchTooLarge, CorruptBatch, Record
from kctl.records.legacy import iterate_messages
from kctl.storage.batch_reader import read_headers
from kctl.storage.files import File
from kctl.storage.segment import Segment

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
