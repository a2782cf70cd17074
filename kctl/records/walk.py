"""Reads the keys of a batch's records, faster than kctl.records.batch reads records.

For the cleaner, which needs the last record of each key in a large log.  Varints of one or two bytes are decoded
inline; timestamps, offset deltas, values and headers are skipped.

A region is what kctl.records.batch.records_region returns, as bytes: the uncompressed records of a batch of magic 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")

LONG_KEY_SIZE = 64
"""The size field of a key of at least this size has two bytes or more."""

_NEGATIVE = -(1 << 62)
_LOW = tuple(_NEGATIVE if byte & 1 else (byte & 0x7F) >> 1 for byte in range(0x100))
"""What the first byte of a varint adds to a length; negative lengths give a position outside of every region."""
_SMALL = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def walk_keys(
    region: bytes, count: int, long_key: Callable[[bytes], K], start: int = 0
) -> tuple[list[bytes | K | None], list[int]]:
    """Return the keys of `count` records from `start` on, None for null, and the ends of the records in the region.

    A key of LONG_KEY_SIZE or more is replaced by `long_key(key)`.  The caller checks that the last end is the end of
    the region.  Raises ValueError or IndexError for malformed records.
    """
    keys: list[bytes | K | None] = []
    ends: list[int] = []
    add_key, add_end, low = keys.append, ends.append, _LOW
    position = start
    for _ in range(count):
        byte = region[position]
        if byte < 0x80:
            end = position + 1 + low[byte]
            position += 2
        elif (high := region[position + 1]) < 0x80:
            end = position + 2 + low[byte] + (high << 6)
            position += 3
        else:
            length, position = read_varint(region, position)
            end = position + length
            position += 1
        while region[position] >= 0x80:
            position += 1
        position += 1
        while region[position] >= 0x80:
            position += 1
        byte = region[position + 1]
        if byte < 0x80:
            position += 2
            if byte & 1:
                if byte != 1 or position >= end:
                    raise ValueError(f"key of {(byte >> 1) ^ -1} bytes")
                add_key(None)
            else:
                stop = position + (byte >> 1)
                if stop >= end:  # At least the size of the value follows.
                    raise ValueError("key extends past the end of its record")
                add_key(region[position:stop])
        else:
            size, position = read_varint(region, position + 1)
            stop = position + size
            if size < 0 or stop >= end:
                raise ValueError("key extends past the end of its record")
            add_key(long_key(region[position:stop]))
        add_end(end)
        position = end
    if position > len(region):
        raise ValueError(f"the last record is incomplete by {position - len(region)} bytes")
    return keys, ends


def largest_timestamp_delta(region: bytes, starts: Iterable[int]) -> int:
    """Return the largest timestamp delta of the records that start at `starts`; at least one."""
    deltas: list[int] = []
    add, small = deltas.append, _SMALL
    for start in starts:
        position = start + 2
        if region[start] >= 0x80:
            position = _after_varint(region, start) + 1
        byte = region[position]
        if byte < 0x80:
            add(small[byte])
        elif (high := region[position + 1]) < 0x80:
            value = (byte & 0x7F) | (high << 7)
            add((value >> 1) ^ -(value & 1))
        else:
            add(read_varint(region, position)[0])
    return max(deltas)


def is_tombstone(region: bytes, start: int) -> bool:
    """True if the record at `start`, which walk_keys has read, has a null value."""
    position = _after_varint(region, start) + 1
    position = _after_varint(region, _after_varint(region, position))
    size, position = read_varint(region, position)
    return region[position + max(size, 0)] == 1


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag number and the next position.  Raises IndexError at the end of the data, ValueError over 64
    bits.
    """
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("varint is longer than 64 bits")


def _after_varint(data: bytes, position: int) -> int:
    while data[position] >= 0x80:
        position += 1
    return position + 1
