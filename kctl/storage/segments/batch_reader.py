"""Iterates over the batches of a log file between two positions, in constant memory.

read_headers skips the records, read_batches reads every byte once, and read_past_damage continues after corrupt bytes.
The first two raise CorruptLog at the first position without a valid batch, after yielding the batches before it.  A
message of magic 0 or 1 counts as a batch; a compressed wrapper message counts as one record at its last offset
(kctl.records.old_formats.legacy).
"""

from __future__ import annotations

from collections.abc import Iterator

from kctl.errors import CorruptLog
from kctl.records.batch import parse_any_header
from kctl.records.header import HEADER_SIZE, BatchHeader, CorruptBatch, crc_of
from kctl.records.old_formats.legacy import look_inside
from kctl.records.salvage import BatchCutter, Cut, Damage
from kctl.storage.config import RELATIVE_OFFSET_MAX
from kctl.storage.files import File

_HEADER_READ_SIZE = 4096
_BATCH_READ_SIZE = 1 << 20


def read_headers(file: File, start: int, end: int, *, read_size: int = _HEADER_READ_SIZE) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in [start, end); `header.position` is the position in the file.

    Raises CorruptLog.
    """
    chunk, chunk_start = b"", start
    position = start
    while position < end:
        offset = position - chunk_start
        if offset + HEADER_SIZE > len(chunk):
            chunk, chunk_start, offset = file.read_at(position, min(read_size, end - position)), position, 0
        header = _header(file, chunk, offset, position, end)
        position = header.end  # Advance first: the caller may change header.position.
        yield header


def read_batches(
    file: File, start: int, end: int, *, read_size: int = _BATCH_READ_SIZE
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch in [start, end) as (header, bytes); `header.position` is the position in the file.

    Raises CorruptLog.
    """
    chunk, chunk_start = memoryview(b""), start
    position = start
    while position < end:
        offset = position - chunk_start
        if offset + HEADER_SIZE > len(chunk):
            chunk, chunk_start, offset = memoryview(file.read_at(position, min(read_size, end - position))), position, 0
        header = _header(file, chunk, offset, position, end)
        if offset + header.size > len(chunk):
            size = min(max(read_size, header.size), end - position)
            chunk, chunk_start, offset = memoryview(file.read_at(position, size)), position, 0
            if header.size > len(chunk):
                raise CorruptLog(file.path, position, "the file ends inside a batch")
        position = header.end
        yield header, chunk[offset : offset + header.size]


def read_past_damage(
    file: File, base_offset: int, end: int, *, read_size: int = _BATCH_READ_SIZE
) -> Iterator[BatchHeader]:
    """Yield the headers of the valid batches before `end`, skipping corrupt ones as kctl.records.salvage does."""
    for part in read_all_parts(file, base_offset, end, read_size=read_size):
        if isinstance(part, BatchHeader):
            yield part


def read_all_parts(
    file: File, base_offset: int, end: int, *, end_offset: int | None = None, read_size: int = _BATCH_READ_SIZE
) -> Iterator[BatchHeader | Damage]:
    """Yield the headers of the valid batches before `end`, and the damage between them, in the order of offsets.

    The offsets are below `end_offset`; without it, damage at the end of the file reaches up to the largest offset that
    a segment with this base offset can have.
    """
    cutter = BatchCutter(base_offset)
    if end_offset is None:
        end_offset = base_offset + RELATIVE_OFFSET_MAX
    position = needed = 0
    while position < end:
        left = end - position
        size = min(max(read_size, needed), left)
        # If the file was truncated by another process, the missing bytes are treated as zeros.
        data = file.read_at(position, size).ljust(size, b"\0")
        cut = cutter.cut(data, left=left, end_offset=end_offset)
        for header in cut.batches:
            header.position += position
        yield from _in_order(cut) if cut.damage else cut.batches
        position, needed = position + cut.consumed, cut.needed


def _in_order(cut: Cut) -> list[BatchHeader | Damage]:
    """Damage stands before the batch at which reading resumed, even if no offset is lost."""
    parts: list[tuple[int, int, BatchHeader | Damage]] = [(damage.offset, 0, damage) for damage in cut.damage]
    parts += [(batch.base_offset, 1, batch) for batch in cut.batches]
    return [element for _, _, element in sorted(parts, key=lambda part: part[:2])]


def check_crc(file: File, header: BatchHeader, batch: memoryview) -> None:
    """Raise CorruptLog when the checksum of `batch` differs from the one in its header."""
    actual = crc_of(batch, 0, len(batch), header.magic)
    if actual != header.crc:
        raise CorruptLog(file.path, header.position, f"checksum is {actual:#010x}, expected {header.crc:#010x}")


def first_offset(file: File, header: BatchHeader) -> int:
    """Return the offset of the first record; reads a magic 0 or 1 wrapper to find it.  Raises CorruptLog."""
    if header.magic == 2:
        return header.base_offset
    message = file.read_at(header.position, header.size)
    try:
        inner = parse_any_header(message)
        look_inside(message, inner)
    except CorruptBatch as error:
        raise CorruptLog(file.path, header.position, error.reason) from error
    return inner.base_offset


def _header(file: File, chunk: bytes | memoryview, offset: int, position: int, end: int) -> BatchHeader:
    try:
        header = parse_any_header(chunk, offset)
    except CorruptBatch as error:
        raise CorruptLog(file.path, position, error.reason) from error
    header.position = position
    if header.end > end:
        raise CorruptLog(file.path, position, f"batch of {header.size} bytes extends past the end at {end}")
    return header
