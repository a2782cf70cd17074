"""Counts of keys in bounded memory: how many different keys there are, and which ones are frequent.  Pure.

Both sets identify a key by a hash of 64 bits, so keys of a chunk are counted before they are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Counts = NDArray[np.int64]


class DistinctKeys:
    """The keys with the smallest hashes, with exact counts (k minimum values; Bar-Yossef et al., 2002).

    Exact up to `size` keys.  With more, the largest of the kept hashes tells how densely the hashes lie: the estimate
    has a relative standard error of 1/sqrt(size - 2).  A key that is kept at the end was kept from its first record
    on, so the kept keys are a sample of all keys, whatever their counts.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._hashes = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._lows = np.empty(0, np.int64)
        self._highs = np.empty(0, np.int64)
        self.is_exact = True

    def add(self, hashes: Hashes, counts: Counts, partition: int) -> None:
        """Add the numbers of records by key, each key once, of a partition."""
        if not self.is_exact:
            possible = hashes <= self._hashes[-1]
            hashes, counts = hashes[possible], counts[possible]
        if not len(hashes):
            return
        here = np.full(len(hashes), partition, np.int64)
        together = np.concatenate((self._hashes, hashes))
        order = np.argsort(together, kind="stable")
        together = together[order]
        firsts = np.flatnonzero(np.concatenate(([True], together[1:] != together[:-1])))
        self._hashes = together[firsts][: self._size]
        self._counts = np.add.reduceat(np.concatenate((self._counts, counts))[order], firsts)[: self._size]
        self._lows = np.minimum.reduceat(np.concatenate((self._lows, here))[order], firsts)[: self._size]
        self._highs = np.maximum.reduceat(np.concatenate((self._highs, here))[order], firsts)[: self._size]
        self.is_exact = self.is_exact and len(firsts) <= self._size

    @property
    def estimate(self) -> int:
        """The number of different keys."""
        if self.is_exact:
            return len(self._hashes)
        return round((self._size - 1) * 2.0**64 / (float(self._hashes[-1]) + 1))

    @property
    def error(self) -> float:
        """The relative standard error of the estimate."""
        return 0.0 if self.is_exact else 1 / math.sqrt(self._size - 2)

    @property
    def spread_share(self) -> float:
        """The share of the keys with records in more than one partition."""
        return float((self._lows != self._highs).mean()) if len(self._hashes) else 0.0

    @property
    def counts(self) -> Counts:
        """The numbers of records of the kept keys."""
        return self._counts


class FrequentKey(NamedTuple):
    """A key with at least `records` records."""

    key: bytes
    """Its first bytes."""
    records: int


class FrequentKeys:
    """The most frequent keys (Misra-Gries with merged summaries; Agarwal et al., 2012).

    Exact up to `size` keys.  With more, counts are too low by at most `error`, which is at most the number of records
    divided by `size`; every key with more records than that is kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._hashes = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._keys: dict[int, bytes] = {}
        self.error = 0

    def add(self, hashes: Hashes, counts: Counts, key_at: Callable[[int], bytes]) -> None:
        """Add the numbers of records by key, each key once; `key_at` has the key of an index."""
        if not len(hashes):
            return
        together = np.concatenate((self._hashes, hashes))
        found, places = np.unique(together, return_inverse=True)
        sums = np.zeros(len(found), np.int64)
        np.add.at(sums, places, np.concatenate((self._counts, counts)))
        if len(found) > self._size:
            excess = int(np.partition(sums, -self._size - 1)[-self._size - 1])
            self.error += excess
            kept = sums > excess
            found, sums = found[kept], sums[kept] - excess
        self._hashes, self._counts = found, sums
        is_kept = np.isin(hashes, found)
        keys = {hash_: self._keys[hash_] for hash_ in found.tolist() if hash_ in self._keys}
        for index in np.flatnonzero(is_kept).tolist():
            hash_ = int(hashes[index])
            if hash_ not in keys:
                keys[hash_] = key_at(index)
        self._keys = keys

    def top(self, count: int) -> list[FrequentKey]:
        """Return the most frequent keys, the first ones first."""
        order = np.lexsort((self._hashes, -self._counts))[:count].tolist()
        return [FrequentKey(self._keys[int(self._hashes[at])], int(self._counts[at])) for at in order]
