"""Keys are partitioned as by the Java producer."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kctl.client.producing.partitioners import (
    DefaultPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    murmur2,
    partition_of_key,
)
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
            select.on_batch_closed("orders")
            current = (current + 1) % partition_count
        assert select("orders", b"another", partition_count) == current
