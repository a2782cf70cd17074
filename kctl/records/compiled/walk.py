"""Walks over the records of a batch without an object per record: checks them, and finds where their fields are.

This module is compiled by mypyc if a C compiler is available when kctl is built; wheels contain the compiled form.
Elsewhere the same source is interpreted, about a hundred times slower: docs/decisions/record-walk.md.  Compiled code
checks each index of `bytes` as Python does, so that no input can make it read outside of its buffer.

`region` is always what kctl.records.batch.records_region returns, as bytes: the uncompressed records of a batch of
magic 2.  A number of one byte is decoded where it stands, because a call costs more than the rest of the loop.

Malformed records raise ValueError or IndexError.  What is malformed is what Kafka's DefaultRecord.readFrom refuses:

    a record, key, value or header that ends behind the record, or a record that ends behind the region
    a header without a key, a negative number of headers
    a number with more bytes than its type has (5 for 32 bits, 10 for 64 bits)
    bytes between the last field of a record and its end, or after the last record; fewer records than the header counts

A key or value whose size is negative is null, whatever the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from librt.vecs import append, vec
from mypy_extensions import i32, i64, u8

RECORD_SIZE_MIN: Final = 7
"""Size of a record without key, value and headers."""

FIELDS: Final = 8
"""Numbers per record in the result of `locate_records`."""

ReadRecord = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value and headers."""
PlacedRecord = tuple[str, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], object, int]
"""Topic, partition, the fields of ReadRecord, and where the record comes from: timestamp type and leader epoch."""

_SHIFT_32: Final = 28
_SHIFT_64: Final = 63
_SHIFT_SMALL: Final = 21
SHIFT_SMALL_TIMESTAMP: Final = 49


def check_records(region: bytes, count: i64) -> tuple[bool, i64, i64, i64]:
    """Check `count` records and summarize them.

    Returns: whether the offset deltas are 0, 1, 2 and so on; the largest and the smallest timestamp delta (0 if there
    are no records); the number of records without a key.  Raises ValueError and IndexError for malformed records.
    """
    return check_part(region, 0, len(region), count)


def check_part(region: bytes, position: i64, total: i64, count: i64) -> tuple[bool, i64, i64, i64]:
    """As `check_records`, for the records from `position` up to `total`, with more bytes around them.

    A record that ends early may be read with some of the bytes behind it; the end is compared after that.
    """
    check_count(count, total - position)
    largest: i64 = 0
    smallest: i64 = 0
    keyless: i64 = 0
    is_ordered = True
    index: i64
    for index in range(count):
        byte: i64 = region[position]
        position += 1
        if byte < 0x80:
            size: i64 = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(region, position, byte, _SHIFT_32)
        if size < 0 or size > total - position:
            raise ValueError(f"record {index} of {size} bytes exceeds the batch")
        end: i64 = position + size
        byte = region[position + 1]
        position += 2
        if byte < 0x80:
            delta: i64 = (byte >> 1) ^ -(byte & 1)
        else:
            delta, position = rest_of_number(region, position, byte, _SHIFT_64)
        if index == 0:
            largest = smallest = delta
        elif delta > largest:
            largest = delta
        elif delta < smallest:
            smallest = delta
        byte = region[position]
        position += 1
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
        else:
            delta, position = rest_of_number(region, position, byte, _SHIFT_32)
        if delta != index:
            is_ordered = False
        byte = region[position]
        position += 1
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(region, position, byte, _SHIFT_32)
        if size < 0:
            keyless += 1
        position = after_field(position, size, end)
        byte = region[position]
        position += 1
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(region, position, byte, _SHIFT_32)
        position = after_field(position, size, end)
        if region[position] == 0:
            position += 1
        else:
            position = _after_headers(region, position, end)
        if position != end:
            raise ValueError(f"record {index} ends {end - position} bytes after its last field")
    if position != total:
        raise ValueError(f"{total - position} bytes after the last record")
    return is_ordered, largest, smallest, keyless


def locate_records(buffer: bytes, regions: Sequence[tuple[int, int, int]]) -> vec[i64]:
    """Return FIELDS numbers for each record of some batches, in a flat buffer of 64-bit integers.

    A region is the start and the end of the records of a batch in `buffer`, and their number.  The numbers of a record
    are: timestamp delta, offset delta, position and size of the key, position and size of the value, position of the
    number of headers, end of the record.  Positions count from the start of the buffer; the size of a null is negative.
    The buffer protocol gives the numbers to numpy and Arrow without a copy.  Raises ValueError and IndexError for
    malformed records.
    """
    total: i64 = 0
    for start, end, count in regions:
        if start < 0 or end > len(buffer):
            raise ValueError("a region exceeds the buffer")
        check_count(count, end - start)
        total += count
    numbers = vec[i64](capacity=total * FIELDS)
    for start, end, count in regions:
        numbers = _locate(buffer, start, end, count, numbers)
    return numbers


def _locate(buffer: bytes, position: i64, limit: i64, count: i64, numbers: vec[i64]) -> vec[i64]:
    """Append the numbers of the records of one region."""
    index: i64
    for index in range(count):
        byte: i64 = buffer[position]
        position += 1
        if byte < 0x80:
            size: i64 = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(buffer, position, byte, _SHIFT_32)
        if size < 0 or size > limit - position:
            raise ValueError(f"record {index} of {size} bytes exceeds the batch")
        end: i64 = position + size
        byte = buffer[position + 1]
        position += 2
        if byte < 0x80:
            delta: i64 = (byte >> 1) ^ -(byte & 1)
        else:
            delta, position = rest_of_number(buffer, position, byte, _SHIFT_64)
        numbers = append(numbers, delta)
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
        else:
            delta, position = rest_of_number(buffer, position, byte, _SHIFT_32)
        numbers = append(numbers, delta)
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(buffer, position, byte, _SHIFT_32)
        numbers = append(numbers, position)
        numbers = append(numbers, size)
        position = after_field(position, size, end)
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(buffer, position, byte, _SHIFT_32)
        numbers = append(numbers, position)
        numbers = append(numbers, size)
        position = after_field(position, size, end)
        numbers = append(numbers, position)
        if buffer[position] == 0:
            position += 1
        else:
            position = _after_headers(buffer, position, end)
        if position != end:
            raise ValueError(f"record {index} ends {end - position} bytes after its last field")
        numbers = append(numbers, end)
    if position != limit:
        raise ValueError(f"{limit - position} bytes after the last record")
    return numbers


def read_records(
    region: bytes, position: i64, count: i64, base_offset: i64, base_timestamp: i64, *, has_append_time: bool
) -> tuple[list[ReadRecord], i64]:
    """Return `count` records from `position` on, and the position after them.

    With `has_append_time` the timestamp of each record is `base_timestamp`.  Numbers that are rare are refused like
    malformed ones, and left to a reader for which they are not special: fields of 128 MB, and deltas of more than 28 or
    56 bits, so that sums of a base below 2**62 and a delta do not overflow.
    """
    total: i64 = len(region)
    check_count(count, total - position)
    records: list[ReadRecord] = []
    timestamp: i64 = base_timestamp
    for _ in range(count):
        end, time_delta, delta, position = record_start(region, position, total)
        if not has_append_time:
            timestamp = base_timestamp + time_delta
        size, position = small_number(region, position)
        stop: i64 = after_field(position, size, end)
        key = region[position:stop] if size >= 0 else None
        size, position = small_number(region, stop)
        stop = after_field(position, size, end)
        value = region[position:stop] if size >= 0 else None
        headers: tuple[tuple[str, bytes | None], ...] = ()
        position = stop + 1
        if region[stop] != 0:
            headers, position = read_headers(region, stop, end)
        if position != end:
            raise ValueError(f"a record ends {end - position} bytes after its last field")
        records.append((base_offset + delta, timestamp, key, value, headers))
    return records, position


