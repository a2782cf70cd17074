"""The record batch of magic 2: its header, and the records inside where somebody needs them.

Messages of magic 0 and 1 pass for batches in what iterates here; kctl.records.legacy reads them.

A batch is 61 bytes of header and then records, which are one compressed stream when the attributes name a codec.  The
CRC-32C covers everything from the attributes on, so base offset and leader epoch can be patched without touching it:
that is what lets a broker take over a produced batch without looking inside.  docs/formats/segment.md has the bytes.

All readers take untrusted bytes: they raise CorruptBatch, never read past the buffer, and trust no count with memory.
"""

# ruff: noqa: PLC0415 - the reader of old formats builds on this module, and loads when the first old message comes.

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from kctl.errors import KctlError
from kctl.records.compression import DECOMPRESSED_SIZE_MAX, Buffer, Codec, DecompressionError, decompress

LOG_OVERHEAD = 12
"""Base offset and length: the bytes that the length field does not count."""
HEADER_SIZE = 61
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
"""Where the checksum's cover starts."""
LEADER_EPOCH_POSITION = 12
MAX_TIMESTAMP_POSITION = 35

NO_TIMESTAMP = -1
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
    """Bytes at `position` of the buffer are no record batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class OldFormat(CorruptBatch):
    """A sound-looking message of magic 0 or 1 where only a batch of magic 2 will do."""

    def __init__(self, position: int, magic: int) -> None:
        super().__init__(position, f"message format {magic} is not read here")
        self.magic = magic


class TimestampType(IntEnum):
    """Who set the timestamps: the producer, or the broker while appending."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader:
    """The fixed part of a batch, and where it lies in the buffer it was read from."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "length",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(self, position: int, fields: tuple[int, ...]) -> None:
        self.position = position
        (
            self.base_offset,
            self.length,
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

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.length

    @property
    def end(self) -> int:
        """Position of the first byte after the batch."""
        return self.position + LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was produced; compaction does not move it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or NO_SEQUENCE; numbers wrap from 2**31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> Codec:
        """Raises CorruptBatch for the numbers that no codec has."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatch(self.position, f"unknown compression codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may go, if a cleaner of 3.1 or newer has stamped it (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    def __repr__(self) -> str:
        return f"BatchHeader(base_offset={self.base_offset}, size={self.size}, position={self.position})"


class Record(NamedTuple):
    """One record.  Header keys are text, header values bytes or None."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the batch itself may reach beyond the buffer.

    Raises CorruptBatch when fewer than 61 bytes are left, the length cannot hold a header, or the magic is unknown, and
    OldFormat for messages of magic 0 and 1.
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


def parse_any_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position` in any format.  Raises CorruptBatch as parse_header does."""
    try:
        return parse_header(buffer, position)
    except OldFormat:
        from kctl.records import legacy

        return legacy.parse_message(buffer, position)


def iterate_batches(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """The headers of all complete batches and old messages from `position` on.

    A cut-off batch at the end is legal in what a broker answers and ends the iteration silently; checksums are left to
    the caller.  Raises CorruptBatch as parse_header does.
    """
    size = len(buffer)
    while size - position >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(buffer, position + 8)
        if length >= 0 and position + LOG_OVERHEAD + length > size:
            return
        header = parse_any_header(buffer, position)
        yield header
        position = header.end


def crc_of(buffer: Buffer, position: int, end: int, magic: int = 2) -> int:
    """The checksum of the batch at [position, end): CRC-32C, or for old messages CRC-32."""
    if magic != 2:
        return zlib.crc32(memoryview(buffer)[position + MAGIC_POSITION : end])
    checksum: int = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    return checksum


def crc_ok(buffer: Buffer, header: BatchHeader | None = None) -> bool:
    """Whether the batch that starts the buffer, or that `header` was read from, has the checksum it claims."""
    if header is None:
        header = parse_any_header(buffer)
    return header.end <= len(buffer) and crc_of(buffer, header.position, header.end, header.magic) == header.crc


def seal(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """Write the checksum of the batch after something under its cover has changed."""
    header.crc = crc_of(buffer, header.position, header.end)
    _CRC.pack_into(buffer, header.position + CRC_POSITION, header.crc)


def records_region(buffer: Buffer, header: BatchHeader, size_max: int = DECOMPRESSED_SIZE_MAX) -> Buffer:
    """The records of the batch as plain bytes: a view when uncompressed.  Raises CorruptBatch."""
    if header.magic != 2:
        raise OldFormat(header.position, header.magic)
    if header.end > len(buffer):
        raise CorruptBatch(header.position, f"batch of {header.size} bytes is cut off")
    region = memoryview(buffer)[header.position + HEADER_SIZE : header.end]
    if not header.attributes & CODEC_MASK:
        return region
    try:
        return decompress(header.codec, region, size_max)
    except DecompressionError as error:
        raise CorruptBatch(header.position, str(error)) from error


def iterate_records(
    buffer: Buffer, header: BatchHeader | None = None, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> Iterator[Record]:
    """The records of the batch that starts the buffer, or that `header` was read from.

    With LogAppendTime every record carries the batch's max timestamp.  Raises CorruptBatch where the bytes stop making
    sense, also when records are missing or left over; what came before has been yielded then.
    """
    if header is None:
        header = parse_any_header(buffer)
    if header.magic != 2:
        from kctl.records import legacy

        yield from legacy.iterate_messages(buffer, header, size_max=size_max)
        return
    count = header.record_count
    if count < 0:
        raise CorruptBatch(header.position, f"{count} records")
    # bytes, because slicing keys and values out of bytes costs half of what it costs out of a memoryview.
    data = bytes(records_region(buffer, header, size_max))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position, total = 0, len(data)
    small, new = _SMALL_VARINTS, tuple.__new__
    try:
        # The varints are read in place while they are one byte long: this loop is what every consumer of records costs.
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                length, position = small[byte], position + 1
            else:
                length, position = _varint(data, position)
            end = position + length
            if length < 0 or end > total:
                raise CorruptBatch(header.position, f"record of {length} bytes does not fit")
            byte = data[position + 1]
            if byte < 0x80:
                delta, position = small[byte], position + 2
            else:
                delta, position = _varint(data, position + 1)
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = small[byte], position + 1
            else:
                offset_delta, position = _varint(data, position)
            key, position = _bytes(data, position, end)
            value, position = _bytes(data, position, end)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[position] == 0:
                position += 1
            else:
                headers, position = _headers(data, position, end)
            if position != end:
                raise CorruptBatch(header.position, f"record has {end - position} bytes more than its fields")
            timestamp = base_timestamp + delta if append_time is None else append_time
            yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise CorruptBatch(header.position, f"record does not parse: {error}") from error
    if position != len(data):
        raise CorruptBatch(header.position, f"{len(data) - position} bytes after the last record")


_SMALL_VARINTS = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag number of at most 64 bits and the position after it.  Raises IndexError at the end of the data."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("number is longer than 64 bits")
    return (value >> 1) ^ -(value & 1), position + 1


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < 0x80:
        length, position = _SMALL_VARINTS[byte], position + 1
    else:
        length, position = _varint(data, position)
    if length < 0:
        if length != -1:
            raise ValueError(f"length {length}")
        return None, position
    stop = position + length
    if stop > end:
        raise ValueError(f"{length} bytes do not fit")
    return data[position:stop], stop


def _headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(data, position)
    if count < 0 or count > end - position:
        raise ValueError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _bytes(data, position, end)
        if key is None:
            raise ValueError("header without a key")
        value, position = _bytes(data, position, end)
        headers.append((key.decode(), value))
    return tuple(headers), position
