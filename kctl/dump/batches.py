"""Reads the batches of a log file that may be damaged, from start to end, in memory independent of the file size.

Where the bytes are not a batch, the next whole batch with a valid checksum is searched for, and the bytes before it are
one Problem.  A batch with a wrong checksum is returned with a Problem; reading continues after it if another batch
begins there, and otherwise inside of it, because its length may be wrong as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

from kctl.limits import Subject, bound
from kctl.records.batch import iterate_records, records_region
from kctl.records.compression import Buffer
from kctl.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC_POSITION,
    BatchHeader,
    CorruptBatch,
    Record,
    parse_header,
)
from kctl.records.old_formats import legacy
from kctl.records.salvage import SEARCH_EFFORT, is_possible, possible_starts
from kctl.storage.files import File
from kctl.storage.segments.transaction_index import AbortedTransaction
from kctl.storage.state.producer_state import SnapshotEntry

PROBLEM_TEXT_MAX = bound(
    Subject.NAMED_FILES,
    "description of one damaged position in the output of dump-log",
    300,
    "characters",
    on_excess="the text is truncated and ends in three dots",
)


# The entries of a dumped file: batches, index entries, checkpoint entries, properties and problems.


MAGIC = 2


class BatchLine:
    """A batch in a log; `header.position` is its position in the file."""

    __slots__ = ("_file", "_view", "header", "is_sound")

    def __init__(self, header: BatchHeader, *, is_sound: bool, view: memoryview | None, file: File) -> None:
        self.header = header
        self.is_sound = is_sound
        """True if the checksum is right."""
        self._view = view
        self._file = file

    def data(self) -> memoryview:
        """Return all bytes of the batch; a large batch is read on demand."""
        if self._view is None:
            return memoryview(self._file.read_at(self.header.position, self.header.size))
        return self._view

    def region(self) -> bytes:
        """Return the uncompressed records of a batch of magic 2.  Raises CorruptBatch."""
        data, header = self.data(), self.header
        if not header.attributes & CODEC_MASK and len(data) == header.size:
            return bytes(data[HEADER_SIZE:])
        return bytes(records_region(data, parse_header(data)))

    def records(self) -> Iterator[Record]:
        """Yield the records.  Raises CorruptBatch, with a position in the file, at the first malformed record."""
        data = self.data()
        try:
            if self.header.magic == MAGIC:
                yield from iterate_records(data)
            else:
                yield from legacy.iterate_messages(data, legacy.parse_message(data))
        except CorruptBatch as error:
            raise CorruptBatch(self.header.position, error.reason) from error


@dataclass(frozen=True, slots=True)
class OffsetIndexLine:
    """An entry of an offset index: look-ups of `offset` or more start at `position`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexLine:
    """An entry of a time index: no record before `offset` has a timestamp larger than `timestamp` (ms)."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class EpochLine:
    """An entry of a leader epoch checkpoint: the first offset of an epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """An entry of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """A name and its value in a text file."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a file, as a sentence; `size` bytes at `position` of the file where that is known."""

    reason: str
    position: int | None = None
    size: int | None = None
    is_unreadable: bool = False
    """True if the operating system refused to open or read the file."""

    def __post_init__(self) -> None:
        if len(self.reason) > PROBLEM_TEXT_MAX:  # The reason may quote bytes of the file.
            object.__setattr__(self, "reason", f"{self.reason[:PROBLEM_TEXT_MAX]}...")


Line = (
    BatchLine
    | OffsetIndexLine
    | TimeIndexLine
    | SnapshotEntry
    | AbortedTransaction
    | EpochLine
    | CheckpointLine
    | PropertyLine
    | Problem
)


READ_SIZE = 1 << 20
LARGE_BATCH = 16 << 20
"""Larger batches are checked in chunks and are only read as a whole when their records are requested."""

Progress = Callable[[int], None]


def read_log(
    file: File, base_offset: int, start: int, end: int, progress: Progress | None = None
) -> Iterator[BatchLine | Problem]:
    """Yield the batches in [start, end), which begins with a batch, and Problems; `progress` is called with
    positions.
    """
    position = start
    chunk, chunk_start = memoryview(b""), start
    while position < end:
        offset = position - chunk_start
        if offset + HEADER_SIZE > len(chunk):
            chunk, chunk_start, offset = memoryview(file.read_at(position, min(READ_SIZE, end - position))), position, 0
            if progress is not None:
                progress(position)
        try:
            header = _parse(chunk, offset)
        except CorruptBatch as error:
            problem, position = _damage(file, base_offset, position, end, error.reason)
            yield problem
            continue
        header.position = position
        if header.end > end:
            reason = f"batch of {header.size} bytes extends past the end at {end}"
            problem, position = _damage(file, base_offset, position, end, reason)
            yield problem
            continue
        view: memoryview | None = None
        if header.size <= LARGE_BATCH:
            if offset + header.size > len(chunk):
                size = min(max(READ_SIZE, header.size), end - position)
                chunk, chunk_start, offset = memoryview(file.read_at(position, size)), position, 0
                if progress is not None:
                    progress(position)
            view = chunk[offset : offset + header.size]
            checksum = crc32c(view[ATTRIBUTES_POSITION:]) if header.magic == 2 else zlib.crc32(view[MAGIC_POSITION:])
        else:
            checksum = _checksum(file, header)
        if checksum == header.crc:
            position = header.end
            yield BatchLine(header, is_sound=True, view=view, file=file)
            continue
        reason = f"checksum is {checksum:#010x}, expected {header.crc:#010x}"
        if header.end == end or _plausible(file, base_offset, header.end, end) is not None:
            position = header.end
            yield BatchLine(header, is_sound=False, view=view, file=file)
            yield Problem(reason, header.position, header.size)
            continue
        problem, position = _damage(file, base_offset, position, end, f"{reason}, and no batch follows")
        yield problem


