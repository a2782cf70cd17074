"""Reads batches and their records, of any format.

Messages of magic 0 and 1 are treated as batches by the iterators here; `legacy` reads them.

All readers accept untrusted bytes: they raise CorruptBatch, never read past the buffer, and allocate no memory by a
count before checking it.
"""

# ruff: noqa: PLC0415 - the reader of old formats loads when the first old message comes.

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, cast

from kctl.records.compiled import walk_is_compiled
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
    TIMESTAMP_MIN,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    OldFormat,
    Record,
    crc_of,
    describe_malformed_record,
    parse_header,
    wrapped,
)

if walk_is_compiled():
    from kctl.records.compiled.walk import read_placed_records, read_records

_LENGTH = struct.Struct(">i")


def parse_any_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, of any format.  Raises CorruptBatch as parse_header does."""
    try:
        return parse_header(buffer, position)
    except OldFormat:
        from kctl.records.old_formats import legacy

        return legacy.parse_message(buffer, position)


def iterate_batches(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Yield the headers of all complete batches and old messages from `position` on.

    An incomplete batch at the end is normal in Fetch responses and ends the iteration; checksums are not checked.
    Raises CorruptBatch as parse_header does.
    """
    size = len(buffer)
    while size - position >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(buffer, position + 8)
        if length >= 0 and position + LOG_OVERHEAD + length > size:
            return
        header = parse_any_header(buffer, position)
        yield header
        position = header.end


def end_of_batches(buffer: Buffer, default: int) -> int:
    """Return the offset after the last complete batch, or `default` without one.  Checks no batch but the last.

    Raises CorruptBatch as parse_header does.
    """
    size, position, last = len(buffer), 0, -1
    while size - position >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(buffer, position + 8)
        if length < 0:
            raise CorruptBatch(position, f"length {length}")
        if position + LOG_OVERHEAD + length > size:
            break
        last, position = position, position + LOG_OVERHEAD + length
    return default if last < 0 else parse_any_header(buffer, last).next_offset


def crc_ok(buffer: Buffer, header: BatchHeader | None = None) -> bool:
    """Return whether the batch at the start of the buffer, or the one that `header` was read from, has the right
    checksum.
    """
    if header is None:
        header = parse_any_header(buffer)
    return header.end <= len(buffer) and crc_of(buffer, header.position, header.end, header.magic) == header.crc


RECORD_SIZE_MIN = 7
"""Size of a record without key, value and headers."""

COPIED_SIZE_MAX = 1 << 10
"""Up to this size copying out of bytes is cheaper than a view."""


def records_region(buffer: Buffer, header: BatchHeader, size_max: int = DECOMPRESSED_SIZE_MAX) -> Buffer:
    """Return the records of the batch, uncompressed: a view if they were uncompressed and not small.

    Raises BatchTooLarge if they decompress to more than `size_max` bytes, CorruptBatch for damage.
    """
    if header.magic != 2:
        raise OldFormat(header.position, header.magic)
    start, end = header.position + HEADER_SIZE, header.end
    if end > len(buffer):
        raise CorruptBatch(header.position, f"batch of {header.size} bytes is incomplete")
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
    """Yield the records of the batch at the start of the buffer, or of the one that `header` was read from.

    With LogAppendTime every record has the batch's max timestamp.  Raises CorruptBatch at the first malformed record,
    and when records are missing or left over; the records before it have been yielded.
    """
    if header is None:
        header = parse_any_header(buffer)
    if header.magic != 2:
        from kctl.records.old_formats import legacy

        return legacy.iterate_messages(buffer, header, size_max=size_max)
    # Slicing keys and values out of bytes takes half the time of slicing a memoryview.
    return iterate_plain(bytes(records_region(buffer, header, size_max)), header)


def placed_records(
    buffer: Buffer, header: BatchHeader, place: tuple[str, int]
) -> Iterator[tuple[list[tuple[Any, ...]], bool]]:
    """Yield all records of a batch: topic, partition, the fields of Record, timestamp type, leader epoch.

    In lists of at most _READ_AT_ONCE records, each with whether it is the last one: the garbage collector visits the
    records of larger ones again and again.  Raises CorruptBatch.
    """
    origin = (header.timestamp_type, header.leader_epoch)
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    base_timestamp = header.max_timestamp if has_append_time else header.base_timestamp
    is_plain = header.magic == 2 and abs(base_timestamp) <= _BASE_MAX and abs(header.base_offset) <= _BASE_MAX
    if not is_plain or not walk_is_compiled():
        yield [(*place, *record, *origin) for record in iterate_records(buffer, header)], True
        return
    data = bytes(records_region(buffer, header))
    position, done, count = 0, 0, header.record_count
    while done < count:
        size = min(_READ_AT_ONCE, count - done)
        try:
            found, position = read_placed_records(
                data,
                position,
                size,
                header.base_offset,
                base_timestamp,
                place,
                origin,
                has_append_time=has_append_time,
            )
        except (IndexError, ValueError):
            # What the walk refuses is rare or malformed: it is read again in Python.
            yield [(*place, *record, *origin) for record in islice(iterate_interpreted(data, header), done, None)], True
            return
        done += size
        if done == count and position != len(data):
            raise CorruptBatch(header.position, f"{len(data) - position} bytes after the last record")
        yield cast("list[tuple[Any, ...]]", found), done == count
    if count < 0:
        raise CorruptBatch(header.position, f"{count} records")


