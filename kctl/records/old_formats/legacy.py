"""Messages of magic 0 and 1, which Kafka wrote before 0.11: reading and building.

A message is treated as a batch: MessageHeader is used wherever a BatchHeader is.

    offset i64, size i32, crc u32, magic i8, attributes i8, [timestamp i64 in magic 1], key, value

Key and value are preceded by an i32 length, -1 for null.  The CRC-32 covers everything from the magic on.  Compressed
messages are in a wrapper: its value is a compressed sequence of messages, and its offset is that of the last of them.
The inner offsets are absolute in magic 0 and relative in magic 1.  The timestamp of the wrapper is the largest of the
inner ones, or the append time, which then applies to all of them.

Readers are as lenient as Kafka's: an incomplete message at the end of a wrapper and bytes behind the value of a message
are ignored, inner checksums are checked only for produced messages, and lz4 frames of magic 0 may have any header
checksum, because Kafka's first writer computed it over the wrong bytes (KAFKA-3160).  All readers accept untrusted
bytes, as in kctl.records.batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from kctl.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    Buffer,
    Codec,
    DecompressedSizeExceeded,
    DecompressionError,
    compress,
    decompress,
)
from kctl.records.header import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    Record,
    TimestampType,
    crc_of,
)

MAGIC_0 = 0
MAGIC_1 = 1
SIZE_MIN = {MAGIC_0: 14, MAGIC_1: 22}
"""The size field of a message without key and value."""

MESSAGES_PER_WRAPPER_MAX = DECOMPRESSED_SIZE_MAX // (LOG_OVERHEAD + SIZE_MIN[MAGIC_0])
"""No wrapper that decompresses to DECOMPRESSED_SIZE_MAX bytes contains more messages."""

_ENTRY = struct.Struct(">qi")
_HEADER_0 = struct.Struct(">qiIbb")
_HEADER_1 = struct.Struct(">qiIbbq")
_MESSAGE_0 = struct.Struct(">qiIbbi")
_MESSAGE_1 = struct.Struct(">qiIbbqi")
_LENGTH = struct.Struct(">i")
_START_0 = struct.Struct(">bbi")
_START_1 = struct.Struct(">bbqi")
_OFFSET_SIZE_CRC = struct.Struct(">qiI")

_KNOWN_ATTRIBUTES = {MAGIC_0: CODEC_MASK, MAGIC_1: CODEC_MASK | LOG_APPEND_TIME_BIT}


class WrongChecksum(CorruptBatch):
    """The checksum of a message inside of a wrapper is wrong."""


class MessageHeader(BatchHeader):
    """One message as a batch.

    The number of messages in a wrapper is not in its header: it counts as one record at its last offset until
    `look_inside`.
    """

    __slots__ = ()


def parse_message(buffer: Buffer, position: int = 0) -> MessageHeader:
    """Return the header of the message at `position`, which may extend past the end of the buffer.  Raises
    CorruptBatch.
    """
    left = len(buffer) - position
    magic = buffer[position + MAGIC_POSITION] if left >= _HEADER_0.size else -1
    if magic not in SIZE_MIN or left < (_HEADER_1.size if magic else _HEADER_0.size):
        raise CorruptBatch(position, f"{max(left, 0)} bytes are too few for a message header")
    if magic:
        offset, size, crc, _, attributes, timestamp = _HEADER_1.unpack_from(buffer, position)
    else:
        offset, size, crc, _, attributes = _HEADER_0.unpack_from(buffer, position)
        timestamp = NO_TIMESTAMP
    if size < SIZE_MIN[magic]:
        raise CorruptBatch(position, f"message size {size} is too small")
    attributes &= _KNOWN_ATTRIBUTES[magic]
    fields = (
        offset,
        size,
        NO_LEADER_EPOCH,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        1,
    )
    return MessageHeader(position, fields)


def look_inside(buffer: Buffer, header: BatchHeader, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> None:
    """Set the first offset and the number of messages in a wrapper's header.  Raises CorruptBatch."""
    if header.magic > MAGIC_1 or not header.attributes & CODEC_MASK:
        return
    last_offset = header.last_offset
    data = _unwrapped(buffer, header, size_max)
    first, last, count = _extent(data, header, MESSAGES_PER_WRAPPER_MAX)
    header.base_offset = first if header.magic == MAGIC_0 else last_offset - last + first
    header.last_offset_delta = last_offset - header.base_offset
    header.record_count = count
    if header.last_offset_delta < 0:
        raise CorruptBatch(header.position, f"message at {header.base_offset} in a wrapper that ends at {last_offset}")


def iterate_messages(
    buffer: Buffer,
    header: BatchHeader,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    count_max: int = MESSAGES_PER_WRAPPER_MAX,
    is_produced: bool = False,
) -> Iterator[Record]:
    """Yield the record of a message, or all records of a wrapper, with their offsets in the log.

    With `is_produced` inner messages are checked too.  Raises CorruptBatch as iterate_records does, WrongChecksum, and
    BatchTooLarge for a wrapper of more than `size_max` bytes or `count_max` messages.
    """
    if header.end > len(buffer):
        raise CorruptBatch(header.position, f"message of {header.size} bytes is incomplete")
    if not header.attributes & CODEC_MASK:
        data = bytes(memoryview(buffer)[header.position : header.end])
        key, value = _key_and_value(data, 0, len(data), header.position)
        yield Record(header.last_offset, header.max_timestamp, key, value)
        return
    data = _unwrapped(buffer, header, size_max)
    base_offset = 0
    # Offset 0 is accepted for produced wrappers: some versions of librdkafka wrote it.
    if header.magic == MAGIC_1 and header.last_offset:
        base_offset = header.last_offset - _extent(data, header, count_max)[1]
        if base_offset < 0:
            raise CorruptBatch(header.position, f"wrapper offset {header.last_offset} is less than the last one inside")
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    for start, end, offset in _inner(data, header.position, count_max):
        magic = data[start + MAGIC_POSITION]
        if magic > MAGIC_1 or (is_produced and magic != header.magic):
            raise CorruptBatch(header.position, f"a message of magic {magic} inside of a wrapper of {header.magic}")
        if data[start + MAGIC_POSITION + 1] & CODEC_MASK:
            raise CorruptBatch(header.position, "wrapper message inside of another one")
        if is_produced and crc_of(data, start, end, magic) != int.from_bytes(data[start + 12 : start + 16], "big"):
            raise WrongChecksum(header.position, "a message inside of a wrapper has a wrong checksum")
        key, value = _key_and_value(data, start, end, header.position)
        if magic == MAGIC_0:
            timestamp = NO_TIMESTAMP
        elif append_time is not None:
            timestamp = append_time
        else:
            timestamp = int.from_bytes(data[start + 18 : start + 26], "big", signed=True)
        yield Record(base_offset + offset, timestamp, key, value)


