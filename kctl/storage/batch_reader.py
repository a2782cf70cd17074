"""Walking the batches of a log file from one position to another, in constant memory.

Three walks: headers only, which skips over the records; whole batches, which reads every byte once; and headers past
any damage.  The first two raise CorruptLog at the first place where no batch can be; what came before has been yielded.
A message of magic 0 or 1, from an older Kafka, is a batch of its own; that of a wrapper counts as one record at its
last offset (records.legacy).
"""

from __future__ import annotations

from collections.abc import Iterator

from kctl.errors import CorruptLog
from kctl.records.batch import parse_any_header
from kctl.records.header import HEADER_SIZE, BatchHeader, CorruptBatch, crc_of
from kctl.records.legacy import look_inside
from kctl.records.salvage import BatchCutter
from kctl.storage.files import File

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""Indexes and batches hold offsets relative to the base of their segment in 31 bits."""
_HEADER_READ_SIZE = 4096
_BATCH_READ_SIZE = 1 << 20


def read_headers(file: File, start: int, end: int, *, read_size: int = _HEADER_READ_SIZE) -> Iterator[BatchHeader]:
    """The headers of the batches in [start, end); `position` is that in the file."""
    chunk, chunk_start = b"", start
    position = start
    while position < end:
        offset = position - chunk_start
        if offset + HEADER_SIZE > len(chunk):
            chunk, chunk_start, offset = file.read_at(position, min(read_size, end - position)), position, 0
        header = _header(file, chunk, offset, position, end)
        position = header.end  # Before the caller has the header, who may look at it from another angle.
        yield header


def read_batches(
    file: File, start: int, end: int, *, read_size: int = _BATCH_READ_SIZE
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches in [start, end) with their bytes; `position` is that in the file."""
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
    """The headers of the batches before `end` that can be believed, by the rule of kctl.records.salvage."""
    cutter = BatchCutter(base_offset)
    position = wanted = 0
    while position < end:
        left = end - position
        size = min(max(read_size, wanted), left)
        # What somebody has cut off is damaged like zeros.
        data = file.read_at(position, size).ljust(size, b"\0")
        cut = cutter.cut(data, left=left, end_offset=base_offset + RELATIVE_OFFSET_MAX)
        for header in cut.batches:
            header.position += position
            yield header
        position, wanted = position + cut.consumed, cut.wanted


def check_crc(file: File, header: BatchHeader, batch: memoryview) -> None:
    """Raises CorruptLog when the bytes do not have the checksum in their header."""
    actual = crc_of(batch, 0, len(batch), header.magic)
    if actual != header.crc:
        raise CorruptLog(file.path, header.position, f"checksum is {actual:#010x}, expected {header.crc:#010x}")


def first_offset(file: File, header: BatchHeader) -> int:
    """The base offset, for which a wrapper of old messages has to be read.  Raises CorruptLog."""
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
