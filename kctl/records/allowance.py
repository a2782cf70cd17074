"""How many bytes and records a piece of work on records may still use.

The broker does little work on its event loop and more in a thread, with the same functions: they take an Allowance and
raise AllowanceExceeded before they use more.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    DECOMPRESSION_RATIO_FREE_BYTES,
    DECOMPRESSION_RATIO_MAX,
    INLINE_RECORD_BYTES_MAX,
    INLINE_RECORDS_MAX,
    RECORDS_PER_BATCH_MAX,
)
from kctl.records.compression import Buffer
from kctl.records.header import ATTRIBUTES_POSITION, CODEC_MASK, MAGIC_POSITION

_CODEC_POSITION = ATTRIBUTES_POSITION + 1
"""The byte of the attributes that names the codec."""


class AllowanceExceeded(ApiError):
    """The work needs more bytes or records than it may use.  Nothing has been changed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class Allowance:
    """What is left of the bounds; `take_bytes` and `take_records` use it up."""

    __slots__ = ("plain_bytes", "records")

    def __init__(self, plain_bytes: int, records: int) -> None:
        self.plain_bytes = plain_bytes
        """Bytes of uncompressed records."""
        self.records = records

    @classmethod
    def for_batches(cls, size: int) -> Allowance:
        """The bounds of what `size` bytes of batches, as they were sent or stored, may hold."""
        return cls(decompressed_size_max(size), RECORDS_PER_BATCH_MAX)

    @classmethod
    def inline(cls) -> Allowance:
        """The bounds of what one request may do on the event loop."""
        return cls(INLINE_RECORD_BYTES_MAX, INLINE_RECORDS_MAX)

    def take_bytes(self, count: int) -> None:
        """Raises AllowanceExceeded."""
        if count > self.plain_bytes:
            raise AllowanceExceeded(f"{count} bytes of records are more than the bound of {self.plain_bytes}")
        self.plain_bytes -= count

    def take_records(self, count: int) -> None:
        """Raises AllowanceExceeded."""
        if count > self.records:
            raise AllowanceExceeded(f"{count} records are more than the bound of {self.records}")
        self.records -= count


def decompressed_size_max(size: int) -> int:
    """How many bytes a batch of `size` bytes may hold after decompression."""
    return min(max(DECOMPRESSION_RATIO_FREE_BYTES, size * DECOMPRESSION_RATIO_MAX), DECOMPRESSED_BATCH_BYTES_MAX)


def memory_max(records: Buffer) -> int:
    """How many bytes a conversion of produced records takes at most: theirs and those of the plain records."""
    size = len(records)
    is_batch = size > _CODEC_POSITION and records[MAGIC_POSITION] == 2
    if is_batch and not records[_CODEC_POSITION] & CODEC_MASK:
        return 2 * size
    return size + decompressed_size_max(size)
