"""Znode paths are those of Apache Kafka."""

from __future__ import annotations

import pytest

from kctl.zookeeper import paths


def test_znode_paths_are_those_of_kafka() -> None:
    assert paths.broker(3) == "/brokers/ids/3"
    assert paths.topic("orders") == "/brokers/topics/orders"
    assert paths.topic_partitions("orders") == "/brokers/topics/orders/partitions"
    assert paths.partition("orders", 2) == "/brokers/topics/orders/partitions/2"
    assert paths.partition_state("orders", 2) == "/brokers/topics/orders/partitions/2/state"
    assert paths.delete_topic("orders") == "/admin/delete_topics/orders"
    assert paths.config_entity("users/alice/clients/<default>") == "/config/users/alice/clients/<default>"
    assert paths.topic_config("orders") == "/config/topics/orders"
    assert paths.broker_config(1) == "/config/brokers/1"
    assert paths.broker_config(None) == "/config/brokers/<default>"
    assert paths.consumer_offset("g", "orders", 0) == "/consumers/g/offsets/orders/0"


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("alice", "alice"),
        ("CN=a b,O=é", "CN%3Da%20b%2CO%3D%C3%A9"),
        ("~*+/.-_", "%7E%2A%2B%2F.-_"),
        ("<default>", "%3Cdefault%3E"),
    ],
)
def test_names_are_sanitized_as_kafkas_sanitizer_does(name: str, element: str) -> None:
    assert paths.sanitize(name) == element
    assert paths.desanitize(element) == name


def test_sequence_number_is_the_ten_digits_at_the_end() -> None:
    assert paths.sequence_number("isr_change_0000000042") == 42
    with pytest.raises(ValueError, match="invalid literal"):
        paths.sequence_number("something_else")


def test_parent_of_a_top_level_node_is_the_root() -> None:
    assert [paths.parent(path) for path in ("/a/b", "/a", "/")] == ["/a", "/", "/"]
