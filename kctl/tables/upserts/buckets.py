"""Divides the keys of a table into buckets, each of which is one file.  Pure.

A bucket has the keys whose hashes end with certain bits: (depth, bits) those whose last `depth` bits are `bits`.  The
buckets of a table do not overlap.  One that becomes too large is divided in two, by one more bit, so that no other file
changes.  The name of a file has its bucket; nothing else stores it.

    orders+bucket-03-00005+p1f0a52d1.parquet        hashes that end with 101

Hashes are of the bytes of keys (kctl.tables.exec.decoding.changed_rows), and never change: a key is found by them in
files of earlier versions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
DEPTH_MAX = 20
"""Beyond it, a bucket is not divided: about a million files."""
_FACTOR = np.uint64(0x100000001B3)
"""Odd, so that each power is invertible."""
_HASHED_BYTES = 16 << 20
"""Bytes of keys that are hashed together."""
_NAME = re.compile(r"\+bucket-(\d{2})-([0-9a-f]{5})[+.]")


class Bucket(NamedTuple):
    """The keys whose hashes end with `depth` bits."""

    depth: int
    bits: int

    @property
    def name(self) -> str:
        """A part of the names of files."""
        return f"+bucket-{self.depth:02d}-{self.bits:05x}"

    @property
    def mask(self) -> int:
        """The bits of a hash that count."""
        return (1 << self.depth) - 1

    def halves(self) -> tuple[Bucket, Bucket]:
        """Return the two buckets that it is divided into."""
        return Bucket(self.depth + 1, self.bits), Bucket(self.depth + 1, self.bits | 1 << self.depth)

    def has(self, other: Bucket) -> bool:
        """Return whether all keys of the other bucket are in this one."""
        return other.depth >= self.depth and other.bits & self.mask == self.bits


ALL_KEYS = Bucket(0, 0)


def bucket_of_name(path: str) -> Bucket | None:
    """Return the bucket of a file; None for a file that is not one of a bucket."""
    match = _NAME.search(path.rpartition("/")[2])
    return Bucket(int(match[1]), int(match[2], 16)) if match else None


def select(bucket: Bucket, hashes: Hashes) -> NDArray[np.bool_]:
    """Return which of the hashes are in a bucket."""
    is_in: NDArray[np.bool_] = (hashes & np.uint64(bucket.mask)) == np.uint64(bucket.bits)
    return is_in


def assign(hashes: Hashes, buckets: Collection[Bucket], within: Bucket = ALL_KEYS) -> dict[Bucket, NDArray[np.int64]]:
    """Return the rows of each bucket that has any; `within` has all hashes.

    Keys that no bucket has are in new ones, the largest that overlap with none.
    """
    rows: dict[Bucket, NDArray[np.int64]] = {}
    pending = [(within, np.arange(len(hashes)))]
    held = set(buckets)
    prefixes = {Bucket(depth, bucket.bits & ((1 << depth) - 1)) for bucket in held for depth in range(bucket.depth)}
    while pending:
        bucket, places = pending.pop()
        if not len(places):
            continue
        if bucket in held or bucket not in prefixes:
            rows[bucket] = places
            continue
        halves = bucket.halves()
        is_second = select(halves[1], hashes[places])
        pending += [(halves[1], places[is_second]), (halves[0], places[~is_second])]
    return rows


def key_hashes(ids: pa.Array) -> Hashes:
    """Return a hash of 64 bits of each key, which must not be null."""
    parts: list[Hashes] = []
    start = 0
    ids = ids.cast(pa.large_binary())
    while start < len(ids):
        offsets = _offsets(ids, start, len(ids))
        count = int(max(np.searchsorted(offsets, offsets[0] + _HASHED_BYTES, side="right") - 1, 1))
        parts.append(_hashed(ids, offsets[: count + 1]))
        start += count
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _offsets(ids: pa.Array, start: int, end: int) -> NDArray[np.int64]:
    whole = np.frombuffer(ids.buffers()[1], np.int64, count=ids.offset + len(ids) + 1)
    return whole[ids.offset + start : ids.offset + end + 1]


def _hashed(ids: pa.Array, offsets: NDArray[np.int64]) -> Hashes:
    """Return sums of bytes times powers of a factor by their place, mixed (the finalizer of SplitMix64)."""
    lengths = np.diff(offsets)
    total = int(offsets[-1] - offsets[0])
    hashes = lengths.astype(np.uint64)
    if total:
        data = np.frombuffer(ids.buffers()[2], np.uint8, count=total, offset=int(offsets[0])).astype(np.uint64)
        places = np.arange(total) - np.repeat(offsets[:-1] - offsets[0], lengths)
        powers = np.full(int(lengths.max()), _FACTOR, np.uint64)
        np.multiply.accumulate(powers, out=powers)
        has_bytes = lengths > 0
        sums = np.add.reduceat((data + np.uint64(1)) * powers[places], (offsets[:-1] - offsets[0])[has_bytes])
        hashes[has_bytes] += sums
    hashes += np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def overlapping(buckets: Sequence[Bucket]) -> tuple[Bucket, Bucket] | None:
    """Return two buckets that have the same keys; None if there are none, as is usual."""
    held = set(buckets)
    if len(held) < len(buckets):
        twice = next(bucket for bucket in buckets if buckets.count(bucket) > 1)
        return twice, twice
    for bucket in buckets:
        for depth in range(bucket.depth):
            if (outer := Bucket(depth, bucket.bits & ((1 << depth) - 1))) in held:
                return outer, bucket
    return None
