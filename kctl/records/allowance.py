"""Bounds the bytes and records that one operation on records may process.

The broker processes small batches on its event loop and large ones in a thread, with the same functions: they take an
Allowance and raise AllowanceExceeded before they exceed it.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    DECOMPRESSION_RATIO_FREE_BYTES,
    RECORDS_PER_BATCH_MAX,
    Subject,
    bound,
)
from kctl.records.compiled import walk_is_compiled
from kctl.records.compression import Buffer
from kctl.records.header import ATTRIBUTES_POSITION, CODEC_MASK, MAGIC_POSITION

DECOMPRESSION_RATIO_MAX = bound(
    Subject.RECORDS,
    "decompressed size of one record batch in relation to its compressed size, above 16 MiB",
    1000,
    "times",
    on_excess="as for the decompressed size",
)
"""The most repetitive logs reach several hundred.  Deflate ends at 1032; zstd reaches 30,000 with zeros."""
INLINE_RECORD_BYTES_MAX = bound(
    Subject.RECORDS,
    "decompressed records of one request that are processed on the event loop",
    64 << 10,
    "bytes",
    on_excess="the work is done in a thread",
)
"""gzip compresses them in 2 ms to 4 ms."""
INLINE_RECORDS_MAX = bound(
    Subject.RECORDS,
    "records of one request that are read on the event loop",
    1000,
    "records",
    on_excess="the work is done in a thread",
)
"""So many records are read in 1 ms to 2 ms."""


COPIED_BYTES_PER_BYTE = 64
"""Bytes that are copied in the time in which one byte is decompressed."""
WALKED_RECORDS_PER_RECORD = 50 if walk_is_compiled() else 1
"""Records that are walked in the time in which one record is read into an object."""
_CODEC_POSITION = ATTRIBUTES_POSITION + 1
"""Position of the attributes byte that contains the codec."""


class AllowanceExceeded(ApiError):
    """The operation needs more bytes or records than it may use.  Nothing has been changed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class Allowance:
    """The rest of the bounds; `take_bytes` and `take_records` reduce it.

    They are initially those for the work of one request on the event loop.
    """

    __slots__ = ("plain_bytes", "records")

    def __init__(self, plain_bytes: int = INLINE_RECORD_BYTES_MAX, records: int = INLINE_RECORDS_MAX) -> None:
        self.plain_bytes = plain_bytes
        """Remaining bytes of uncompressed records."""
        self.records = records

    @classmethod
    def for_batches(cls, size: int) -> Allowance:
        """Return the bounds for `size` bytes of batches as they were sent or stored."""
        return cls(decompressed_size_max(size), RECORDS_PER_BATCH_MAX)

    def take_bytes(self, count: int) -> None:
        """Reduce the remaining bytes.  Raises AllowanceExceeded."""
        if count > self.plain_bytes:
            raise AllowanceExceeded(f"{count} bytes of records exceed the limit of {self.plain_bytes}")
        self.plain_bytes -= count

    def take_walk(self, records: int, copied_bytes: int = 0) -> None:
        """Reduce both by the shares that stand for walking so many records, and for copying so many bytes before.

        Raises AllowanceExceeded.
        """
        left_records = self.records - records // WALKED_RECORDS_PER_RECORD
        left_bytes = self.plain_bytes - copied_bytes // COPIED_BYTES_PER_BYTE
        if left_records < 0 or left_bytes < 0:
            self.take_records(records // WALKED_RECORDS_PER_RECORD)
            self.take_bytes(copied_bytes // COPIED_BYTES_PER_BYTE)
        self.records, self.plain_bytes = left_records, left_bytes

    def take_records(self, count: int) -> None:
        """Reduce the remaining records.  Raises AllowanceExceeded."""
        if count > self.records:
            raise AllowanceExceeded(f"{count} records exceed the limit of {self.records}")
        self.records -= count


def decompressed_size_max(size: int) -> int:
    """Return the maximum size after decompression of a batch of `size` bytes."""
    return min(max(DECOMPRESSION_RATIO_FREE_BYTES, size * DECOMPRESSION_RATIO_MAX), DECOMPRESSED_BATCH_BYTES_MAX)


def memory_max(records: Buffer) -> int:
    """Return the maximum memory in bytes of a conversion of produced records: the records and their uncompressed
    form.
    """
    size = len(records)
    is_batch = size > _CODEC_POSITION and records[MAGIC_POSITION] == 2
    if is_batch and not records[_CODEC_POSITION] & CODEC_MASK:
        return 2 * size
    return size + decompressed_size_max(size)
