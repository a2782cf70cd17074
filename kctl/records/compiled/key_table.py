"""The last record of each key of a log, for compaction.

This module is compiled by mypyc like `walk`.  Records are numbered in the order of their offsets.  A key is
represented by a digest of 124 bits, so that an entry has 24 bytes whatever the size of the key.

A digest consists of four sums modulo the prime 2**31 - 1: of the size of the key and its words of 28 bits, each
multiplied by a secret factor of 30 bits, which differs from sum to sum (multilinear hashing).  Two keys of up to 63
bytes have the same digest with a probability of at most 2**-120, also if a client has selected them, because it does
not have the factors.  Longer keys are digested by a function of the caller.

Entries are in 256 hash tables with linear probing, which grow one at a time: nothing takes longer than a few
milliseconds, however many keys there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from librt.strings import read_i32_le, read_i64_le
from librt.vecs import append, vec
from mypy_extensions import i32, i64, u8

LONG_KEY_SIZE: Final = 64
"""Keys of at least this size are digested by `long_key`."""
SECRET_SIZE: Final = 304
"""Bytes of the factors: 4 each for the size and for 18 words."""
DIGEST_SIZE: Final = 16
"""Bytes of the result of `long_key`."""
ENTRY_BYTES: Final = 64
"""Memory of a key: its share of a hash table that has just doubled, which is then filled to 3/8."""

_PRIME: Final = (1 << 31) - 1
_WORD: Final = (1 << 28) - 1
_SEVEN_BYTES: Final = (1 << 56) - 1
_HALF: Final = (1 << 62) - 1
_USED: Final = 1 << 62
"""Set in the first half of each digest, so that 0 stands for no entry or no key."""
_SHARDS: Final = 256
_SHARD_BITS: Final = 8
_SLOTS_FIRST: Final = 16
_SLOT: Final = 3
"""Numbers per slot: both halves of the digest, and the number of the last record."""
_PAGE_BITS: Final = 16
_PAGE: Final = 1 << _PAGE_BITS


class _Shard:
    """A hash table; the number of slots is a power of two."""

    def __init__(self) -> None:
        slots: i64 = _SLOTS_FIRST
        self.mask: i64 = slots - 1
        self.entries = vec[i64]([0] * (slots * _SLOT))
        self.count: i64 = 0

    def grow(self) -> None:
        """Double the number of slots."""
        old = self.entries
        slots: i64 = 2 * (self.mask + 1)
        mask: i64 = slots - 1
        entries = vec[i64]([0] * (slots * _SLOT))
        at: i64
        for at in range(0, len(old), _SLOT):
            first: i64 = old[at]
            if first != 0:
                slot: i64 = ((_spread(first) >> _SHARD_BITS) & mask) * _SLOT
                while entries[slot] != 0:
                    slot += _SLOT
                    if slot == slots * _SLOT:
                        slot = 0
                entries[slot] = first
                entries[slot + 1] = old[at + 1]
                entries[slot + 2] = old[at + 2]
        self.entries = entries
        self.mask = mask


class KeyTable:
    """Finds the records that are the last of their key, in one pass over all records.

    `secret` has SECRET_SIZE random bytes.  `keys` is always the vec[i32] that `walk.locate_keys` returns for
    `region`: positions and sizes.  `long_key` returns DIGEST_SIZE bytes for a key of at least LONG_KEY_SIZE.
    """

    # `keys` is an object in what interpreted code calls: mypyc 2.4 never frees a vec that is an argument of such calls.

    def __init__(self, secret: bytes, long_key: Callable[[bytes], bytes]) -> None:
        self._factors = vec[i64](capacity=SECRET_SIZE >> 2)
        position: i64
        for position in range(0, SECRET_SIZE, 4):
            self._factors = append(self._factors, i64(read_i32_le(secret, position) & 0x3FFFFFFF))
        self._long_key = long_key
        self._shards = [_Shard() for _ in range(_SHARDS)]
        self._is_last: list[vec[u8]] = []
        """A byte per record, in pages of _PAGE records: 1 if it is the last of its key."""
        self.record_count: i64 = 0
        self.key_count: i64 = 0

    def add(self, region: bytes, keys: object) -> None:
        """Add records; those without key are not the last of any key."""
        digests = self._digests(region, cast("vec[i32]", keys))
        shards = self._shards
        pages = self._is_last
        number: i64 = self.record_count
        added: i64 = 0
        at: i64
        for at in range(0, len(digests), 2):
            if number & (_PAGE - 1) == 0:
                pages.append(vec[u8]([0] * _PAGE))
            first: i64 = digests[at]
            if first != 0:
                second: i64 = digests[at + 1]
                spread: i64 = _spread(first)
                shard = shards[spread & (_SHARDS - 1)]
                entries = shard.entries
                mask: i64 = shard.mask
                slot: i64 = (spread >> _SHARD_BITS) & mask
                position: i64 = slot * _SLOT
                while entries[position] != 0 and (entries[position] != first or entries[position + 1] != second):
                    slot = (slot + 1) & mask
                    position = slot * _SLOT
                if entries[position] == 0:
                    entries[position] = first
                    entries[position + 1] = second
                    entries[position + 2] = number
                    added += 1
                    shard.count += 1
                    if shard.count * 4 > mask * 3:
                        shard.grow()
                else:
                    older: i64 = entries[position + 2]
                    pages[older >> _PAGE_BITS][older & (_PAGE - 1)] = 0
                    entries[position + 2] = number
                pages[number >> _PAGE_BITS][number & (_PAGE - 1)] = 1
            number += 1
        self.record_count = number
        self.key_count += added

    def are_last(self, start: i64, count: i64) -> vec[u8]:
        """Return a byte per record from number `start` on: 1 if it is the last of its key."""
        found = vec[u8]([0] * count)
        at: i64 = 0
        while at < count:
            page = self._is_last[(start + at) >> _PAGE_BITS]
            position: i64 = (start + at) & (_PAGE - 1)
            end: i64 = min(count, at + _PAGE - position)
            while at < end:
                found[at] = page[position]
                at += 1
                position += 1
        return found

    def last_count(self, start: i64, count: i64) -> i64:
        """Return how many of `count` records from number `start` on are the last of their key."""
        found: i64 = 0
        number: i64 = start
        while number < start + count:
            page = self._is_last[number >> _PAGE_BITS]
            position: i64 = number & (_PAGE - 1)
            end: i64 = min(start + count, number + _PAGE - position)
            while number < end:
                found += i64(page[position])
                number += 1
                position += 1
        return found

    def are_unknown(self, region: bytes, keys: object) -> vec[u8]:
        """Return a byte per record: 1 if its key was not added, 0 if it was or if the record has no key."""
        digests = self._digests(region, cast("vec[i32]", keys))
        shards = self._shards
        found = vec[u8](capacity=len(digests) >> 1)
        at: i64
        for at in range(0, len(digests), 2):
            first: i64 = digests[at]
            if first == 0:
                found = append(found, 0)
                continue
            second: i64 = digests[at + 1]
            spread: i64 = _spread(first)
            shard = shards[spread & (_SHARDS - 1)]
            entries = shard.entries
            slot: i64 = (spread >> _SHARD_BITS) & shard.mask
            position: i64 = slot * _SLOT
            while entries[position] != 0 and (entries[position] != first or entries[position + 1] != second):
                slot = (slot + 1) & shard.mask
                position = slot * _SLOT
            found = append(found, 1 if entries[position] == 0 else 0)
        return found

    def _digests(self, region: bytes, keys: vec[i32]) -> vec[i64]:
        """Return both halves of the digest of each key, 0 and 0 for null.

        All digests are computed before the first is looked up: the processor then overlaps the misses of its cache.
        """
        digests = vec[i64]([0] * len(keys))
        factors = self._factors
        total: i64 = len(region)
        at: i64
        for at in range(0, len(keys), 2):
            position: i64 = i64(keys[at])
            size: i64 = i64(keys[at + 1])
            if size < 0:
                continue
            if position < 0 or size > total - position:
                raise IndexError("a key exceeds the buffer")
            if size >= LONG_KEY_SIZE:
                digest = self._long_key(region[position : position + size])
                digests[at] = (read_i64_le(digest, 0) & _HALF) | _USED
                digests[at + 1] = read_i64_le(digest, 8) & _HALF
                continue
            v0: i64 = size * factors[0]
            v1: i64 = size * factors[1]
            v2: i64 = size * factors[2]
            v3: i64 = size * factors[3]
            factor: i64 = 4
            left: i64 = size
            while left > 0:
                if position + 8 <= total:
                    word: i64 = read_i64_le(region, position)
                else:
                    word = _last_bytes(region, position)
                mask: i64 = _SEVEN_BYTES
                if left < 7:
                    mask >>= 56 - 8 * left
                word &= mask
                low: i64 = word & _WORD
                high: i64 = word >> 28
                v0 += low * factors[factor] + high * factors[factor + 4]
                v1 += low * factors[factor + 1] + high * factors[factor + 5]
                v2 += low * factors[factor + 2] + high * factors[factor + 6]
                v3 += low * factors[factor + 3] + high * factors[factor + 7]
                factor += 8
                position += 7
                left -= 7
            digests[at] = _reduced(v0) | (_reduced(v1) << 31) | _USED
            digests[at + 1] = _reduced(v2) | (_reduced(v3) << 31)
        return digests


def _last_bytes(region: bytes, position: i64) -> i64:
    """Return up to seven bytes at the end of the region as a number, the first one lowest."""
    word: i64 = 0
    shift: i64 = 0
    while position < len(region):
        word |= i64(region[position]) << shift
        shift += 8
        position += 1
    return word


def _reduced(value: i64) -> i64:
    """Return the remainder of a number below 2**63."""
    value = (value & _PRIME) + (value >> 31)
    value = (value & _PRIME) + (value >> 31)
    return value - _PRIME if value >= _PRIME else value


def _spread(first: i64) -> i64:
    """Return 31 bits of which each depends on both values in the first half of a digest.

    The values alone are linear in the last word of the key, so that similar keys would be close together.
    """
    product: i64 = (first & _PRIME) * ((first >> 31) & _PRIME)
    return (product ^ (product >> 31)) & _PRIME
