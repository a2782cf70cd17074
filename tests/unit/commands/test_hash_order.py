"""Orders that were observed in the output of Kafka's tools."""

from __future__ import annotations

from kctl.commands.compat.texts.java import java_order, scala_map_order, scala_mutable_order
from kctl.model import TopicPartition

PEARS = "pears-and-more-of-a-long-name"


GROUP = "test-groups-kafka-2-8-kctl-"
NAMES = {"a": "apples", "p": PEARS, "z": "zoo", "t": GROUP, "L": f"{GROUP}-and-a-longer-name"}


def partitions(text: str) -> list[TopicPartition]:
    return [TopicPartition(NAMES[word[0]], int(word[1:])) for word in text.split()]


def test_hash_map_order_is_javas() -> None:
    assert java_order(partitions("a0 a1 a2 a3 a4 a5 a6 z0 z1 z2")) == partitions("a6 a5 a4 a3 z2 z0 z1 a2 a1 a0")
    assert java_order(["txn", "test_topicpartition", "test"]) == ["test_topicpartition", "test", "txn"]
    assert java_order([5, 1 << 32, 3]) == [1 << 32, 3, 5]


def test_map_order_is_scalas() -> None:
    assert scala_map_order(partitions("p2 a1 z0 a0")) == partitions("p2 a1 z0 a0")
    seen = partitions("p1 p0 z1 a1 a3 a2 z2 z0 a0")
    assert scala_map_order(sorted(seen)) == seen


def test_mutable_map_order_is_scalas() -> None:
    seen = partitions("L6 t2 L5 L4 L3 L2 L1 L0 t1 t0")
    assert scala_mutable_order(sorted(seen)) == seen
