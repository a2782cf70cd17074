"""The batches of a log file that may be damaged: read once, front to back, in memory that does not grow with the file.

Where the bytes are no batch, the search goes on for the next place where a whole batch with its checksum begins, and
what lies between is one Problem.  A batch with a wrong checksum is shown and said; reading goes on behind it if another
batch begins there, and searches inside of it otherwise, because then its length is not to be trusted either.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from crc32c import crc32c

from kctl.records import legacy
from kctl.records.compression import Buffer
from kctl.records.header import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    MAGIC_POSITION,
    BatchHeader,
    CorruptBatch,
    parse_header,
)
from kctl.records.salvage import SEARCH_EFFORT, is_possible, possible_starts
from kctl.storage.dump_lines import BatchLine, Problem
from kctl.storage.files import File

READ_SIZE = 1 << 20
LARGE_BATCH = 16 << 20
"""Batches above this are checked piece by piece and only held whole when their records are asked for."""

Progress = Callable[[int], None]


def read_log(
    file: File, base_offset: int, start: int, end: int, progress: Progress | None = None
) -> Iterator[BatchLine | Problem]:
    """All batches in [start, end), which begins with one, and what is wrong there; `progress` hears of positions."""
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
    """The lines about what ends within the first `size` bytes of the file; all without a size."""
    for line in lines:
        if size is not None:
            end = line.header.end if isinstance(line, BatchLine) else (line.position or 0) + (line.size or 0)
            if end > size:
                return
        yield line


def _parse(buffer: Buffer, position: int) -> BatchHeader:
    """The header at a position, of any format.  Raises CorruptBatch."""
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] in {0, 1}:
        return legacy.parse_message(buffer, position)
    return parse_header(buffer, position)


def header_at(file: File, position: int, end: int) -> BatchHeader:
    """The header of the batch at a position, which has to end at or before `end`.  Raises CorruptBatch."""
    header = _parse(file.read_at(position, min(HEADER_SIZE, max(end - position, 0))), 0)
    header.position = position
    if header.end > end:
        raise CorruptBatch(position, f"batch of {header.size} bytes extends past the end at {end}")
    return header


def _damage(file: File, base_offset: int, position: int, end: int, reason: str) -> tuple[Problem, int]:
    """What to say of bytes that are no batch, and where to go on."""
    if _is_zero(file, position, end):
        size = end - position
        return Problem(
            f"{size} zero bytes at the end, preallocated and not trimmed before a crash", position, size
        ), end
    found = find_batch(file, base_offset, position + 1, end)
    size = (end if found is None else found) - position
    if found is None:
        return Problem(f"the remaining {size} bytes are not batches: {reason}", position, size), end
    return Problem(f"{size} bytes are not batches: {reason}; the next batch is at {found}", position, size), found


def find_batch(file: File, base_offset: int, start: int, end: int) -> int | None:
    """The first position in [start, end) where a whole batch with its checksum begins."""
    effort = SEARCH_EFFORT * (end - start) + READ_SIZE
    position = start
    while position + HEADER_SIZE <= end:
        chunk = file.read_at(position, min(READ_SIZE, end - position))
        if len(chunk) < HEADER_SIZE:
            return None  # Somebody has cut the file meanwhile.
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
        # Starts that the end of this chunk cuts off are found again in the next.
        position += len(chunk) - HEADER_SIZE + 1
    return None


def _plausible(file: File, base_offset: int, position: int, end: int) -> BatchHeader | None:
    """The header at a position when nothing in it is impossible."""
    try:
        header = _parse(file.read_at(position, HEADER_SIZE), 0)
    except CorruptBatch:
        return None
    header.position = position
    return header if header.end <= end and is_possible(header, base_offset) else None


def _checksum(file: File, header: BatchHeader) -> int:
    """The checksum of a batch, read piece by piece."""
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
