"""Which partition a record is written to: by key, sticky, round robin."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Protocol
from zlib import crc32

from kctl.records.compiled.key_hash import murmur2

# The partition of a key, as the Java producer selects it. Pure.


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition that the Java producer selects for a key: murmur2 with the sign bit masked
    (BuiltInPartitioner).
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count if partition_count > 1 else 0


def crc32_partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition that librdkafka selects for a key by default (its partitioner consistent_random)."""
    return crc32(key) % partition_count


class Partitioner(Protocol):
    """Selects the partition of a record without one.  Any callable with these parameters is a partitioner."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the number of a partition, from 0 to `partition_count` - 1."""
        ...


class StickyPartitioner:
    """Writes to one partition until its batch is closed, then to the next, whatever the key (UniformStickyPartitioner).

    Fewer, larger batches than round robin.  KIP-480.
    """

    def __init__(self, choose: Callable[[int], int] = random.randrange) -> None:
        """`choose(n)` returns the first partition of a topic with n partitions."""
        self._choose = choose
        self._last: dict[str, int] = {}
        self.current: dict[str, int] = {}
        """The partition of records without a key, by topic."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the current partition of the topic."""
        partition = self.current.get(topic)
        if partition is None or partition >= partition_count:
            last = self._last.get(topic)
            partition = self._choose(partition_count) if last is None else (last + 1) % partition_count
            self.current[topic] = partition
        return partition

    def on_batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Move to the next partition of the topic, when a batch of this size in bytes takes no further record."""
        if topic in self.current:
            self._last[topic] = self.current.pop(topic)


class DefaultPartitioner(StickyPartitioner):
    """Hashes the key as the Java producer does; records without a key stay on one partition per batch."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the partition of the key, else the current partition of the topic."""
        return super().__call__(topic, key, partition_count) if key is None else partition_of_key(key, partition_count)


class Crc32Partitioner(StickyPartitioner):
    """Hashes the key as librdkafka does (consistent_random): CRC-32.  Records without a key stay on a partition."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the partition of the key, else, also for an empty key, the current partition of the topic."""
        return crc32(key) % partition_count if key else super().__call__(topic, key, partition_count)


class AdaptivePartitioner(StickyPartitioner):
    """Hashes the key as the Java producer does.

    Records without a key go to a random partition until it has got a batch, then to another one, more often to those
    that have fewer batches waiting: a slow broker gets less.  KIP-794.
    """

    def __init__(
        self,
        batch_bytes: int = 64 << 10,
        *,
        ignores_keys: bool = False,
        is_adaptive: bool = True,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        """Leave a partition after `batch_bytes`.  `choose(n)` returns a random number below n."""
        super().__init__(choose)
        self._batch_bytes = batch_bytes
        self._ignores_keys = ignores_keys
        self._is_adaptive = is_adaptive
        self._written: dict[str, int] = {}
        self.waiting: Callable[[str, int], list[int]] = lambda _, partition_count: [0] * partition_count
        """The batches without a result of each partition; the producer sets it."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the partition of the key, else the current partition of the topic."""
        if key is not None and not self._ignores_keys:
            return partition_of_key(key, partition_count)
        partition = self.current.get(topic)
        if partition is None or partition >= partition_count:
            partition = self.current[topic] = self._selected(topic, partition_count)
        return partition

    def on_batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Leave a partition that has got enough, when a batch of this size in bytes takes no further record."""
        if self.current.get(topic) != partition:
            return
        self._written[topic] = self._written.get(topic, 0) + size
        if self._written[topic] * 2 > self._batch_bytes:  # a batch that is closed early is seldom full
            del self._written[topic], self.current[topic]

    def _selected(self, topic: str, partition_count: int) -> int:
        """BuiltInPartitioner.nextPartition: the weight of a partition is the longest queue and one, less its own."""
        if not self._is_adaptive:
            return self._choose(partition_count)
        waiting = self.waiting(topic, partition_count)
        longest = max(waiting) + 1
        weights = list(accumulate(longest - count for count in waiting))
        return bisect_right(weights, self._choose(weights[-1]))


class RoundRobinPartitioner:
    """Writes one record to each partition in turn, whatever the key (RoundRobinPartitioner)."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """Return the partition after the last one of the topic."""
        number = self._next.get(topic, 0) % partition_count
        self._next[topic] = number + 1
        return number