def record_start(region: bytes, position: i64, total: i64) -> tuple[i64, i64, i64, i64]:
    """Return the end of the record at `position`, its timestamp and offset deltas, and the position of its key."""
    size, position = small_number(region, position)
    if size < 0 or size > total - position:
        raise ValueError(f"a record of {size} bytes exceeds the batch")
    end: i64 = position + size
    byte: i64 = region[position + 1]
    position += 2
    if byte < 0x80:
        time_delta: i64 = (byte >> 1) ^ -(byte & 1)
    else:
        time_delta, position = rest_of_number(region, position, byte, SHIFT_SMALL_TIMESTAMP)
    delta, position = small_number(region, position)
    return end, time_delta, delta, position


def read_placed_records(
    region: bytes,
    position: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    place: tuple[str, int],
    origin: tuple[object, int],
    *,
    has_append_time: bool,
) -> tuple[list[PlacedRecord], i64]:
    """As `read_records`, each record between the two values of `place` and the two of `origin`."""
    topic, partition = place
    timestamp_type, leader_epoch = origin
    total: i64 = len(region)
    check_count(count, total - position)
    records: list[PlacedRecord] = []
    timestamp: i64 = base_timestamp
    for _ in range(count):
        end, time_delta, delta, position = record_start(region, position, total)
        if not has_append_time:
            timestamp = base_timestamp + time_delta
        size, position = small_number(region, position)
        stop: i64 = after_field(position, size, end)
        key = region[position:stop] if size >= 0 else None
        size, position = small_number(region, stop)
        stop = after_field(position, size, end)
        value = region[position:stop] if size >= 0 else None
        headers: tuple[tuple[str, bytes | None], ...] = ()
        position = stop + 1
        if region[stop] != 0:
            headers, position = read_headers(region, stop, end)
        if position != end:
            raise ValueError(f"a record ends {end - position} bytes after its last field")
        records.append(
            (topic, partition, base_offset + delta, timestamp, key, value, headers, timestamp_type, leader_epoch)
        )
    return records, position


def read_headers(region: bytes, position: i64, end: i64) -> tuple[tuple[tuple[str, bytes | None], ...], i64]:
    """Return the headers whose number is at `position`, and the position after them."""
    count, position = small_number(region, position)
    if count < 0 or count > end - position:
        raise ValueError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = small_number(region, position)
        if size < 0:
            raise ValueError("a header without a key")
        stop: i64 = after_field(position, size, end)
        name = region[position:stop].decode("utf-8", "replace")  # as in Java
        size, position = small_number(region, stop)
        stop = after_field(position, size, end)
        headers.append((name, region[position:stop] if size >= 0 else None))
        position = stop
    return tuple(headers), position


def locate_keys(region: bytes, count: i64, start: i64 = 0) -> tuple[vec[i32], i64]:
    """Return the position and the size of the key of `count` records from `start` on, and the end of the last record.

    The size of a null is negative.  Timestamps, offset deltas, values and headers are skipped unread; the caller checks
    that the last record ends with the region.
    """
    total: i64 = len(region)
    check_count(count, total - start)
    keys = vec[i32]([0] * (2 * count))
    position: i64 = start
    at: i64
    for at in range(0, 2 * count, 2):
        byte: i64 = region[position]
        position += 1
        if byte < 0x80:
            size: i64 = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(region, position, byte, _SHIFT_32)
        if size < 0 or size > total - position:
            raise ValueError(f"a record of {size} bytes exceeds the batch")
        end: i64 = position + size
        position += 1
        while region[position] >= 0x80:
            position += 1
        position += 1
        while region[position] >= 0x80:
            position += 1
        position += 1
        byte = region[position]
        position += 1
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(region, position, byte, _SHIFT_32)
        if after_field(position, size, end) >= end:
            raise ValueError("a key leaves no room for the size of the value")
        keys[at] = i32(position)
        keys[at + 1] = i32(size)
        position = end
    return keys, position


