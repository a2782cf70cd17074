"""The hash of a key, by which Java's producer selects a partition.

This module is compiled by mypyc if a C compiler is available when kctl is built: docs/decisions/record-walk.md.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 with Kafka's seed, unsigned.  Utils.murmur2."""
    size: i64 = len(data)
    value: i64 = (_SEED ^ size) & _MASK
    position: i64 = 0
    while position + 4 <= size:
        first: i64 = data[position]
        second: i64 = data[position + 1]
        third: i64 = data[position + 2]
        fourth: i64 = data[position + 3]
        # No product of a number of 32 bits and _M has more than 63 bits.
        k: i64 = (first | second << 8 | third << 16 | fourth << 24) * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
        position += 4
    if position < size:
        shift: i64 = 0
        while position < size:
            byte: i64 = data[position]
            value ^= byte << shift
            shift += 8
            position += 1
        value = value * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