def build_messages(
    records: Iterable[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Return the records, which keep their offsets, as messages; with a codec, in one wrapper.  Headers are left out.

    With LOG_APPEND_TIME all records have the append time already.  Without records the result is empty.  Raises
    ValueError for zstd, which magic 0 and 1 do not support.
    """
    if codec is Codec.ZSTD:
        raise ValueError("magic 0 and 1 do not support zstd")
    attributes = LOG_APPEND_TIME_BIT if magic and timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    messages = bytearray()
    if codec is Codec.NONE:
        for record in records:
            _write(messages, record.offset, magic, attributes, record.timestamp, record.key, record.value)
        return bytes(messages)
    base_offset, last_offset, max_timestamp = -1, -1, NO_TIMESTAMP
    for record in records:
        if base_offset < 0:
            base_offset = record.offset if magic else 0
        last_offset = record.offset
        max_timestamp = max(max_timestamp, record.timestamp)
        _write(messages, last_offset - base_offset, magic, attributes, record.timestamp, record.key, record.value)
    if last_offset < 0:
        return b""
    value = compress(codec, messages)
    if codec is Codec.LZ4 and magic == MAGIC_0:
        value = _with_header_checksum(value, start=0)
    wrapper = bytearray()
    _write(wrapper, last_offset, magic, attributes | codec, max_timestamp, None, value)
    return bytes(wrapper)


def _write(
    target: bytearray, offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> None:
    key_length = -1 if key is None else len(key)
    start = (
        _START_1.pack(magic, attributes, timestamp, key_length) if magic else _START_0.pack(0, attributes, key_length)
    )
    body = b"".join((start, key or b"", _LENGTH.pack(-1 if value is None else len(value)), value or b""))
    target += _OFFSET_SIZE_CRC.pack(offset, len(body) + 4, zlib.crc32(body))
    target += body


def _unwrapped(buffer: Buffer, header: BatchHeader, size_max: int) -> bytes:
    """Return the decompressed value of a wrapper."""
    if header.end > len(buffer):
        raise CorruptBatch(header.position, f"message of {header.size} bytes is incomplete")
    codec = header.codec
    if codec is Codec.ZSTD:
        raise CorruptBatch(header.position, "magic 0 and 1 do not support zstd")
    data = bytes(memoryview(buffer)[header.position : header.end])
    value = _key_and_value(data, 0, len(data), header.position)[1]
    if value is None:
        raise CorruptBatch(header.position, "wrapper message without a value")
    if codec is Codec.LZ4 and header.magic == MAGIC_0:
        value = _with_header_checksum(value, start=4)
    try:
        return decompress(codec, value, size_max)
    except DecompressedSizeExceeded as error:
        raise BatchTooLarge(header.position, str(error)) from error
    except DecompressionError as error:
        raise CorruptBatch(header.position, str(error)) from error


def _extent(data: bytes, header: BatchHeader, count_max: int) -> tuple[int, int, int]:
    """Return (first, last, number) of the offset fields in the decompressed value."""
    first, last, count = -1, -1, 0
    for _, _, last in _inner(data, header.position, count_max):
        if not count:
            first = last
        count += 1
    return first, last, count


def _inner(data: bytes, wrapper: int, count_max: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, offset field) of the complete messages in a decompressed value; at least one.

    Raises BatchTooLarge after `count_max` of them.
    """
    position, total = 0, len(data)
    left = count_max
    unpack = _ENTRY.unpack_from
    while total - position >= LOG_OVERHEAD:
        offset, size = unpack(data, position)
        if size < SIZE_MIN[MAGIC_0]:
            raise CorruptBatch(wrapper, f"message size {size} inside of a wrapper is too small")
        end = position + LOG_OVERHEAD + size
        if end > total:
            break
        left -= 1
        if left < 0:
            raise BatchTooLarge(wrapper, f"wrapper message with more than {count_max} messages")
        yield position, end, offset
        position = end
    if not position:
        raise CorruptBatch(wrapper, "wrapper message without messages")


def _key_and_value(data: bytes, start: int, end: int, reported: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the message data[start:end]; errors are reported at the position `reported`."""
    position = start + (_MESSAGE_1.size if data[start + MAGIC_POSITION] else _MESSAGE_0.size)
    key: bytes | None = None
    value: bytes | None = None
    if position + 4 > end:
        raise CorruptBatch(reported, "a message is too small for its fields")
    (length,) = _LENGTH.unpack_from(data, position - 4)
    if length >= 0:
        key = data[position : position + length]
        position += length
        if position + 4 > end:
            raise CorruptBatch(reported, f"invalid key length {length}")
    (length,) = _LENGTH.unpack_from(data, position)
    position += 4
    if length >= 0:
        value = data[position : position + length]
        position += length
    if position > end:
        raise CorruptBatch(reported, f"invalid value length {length}")
    return key, value


# The checksum of lz4 frame headers.


def _with_header_checksum(frame: bytes, *, start: int) -> bytes:
    """Return the lz4 frame with the header checksum computed from `start`: 4 is correct, 0 is that of magic 0."""
    flags = frame[4] if len(frame) > 4 else 0
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(frame) <= end:
        return frame  # Not a frame; the codec reports it.
    checksum = (_xxh32(frame[start:end]) >> 8) & 0xFF
    return b"".join((frame[:end], bytes((checksum,)), frame[end + 1 :]))


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = (1 << 32) - 1


def _xxh32(data: bytes) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes.

    https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
    """
    assert len(data) < 16
    value = _PRIME_5 + len(data)
    words_end = len(data) - len(data) % 4
    for position in range(0, words_end, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        value = _rotated(value + word * _PRIME_3, 17) * _PRIME_4
    for byte in data[words_end:]:
        value = _rotated(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return value << by | value >> 32 - by
