"""Encodes the records of a batch of magic 2.  Compiled by mypyc as `walk` is.

kctl.records.build has the same in plain Python, for executors of Spark, which do not have the package librt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

EncodedRecord = tuple[int, tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]
"""Offset delta, and a record: offset (ignored), timestamp, key, value and headers."""

_INT64_MAX: Final = (1 << 63) - 1


def encode_records(records: Iterable[EncodedRecord], base_timestamp: int) -> bytes:
    """Return the records with their offset deltas, as in a batch before compression."""
    region = BytesWriter()
    for offset_delta, (_, timestamp, key, value, headers) in records:
        timestamp_delta = _wrapped(timestamp - base_timestamp)
        names = [name.encode() for name, _ in headers]
        size: i64 = 1 + _size_of(timestamp_delta) + _size_of(offset_delta) + _size_of(len(headers))
        size += _size_of_field(key) + _size_of_field(value)
        for name in names:
            size += _size_of_field(name)
        for _, data in headers:
            size += _size_of_field(data)
        _write(region, size)
        region.append(0)  # attributes
        _write(region, timestamp_delta)
        _write(region, offset_delta)
        _write_field(region, key)
        _write_field(region, value)
        _write(region, len(headers))
        for index, (_, data) in enumerate(headers):
            _write_field(region, names[index])
            _write_field(region, data)
    return region.getvalue()


def _wrapped(timestamp_delta: int) -> i64:
    """As Java's arithmetic of 64 bits."""
    if -_INT64_MAX - 1 <= timestamp_delta <= _INT64_MAX:
        return i64(timestamp_delta)
    return i64(((timestamp_delta + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63))


def _size_of_field(data: bytes | None) -> i64:
    return 1 if data is None else _size_of(len(data)) + len(data)


def _size_of(number: i64) -> i64:
    """Return how many bytes the zigzag number takes."""
    left: i64 = (number if number >= 0 else -1 - number) >> 6
    size: i64 = 1
    while left != 0:
        left >>= 7
        size += 1
    return size


def _write_field(region: BytesWriter, data: bytes | None) -> None:
    if data is None:
        region.append(1)  # -1 in zigzag
    else:
        _write(region, len(data))
        region.write(data)


def _write(region: BytesWriter, number: i64) -> None:
    """Write a zigzag number: the sign is the lowest bit, so that no intermediate result exceeds 64 bits."""
    sign: i64 = 0
    if number < 0:
        number = -1 - number
        sign = 1
    byte: i64 = (number & 0x3F) << 1 | sign
    left: i64 = number >> 6
    while left != 0:
        region.append(u8(byte | 0x80))
        byte = left & 0x7F
        left >>= 7
    region.append(u8(byte))
