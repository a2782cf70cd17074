"""Which partition a record is written to: by key, sticky, round robin."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

# The partition of a key, as the Java producer selects it. Pure.


_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that the Java producer selects for a key: murmur2 with the sign bit masked (BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed, unsigned.  Utils.murmur2."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    if length & 3:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


class Partitioner(Protocol):
    """Selects the partition of a record without one.  Any callable with these parameters is a partitioner."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """The number of a partition, from 0 to `partition_count` - 1."""
        ...


class StickyPartitioner:
    """Writes to one partition until its batch is closed, then to the next, whatever the key (UniformStickyPartitioner).

    Fewer, larger batches than round robin.  KIP-480.
    """

    def __init__(self, choose: Callable[[int], int] = random.randrange) -> None:
        """`choose(n)` returns the first partition of a topic with n partitions."""
        self._choose = choose
        self._current: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """The current partition of the topic."""
        if topic not in self._current:
            self._current[topic] = self._choose(partition_count)
        return self._current[topic] % partition_count

    def on_batch_closed(self, topic: str) -> None:
        """Moves to the next partition of the topic."""
        if topic in self._current:
            self._current[topic] += 1


class DefaultPartitioner(StickyPartitioner):
    """Hashes the key as the Java producer does; records without a key stay on one partition per batch."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """The partition of the key, else the current partition of the topic."""
        return super().__call__(topic, key, partition_count) if key is None else partition_of_key(key, partition_count)


class RoundRobinPartitioner:
    """Writes one record to each partition in turn, whatever the key (RoundRobinPartitioner)."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """The partition after the last one of the topic."""
        number = self._next.get(topic, 0) % partition_count
        self._next[topic] = number + 1
        return number