def retain_records(
    region: bytes, start: i64, stays: object, drops_tombstones: bool
) -> tuple[list[bytes], i64, i64, i64]:
    """Select those records from `start` on whose byte in `stays` is 1, without tombstones if `drops_tombstones`.

    `stays` is a vec[u8]; KeyTable states why it is declared as an object.  `locate_keys` has accepted the records.
    Return their bytes, in runs; their number; the largest timestamp delta among them, if there are any; the end of the
    last record of `stays`.
    """
    are_staying = cast("vec[u8]", stays)
    runs: list[bytes] = []
    count: i64 = 0
    largest: i64 = -(1 << 62) - (1 << 62)
    position: i64 = start
    run_start: i64 = start
    run_end: i64 = start
    total: i64 = len(region)
    index: i64
    for index in range(len(are_staying)):
        begin: i64 = position
        byte: i64 = region[position]
        position += 1
        if byte < 0x80:
            size: i64 = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = rest_of_number(region, position, byte, _SHIFT_32)
        if size < 0 or size > total - position:
            raise ValueError(f"a record of {size} bytes exceeds the batch")
        end: i64 = position + size
        if are_staying[index] == 1:
            byte = region[position + 1]
            position += 2
            if byte < 0x80:
                delta: i64 = (byte >> 1) ^ -(byte & 1)
            else:
                delta, position = rest_of_number(region, position, byte, _SHIFT_64)
            if not drops_tombstones or not _is_tombstone(region, position):
                count += 1
                largest = max(largest, delta)
                if run_end != begin:
                    if run_end > run_start:
                        runs.append(region[run_start:run_end])
                    run_start = begin
                run_end = end
        position = end
    if run_end > run_start:
        runs.append(region[run_start:run_end])
    return runs, count, largest, position


def _is_tombstone(region: bytes, position: i64) -> bool:
    """Return whether the record whose offset delta starts at `position` has a null value."""
    while region[position] >= 0x80:
        position += 1
    size, position = _number(region, position + 1)
    size, _ = _number(region, position + size if size > 0 else position)
    return size < 0


def check_count(count: i64, total: i64) -> None:
    """Raise ValueError before memory is allocated for more records than the region can hold."""
    if count < 0 or count > total // RECORD_SIZE_MIN:
        raise ValueError(f"{count} records do not fit {total} bytes")


def rest_of_number(region: bytes, position: i64, first: i64, shift_max: i64) -> tuple[i64, i64]:
    """Return a zigzag number whose first byte has been read, and the position after it.

    Bits beyond the type are ignored, as in Kafka's ByteUtils.  The highest of 64 bits is kept apart, so that the
    intermediate numbers are the same with integers of 64 bits and of any size.
    """
    second: i64 = region[position]
    if second < 0x80:  # Most of these numbers have two bytes.
        short: i64 = (first & 0x7F) | (second << 7)
        return (short >> 1) ^ -(short & 1), position + 1
    value: i64 = first & 0x7F
    highest: i64 = 0
    shift: i64 = 7
    while True:
        byte: i64 = region[position]
        position += 1
        if shift < _SHIFT_64:
            value |= (byte & 0x7F) << shift
        else:
            highest = byte & 1
        if byte < 0x80:
            break
        shift += 7
        if shift > shift_max:
            raise ValueError("a number has too many bytes")
    if shift_max == _SHIFT_32:
        value &= 0xFFFFFFFF
    return ((value >> 1) | (highest << 62)) ^ -(value & 1), position


def after_field(position: i64, size: i64, end: i64) -> i64:
    """Return the position after a field of `size` bytes, which may be null."""
    if size > end - position:
        raise ValueError(f"a field of {size} bytes exceeds its record")
    return position + size if size > 0 else position


def _after_headers(region: bytes, position: i64, end: i64) -> i64:
    count, position = _number(region, position)
    if count < 0 or count > end - position:
        raise ValueError(f"{count} headers")
    for _ in range(count):
        size, position = _number(region, position)
        if size < 0:
            raise ValueError("a header without a key")
        position = after_field(position, size, end)
        size, position = _number(region, position)
        position = after_field(position, size, end)
    return position


def small_number(region: bytes, position: i64) -> tuple[i64, i64]:
    """Return a number of at most 28 bits, and the position after it."""
    byte: i64 = region[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return rest_of_number(region, position + 1, byte, _SHIFT_SMALL)


def _number(region: bytes, position: i64) -> tuple[i64, i64]:
    byte: i64 = region[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return rest_of_number(region, position + 1, byte, _SHIFT_32)
