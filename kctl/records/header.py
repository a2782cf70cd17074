"""The header of a record batch of magic 2, its checksum, and the record type.

A batch has a header of 61 bytes and then records, which are one compressed stream if the attributes contain a codec.
The CRC-32C covers everything from the attributes on, so base offset and leader epoch can be changed without recomputing
it: a broker can append a produced batch without reading its records.  docs/formats/segment.md has the layout.

kctl.records.batch reads the records, also of messages of magic 0 and 1.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from kctl.errors import KctlError
from kctl.records.compression import Buffer, Codec

LOG_OVERHEAD = 12
"""Base offset and length: the bytes that the length field does not count."""
HEADER_SIZE = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
"""The checksum covers the bytes from here on."""
LEADER_EPOCH_POSITION = 12

NO_TIMESTAMP = -1
TIMESTAMP_MIN = -(1 << 63)
TIMESTAMP_MAX = (1 << 63) - 1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
SEQUENCE_MAX = (1 << 31) - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack_header = HEADER.unpack_from
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")


class CorruptBatch(KctlError):
    """The bytes at `position` of the buffer are not a valid batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class BatchTooLarge(CorruptBatch):
    """The batch may be valid, but has more bytes or records than the reader's bound."""


class OldFormat(CorruptBatch):
    """A message of magic 0 or 1 where only magic 2 is supported."""

    def __init__(self, position: int, magic: int) -> None:
        super().__init__(position, f"unsupported magic {magic}")
        self.magic = magic


class TimestampType(IntEnum):
    """Whether timestamps were set by the producer, or by the broker at append (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


_CODECS = tuple(Codec)
"""By number; the call of an enum takes several times as long."""


class BatchHeader:
    """The fixed part of a batch, and its position in the buffer that it was read from."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    def __init__(self, position: int, fields: tuple[int, ...]) -> None:
        self.position = position
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = fields
        self.size = LOG_OVERHEAD + length
        """Size of the whole batch in bytes."""

    @property
    def end(self) -> int:
        """Position of the first byte after the batch."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        """Offset of the last record at the time of the append; compaction does not change it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or NO_SEQUENCE; 2**31-1 is followed by 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> Codec:
        """The codec of the records.  Raises CorruptBatch for unknown codecs."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptBatch(self.position, f"unknown compression codec {number}")
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the timestamps are create times or the append time."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True for a control batch, such as a transaction marker."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        """True if an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may be removed, in ms, if a cleaner of Kafka 3.1 or newer has set it
        (KIP-534).
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    def __repr__(self) -> str:
        return f"BatchHeader(base_offset={self.base_offset}, size={self.size}, position={self.position})"


def wrapped(timestamp: int) -> int:
    """Return the signed 64-bit integer that Java's arithmetic gives for a sum or difference of timestamps."""
    if TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
        return timestamp
    return ((timestamp + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


class Record(NamedTuple):
    """One record.  Header keys are text, header values bytes or None."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def describe_malformed_record(error: ValueError | IndexError) -> str:
    """Return what is wrong with the records of a batch, by the error of a walk over them.

    An IndexError means that the next byte to read is behind the last one.
    """
    return f"malformed record: {'the records end early' if isinstance(error, IndexError) else error}"


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`; the batch may extend past the end of the buffer.

    Raises CorruptBatch when fewer than 61 bytes are left, the length is too small for a header, or the magic is
    unknown, and OldFormat for messages of magic 0 and 1.
    """
    if len(buffer) - position < HEADER_SIZE:
        _reject_short(buffer, position)
    fields = _unpack_header(buffer, position)
    if fields[3] != 2 or fields[1] < HEADER_SIZE - LOG_OVERHEAD:
        _reject(position, magic=fields[3], length=fields[1])
    return BatchHeader(position, fields)


def _reject_short(buffer: Buffer, position: int) -> None:
    left = len(buffer) - position
    if left > MAGIC_POSITION:
        (length,) = _LENGTH.unpack_from(buffer, position + 8)
        if buffer[position + MAGIC_POSITION] in {0, 1} and LOG_OVERHEAD + length <= left:
            _reject(position, magic=buffer[position + MAGIC_POSITION], length=length)
    raise CorruptBatch(position, f"{max(left, 0)} bytes are too few for a batch header")


def _reject(position: int, *, magic: int, length: int) -> None:
    if magic in {0, 1} and length >= 14:
        raise OldFormat(position, magic)
    if magic not in {0, 1, 2}:
        raise CorruptBatch(position, f"unknown magic {magic}")
    raise CorruptBatch(position, f"batch length {length} is too small")


def crc_of(buffer: Buffer, position: int, end: int, magic: int = 2) -> int:
    """Return the checksum of the batch at [position, end): CRC-32C, for magic 0 and 1 CRC-32."""
    if magic != 2:
        return zlib.crc32(memoryview(buffer)[position + MAGIC_POSITION : end])
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    begin = position + ATTRIBUTES_POSITION
    if end - begin <= _CHECKED_AT_ONCE:
        whole: int = crc32c(view[begin:end])
        return whole
    checksum = 0
    # In pieces, because other threads wait meanwhile.
    for start in range(begin, end, _CHECKED_AT_ONCE):
        checksum = crc32c(view[start : min(start + _CHECKED_AT_ONCE, end)], checksum)
    return checksum


_CHECKED_AT_ONCE = 4 << 20
"""Takes about 1 ms."""


def write_header(buffer: bytearray | memoryview, header: BatchHeader, *, position: int, size: int) -> None:
    """Write the fields of `header` at `position`, with this size of the batch; the caller seals the batch."""
    HEADER.pack_into(
        buffer,
        position,
        header.base_offset,
        size - LOG_OVERHEAD,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def seal(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """Write the checksum of the batch after a change."""
    header.crc = crc_of(buffer, header.position, header.end)
    _CRC.pack_into(buffer, header.position + CRC_POSITION, header.crc)


def seal_head(head: bytearray, body: Buffer) -> None:
    """Write the checksum of a batch whose records follow in a buffer of their own, which saves a copy of them."""
    checksum = crc32c(body, crc32c(memoryview(head)[ATTRIBUTES_POSITION:]))
    _CRC.pack_into(head, CRC_POSITION, checksum)
