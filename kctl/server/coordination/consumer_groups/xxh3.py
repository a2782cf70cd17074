"""XXH3, 64 bits: the hash of the topics of a group in its records.

Another broker, such as one of Kafka 4, that takes over the partition computes the same, and sees that nothing has
changed.  Inputs have 8 bytes at least.  Source: the specification of xxHash
(https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_PRIME_MX1 = 0x165667919E3779F9
_PRIME_MX2 = 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_SECRET_STEP = 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _SECRET_STEP
_LANES = struct.Struct("<8Q")
_MEDIUM_MAX = 240


def xxh3_64(data: bytes) -> int:
    """Return the hash of at least 8 bytes, unsigned."""
    size = len(data)
    if size <= 8:
        return _hash_8(data)
    if size <= 16:
        return _hash_16(data)
    if size <= 128:
        return _hash_128(data)
    return _hash_240(data) if size <= _MEDIUM_MAX else _hash_long(data)


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ (value >> 32)


def _hash_8(data: bytes) -> int:
    first, last = (int.from_bytes(part, "little") for part in (data[:4], data[-4:]))
    value = (last + (first << 32)) ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
    value ^= _rotate(value, 49) ^ _rotate(value, 24)
    value = value * _PRIME_MX2 & _MASK
    value ^= (value >> 35) + len(data)
    value = value * _PRIME_MX2 & _MASK
    return value ^ (value >> 28)


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _hash_16(data: bytes) -> int:
    low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
    high = _u64(data, len(data) - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche((len(data) + swapped + high + _fold(low, high)) & _MASK)


def _mix(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _hash_128(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64[0] & _MASK
    for pair in range((size - 1) // 32 + 1):
        value += _mix(data, 16 * pair, 32 * pair) + _mix(data, size - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(value & _MASK)


def _hash_240(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64[0] & _MASK
    for part in range(8):
        value += _mix(data, 16 * part, 16 * part)
    value = _avalanche(value & _MASK)
    for part in range(8, size // 16):
        value += _mix(data, 16 * part, 16 * (part - 8) + 3)
    return _avalanche((value + _mix(data, size - 16, 136 - 17)) & _MASK)


def _hash_long(data: bytes) -> int:
    size = len(data)
    lanes = [_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]]
    stripes = (size - 1) // _STRIPE
    for stripe in range(stripes):
        step = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, step * _SECRET_STEP)
        if step == _STRIPES_PER_BLOCK - 1:
            for lane, key in enumerate(_LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)):
                value = lanes[lane]
                lanes[lane] = (value ^ (value >> 47) ^ key) * _PRIME32[0] & _MASK
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    value = size * _PRIME64[0] & _MASK
    for pair in range(4):
        at = 11 + 16 * pair
        value += _fold(lanes[2 * pair] ^ _u64(_SECRET, at), lanes[2 * pair + 1] ^ _u64(_SECRET, at + 8))
    return _avalanche(value & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values, keys = _LANES.unpack_from(data, at), _LANES.unpack_from(_SECRET, secret_at)
    for lane, value in enumerate(values):
        keyed = value ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK
