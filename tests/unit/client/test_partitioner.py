"""Keys are partitioned as by the Java producer."""

from __future__ import annotations

import zlib
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kctl.client.producing.partitioners import (
    AdaptivePartitioner,
    Crc32Partitioner,
    DefaultPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    partition_of_key,
)
from kctl.records.compiled.key_hash import murmur2
from tests.rows import for_rows


@for_rows(
    "data, signed",
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_java(data: bytes, signed: int) -> None:
    """Vectors of Kafka's own UtilsTest."""
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_partition_masks_the_sign_bit() -> None:
    assert partition_of_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


@given(st.binary(max_size=80), st.integers(1, 10_000))
def test_keys_go_where_another_client_writes_them(key: bytes, partition_count: int) -> None:
    """kafka-python has an implementation of its own."""
    expected = (murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partition_count
    assert partition_of_key(key, partition_count) == expected
    assert DefaultPartitioner()("orders", key, partition_count) == expected


@given(st.integers(1, 50), st.integers(0, 200))
def test_round_robin_is_even(partition_count: int, records: int) -> None:
    select = RoundRobinPartitioner()
    counts = Counter(select("orders", b"the same key", partition_count) for _ in range(records))
    even = [counts[number] for number in range(partition_count)]
    assert max(even) - min(even) <= 1


@given(st.integers(1, 50), st.lists(st.booleans()), st.randoms(use_true_random=False))
def test_sticky_changes_only_with_a_batch(partition_count: int, closes: list[bool], random: Random) -> None:
    select = StickyPartitioner(random.randrange)
    current = select("orders", b"k", partition_count)
    for closes_batch in closes:
        if closes_batch:
            select.on_batch_closed("orders", current, 100)
            current = (current + 1) % partition_count
        assert select("orders", b"another", partition_count) == current


@given(st.binary(min_size=1, max_size=40), st.integers(1, 1000))
def test_crc32_agrees_with_librdkafka(key: bytes, partition_count: int) -> None:
    assert Crc32Partitioner()("orders", key, partition_count) == zlib.crc32(key) % partition_count


def test_crc32_of_a_known_key() -> None:
    """The check value of CRC-32 (ISO-HDLC), which rd_crc32 of librdkafka implements."""
    assert Crc32Partitioner()("orders", b"123456789", 1 << 32) == 0xCBF43926


def test_adaptive_prefers_partitions_with_few_batches_and_stays_for_a_batch() -> None:
    """KIP-794."""
    random = Random(1)
    select = AdaptivePartitioner(1_000, choose=random.randrange)
    select.waiting = lambda topic, partition_count: [0, 4, 0]
    counts: Counter[int] = Counter()
    for _ in range(1_100):
        current = select("orders", None, 3)
        select.on_batch_closed("orders", current, 100)
        assert select("orders", None, 3) == current, "a small batch is not enough"
        select.on_batch_closed("orders", current, 900)
        counts[current] += 1
    assert 50 <= counts[1] <= 150, counts  # 1 of 11
    assert min(counts[0], counts[2]) >= 400, counts
    assert select("orders", b"k", 3) == partition_of_key(b"k", 3)
