"""Batches and their records, of any format.

Messages of magic 0 and 1 pass for batches in what iterates here; kctl.records.legacy reads them.

All readers take untrusted bytes: they raise CorruptBatch, never read past the buffer, and trust no count with memory.
"""

# ruff: noqa: PLC0415 - the reader of old formats loads when the first old message comes.

from __future__ import annotations

import struct
from collections.abc import Iterator

from kctl.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    Buffer,
    DecompressedSizeExceeded,
    DecompressionError,
    decompress,
)
from kctl.records.header import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    TIMESTAMP_MAX,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    OldFormat,
    Record,
    crc_of,
    parse_header,
    wrapped,
)

_LENGTH = struct.Struct(">i")


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


def crc_ok(buffer: Buffer, header: BatchHeader | None = None) -> bool:
    """Whether the batch that starts the buffer, or that `header` was read from, has the checksum it claims."""
    if header is None:
        header = parse_any_header(buffer)
    return header.end <= len(buffer) and crc_of(buffer, header.position, header.end, header.magic) == header.crc


RECORD_SIZE_MIN = 7
"""Bytes of a record without key, value and headers."""

COPIED_SIZE_MAX = 1 << 10
"""Up to which size a copy out of bytes costs less than a view of them."""


def records_region(buffer: Buffer, header: BatchHeader, size_max: int = DECOMPRESSED_SIZE_MAX) -> Buffer:
    """The records of the batch as plain bytes: a view when uncompressed and not small.

    Raises BatchTooLarge when they decompress to more than `size_max` bytes, CorruptBatch for damage.
    """
    if header.magic != 2:
        raise OldFormat(header.position, header.magic)
    start, end = header.position + HEADER_SIZE, header.end
    if end > len(buffer):
        raise CorruptBatch(header.position, f"batch of {header.size} bytes is cut off")
    if end - start < COPIED_SIZE_MAX and type(buffer) is bytes:
        region: Buffer = buffer[start:end]
    else:
        region = memoryview(buffer)[start:end]
    if not header.attributes & CODEC_MASK:
        return region
    try:
        return decompress(header.codec, region, size_max)
    except DecompressedSizeExceeded as error:
        raise BatchTooLarge(header.position, str(error)) from error
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

        return legacy.iterate_messages(buffer, header, size_max=size_max)
    # bytes, because slicing keys and values out of bytes costs half of what it costs out of a memoryview.
    return iterate_plain(bytes(records_region(buffer, header, size_max)), header)


def iterate_plain(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of the batch of `header`, of which `data` is the region that records_region gives.

    A timestamp beyond 64 bits wraps around, as in Java.  Raises CorruptBatch as iterate_records does.
    """
    count = header.record_count
    if count < 0:
        raise CorruptBatch(header.position, f"{count} records")
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position, total = 0, len(data)
    small, new = _SMALL_VARINTS, tuple.__new__
    delta_min, delta_max = -TIMESTAMP_MAX - 1 - base_timestamp, TIMESTAMP_MAX - base_timestamp
    # Where a delta of one byte can overflow, all deltas are compared with the limits.
    short_delta_end = 0x80 if delta_min <= -0x40 and delta_max >= 0x40 else 0
    key: bytes | None
    value: bytes | None
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
            if byte < short_delta_end:
                delta, position = small[byte], position + 2
            else:
                delta, position = _varint(data, position + 1)
                if not delta_min <= delta <= delta_max:
                    delta = wrapped(base_timestamp + delta) - base_timestamp
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = small[byte], position + 1
            else:
                offset_delta, position = _varint(data, position)
                if not -_OFFSET_DELTA_MAX - 1 <= offset_delta <= _OFFSET_DELTA_MAX:
                    raise ValueError(f"offset delta {offset_delta}")
            byte = data[position]
            if byte < 0x80 and not byte & 1:
                stop = position + 1 + small[byte]
                if stop > end:
                    raise CorruptBatch(header.position, "a key does not fit")
                key, position = data[position + 1 : stop], stop
            else:
                key, position = _bytes(data, position, end)
            byte = data[position]
            if byte < 0x80 and not byte & 1:
                stop = position + 1 + small[byte]
                if stop > end:
                    raise CorruptBatch(header.position, "a value does not fit")
                value, position = data[position + 1 : stop], stop
            else:
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


_OFFSET_DELTA_MAX = (1 << 31) - 1


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