def iterate_plain(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of the batch of `header`; `data` is the result of records_region.

    A timestamp beyond 64 bits wraps around, as in Java.  Raises CorruptBatch as iterate_records does.
    """
    return iterate_with_walk(data, header) if walk_is_compiled() else iterate_interpreted(data, header)


_READ_AT_ONCE = 512
"""Number of records; the first time less, because many callers need only the first one."""
_READ_FIRST = 8
_BASE_MAX = (1 << 62) - 1
_record: partial[Record] = partial(tuple.__new__, Record)


def iterate_with_walk(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """As iterate_plain, with kctl.records.compiled.walk; what that refuses is read again in Python."""
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    base_timestamp = header.max_timestamp if has_append_time else header.base_timestamp
    position, done, count = 0, 0, header.record_count
    if abs(base_timestamp) > _BASE_MAX or abs(header.base_offset) > _BASE_MAX:
        yield from iterate_interpreted(data, header)
        return
    size = _READ_FIRST
    while done < count:
        size = min(size, count - done)
        try:
            found, position = read_records(
                data, position, size, header.base_offset, base_timestamp, has_append_time=has_append_time
            )
        except (IndexError, ValueError):
            yield from islice(iterate_interpreted(data, header), done, None)
            return
        yield from map(_record, found)
        done += size
        size = _READ_AT_ONCE
    if count < 0:
        raise CorruptBatch(header.position, f"{count} records")
    if position != len(data):
        raise CorruptBatch(header.position, f"{len(data) - position} bytes after the last record")


def iterate_interpreted(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """As iterate_plain, in Python alone."""
    count = header.record_count
    if count < 0:
        raise CorruptBatch(header.position, f"{count} records")
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position, total = 0, len(data)
    small, new = _SMALL_VARINTS, tuple.__new__
    delta_min, delta_max = TIMESTAMP_MIN - base_timestamp, TIMESTAMP_MAX - base_timestamp
    # If a delta of one byte can overflow, all deltas are compared with the limits.
    short_delta_end = 0x80 if delta_min <= -0x40 and delta_max >= 0x40 else 0
    key: bytes | None
    value: bytes | None
    try:
        # One-byte varints are decoded inline: this loop dominates the cost of reading records.
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                length, position = small[byte], position + 1
            else:
                length, position = _varint(data, position, _SHIFT_32)
            end = position + length
            if length < 0 or end > total:
                raise CorruptBatch(header.position, f"invalid record length {length}")
            byte = data[position + 1]
            if byte < short_delta_end:
                delta, position = small[byte], position + 2
            else:
                delta, position = _varint(data, position + 1, _SHIFT_64)
                if not delta_min <= delta <= delta_max:
                    delta = wrapped(base_timestamp + delta) - base_timestamp
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = small[byte], position + 1
            else:
                offset_delta, position = _varint(data, position, _SHIFT_32)
            byte = data[position]
            if byte < 0x80 and not byte & 1:
                stop = position + 1 + small[byte]
                if stop > end:
                    raise CorruptBatch(header.position, "key extends past the end of its record")
                key, position = data[position + 1 : stop], stop
            else:
                key, position = _bytes(data, position, end)
            byte = data[position]
            if byte < 0x80 and not byte & 1:
                stop = position + 1 + small[byte]
                if stop > end:
                    raise CorruptBatch(header.position, "value extends past the end of its record")
                value, position = data[position + 1 : stop], stop
            else:
                value, position = _bytes(data, position, end)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[position] == 0:
                position += 1
            else:
                headers, position = _headers(data, position, end)
            if position != end:
                raise CorruptBatch(header.position, f"record has {end - position} bytes after its last field")
            timestamp = base_timestamp + delta if append_time is None else append_time
            yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except (IndexError, ValueError) as error:
        raise CorruptBatch(header.position, describe_malformed_record(error)) from error
    if position != len(data):
        raise CorruptBatch(header.position, f"{len(data) - position} bytes after the last record")


_SHIFT_32, _SHIFT_64 = 28, 63
"""The shift of the last possible byte of a number."""


_SMALL_VARINTS = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def _varint(data: bytes, position: int, shift_max: int) -> tuple[int, int]:
    """Return a zigzag number and the position after it.  Raises IndexError at the end of the data.

    Bits beyond the type are ignored, as in Kafka's ByteUtils.
    """
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
        if shift > shift_max:
            raise ValueError("a number has too many bytes")
    value &= 0xFFFFFFFF if shift_max == _SHIFT_32 else 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1), position + 1


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < 0x80:
        length, position = _SMALL_VARINTS[byte], position + 1
    else:
        length, position = _varint(data, position, _SHIFT_32)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise ValueError(f"length {length} exceeds the record")
    return data[position:stop], stop


def _headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(data, position, _SHIFT_32)
    if count < 0 or count > end - position:
        raise ValueError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _bytes(data, position, end)
        if key is None:
            raise ValueError("header without a key")
        value, position = _bytes(data, position, end)
        headers.append((key.decode(errors="replace"), value))  # As in Java.
    return tuple(headers), position