def first_bytes(lines: Iterator[BatchLine | Problem], size: int | None) -> Iterator[BatchLine | Problem]:
    """Return the lines that end within the first `size` bytes of the file; all of them if `size` is None."""
    for line in lines:
        if size is not None:
            end = line.header.end if isinstance(line, BatchLine) else (line.position or 0) + (line.size or 0)
            if end > size:
                return
        yield line


def _parse(buffer: Buffer, position: int) -> BatchHeader:
    """Return the header at a position, of any format.  Raises CorruptBatch."""
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] in {0, 1}:
        return legacy.parse_message(buffer, position)
    return parse_header(buffer, position)


def header_at(file: File, position: int, end: int) -> BatchHeader:
    """Return the header of the batch at a position, which must end at or before `end`.  Raises CorruptBatch."""
    header = _parse(file.read_at(position, min(HEADER_SIZE, max(end - position, 0))), 0)
    header.position = position
    if header.end > end:
        raise CorruptBatch(position, f"batch of {header.size} bytes extends past the end at {end}")
    return header


def _damage(file: File, base_offset: int, position: int, end: int, reason: str) -> tuple[Problem, int]:
    """Return the Problem for bytes that are not a batch, and the position to continue at."""
    if _is_zero(file, position, end):
        size = end - position
        return Problem(
            f"{size} zero bytes at the end, preallocated and not trimmed before a crash", position, size
        ), end
    next_batch = find_batch(file, base_offset, position + 1, end)
    size = (end if next_batch is None else next_batch) - position
    if next_batch is None:
        return Problem(f"the remaining {size} bytes are not batches: {reason}", position, size), end
    return Problem(
        f"{size} bytes are not batches: {reason}; the next batch is at {next_batch}", position, size
    ), next_batch


def find_batch(file: File, base_offset: int | None, start: int, end: int) -> int | None:
    """Return the first position in [start, end) of a whole batch with a valid checksum; None if there is none.

    `base_offset` is that of the segment, None if it is not known.
    """
    effort = SEARCH_EFFORT * (end - start) + READ_SIZE
    position = start
    while position + HEADER_SIZE <= end:
        chunk = file.read_at(position, min(READ_SIZE, end - position))
        if len(chunk) < HEADER_SIZE:
            return None  # The file was truncated meanwhile.
        for start_in_chunk in possible_starts(chunk, 0, base_offset):
            candidate = position + start_in_chunk
            header = _plausible(file, base_offset, candidate, end)
            if header is None:
                continue
            if _checksum(file, header) == header.crc:
                return candidate
            effort -= header.size
            if effort < 0:
                return None
        # A header that the end of this chunk cuts off is found again in the next chunk.
        position += len(chunk) - HEADER_SIZE + 1
    return None


def _plausible(file: File, base_offset: int | None, position: int, end: int) -> BatchHeader | None:
    """Return the header at a position if all of its fields are possible, else None."""
    try:
        header = _parse(file.read_at(position, HEADER_SIZE), 0)
    except CorruptBatch:
        return None
    header.position = position
    least_offset = max(header.base_offset, 0) if base_offset is None else base_offset
    return header if header.end <= end and is_possible(header, least_offset) else None


def _checksum(file: File, header: BatchHeader) -> int:
    """Return the checksum of a batch, read in chunks."""
    over: Callable[[bytes, int], int] = crc32c if header.magic == 2 else zlib.crc32
    at = header.position + (ATTRIBUTES_POSITION if header.magic == 2 else MAGIC_POSITION)
    checksum = 0
    while at < header.end:
        data = file.read_at(at, min(READ_SIZE, header.end - at))
        if not data:
            break
        checksum = over(data, checksum)
        at += len(data)
    return checksum


def _is_zero(file: File, position: int, end: int) -> bool:
    while position < end:
        data = file.read_at(position, min(READ_SIZE, end - position))
        if not data or data.strip(b"\0"):
            return False
        position += len(data)
    return True
