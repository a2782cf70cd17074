"""Unsigned varints, the lengths and tags of flexible versions (KIP-482).

7 bits per byte, lowest first; the highest bit of a byte is set if another one follows.
"""

from __future__ import annotations

from kctl.errors import MalformedRequest

VARINT_MAX = 0xFFFFFFFF


def finish_uvarint(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """Return (value, next position) of a varint whose first byte was already read and has its highest bit set.

    Raises MalformedRequest for more than 5 bytes or 32 bits; IndexError at the end of the buffer.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > VARINT_MAX:
                break
            return value, position
    raise MalformedRequest("a varint has more than 32 bits")


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return (value, next position).  Raises as finish_uvarint."""
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else finish_uvarint(buffer, position + 1, first)


def skip_tagged_fields(buffer: memoryview, position: int, count: int, count_max: int) -> tuple[int, int]:
    """Skip a section of unknown tagged fields; return the position after it and the remaining number of allowed fields.

    `count` is the byte before `position`.  Raises MalformedRequest for more than `count_max` fields.
    """
    if count > 0x7F:
        count, position = finish_uvarint(buffer, position, count)
    if count > count_max:
        raise MalformedRequest(f"more than {count_max} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
    return position, count_max - count


def uvarint(value: int) -> bytes:
    """Return the bytes of a varint."""
    if value < 0x80:
        return SMALL_UVARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS = tuple(bytes((value,)) for value in range(0x80))
