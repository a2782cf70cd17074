"""Clients with the protocol before Kafka 0.11: they use message formats 0 and 1, the log uses format 2.

kafka-python is configured with the version of the broker and uses the API versions of that time; librdkafka is
configured not to request API versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.clients.confluent import Confluent
from tests.integration.clients.conftest import PARTITIONS, RUN
from tests.integration.clients.family import TIMEOUT_S, Entry, Family, GroupMember
from tests.integration.clients.kafka_python import KafkaPython

pytestmark = pytest.mark.clients

COUNT = 120
OLD_CODECS = ("none", "gzip", "snappy", "lz4")


class KafkaPython09(KafkaPython):
    codecs = OLD_CODECS
    settings: Mapping[str, Any] = {"api_version": (0, 9)}
    has_headers = False


class KafkaPython010(KafkaPython09):
    settings: Mapping[str, Any] = {"api_version": (0, 10)}


class KafkaPython0101(KafkaPython09):
    settings: Mapping[str, Any] = {"api_version": (0, 10, 1)}


class Confluent09(Confluent):
    codecs = OLD_CODECS
    settings: Mapping[str, Any] = {"api.version.request": False, "broker.version.fallback": "0.9.0", "log_level": 2}
    is_idempotent = False
    has_headers = False


OLD = [KafkaPython09, KafkaPython010, KafkaPython0101, Confluent09]


def records(tag: str) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (number % 16), f"{tag}-{number:04}".encode()) for number in range(COUNT)]


def pairs(entries: list[Entry]) -> list[tuple[bytes | None, bytes]]:
    return sorted((entry.key or b"", entry.value) for entry in entries)


@pytest.fixture
def old(request: pytest.FixtureRequest, bootstrap: str) -> Family:
    opened: Family = request.param(bootstrap)
    return opened


@pytest.mark.parametrize("old", OLD, indirect=True)
def test_records_of_an_old_client_are_read_by_old_and_new_clients(old: Family, topic: str, bootstrap: str) -> None:
    sent = []
    for codec in OLD_CODECS:
        old.produce(topic, records(codec), codec)
        sent += records(codec)
    assert sum(Confluent(bootstrap).end_offsets(topic, PARTITIONS)) == len(sent), "nothing was written twice"
    for reader in (old, Confluent(bootstrap)):
        assert pairs(reader.consume(topic, len(sent))) == sorted(sent)


@pytest.fixture(scope="module")
def written_by_a_new_client(bootstrap: str) -> dict[str, str]:
    """The topics of each codec, with headers and records of an idempotent producer."""
    topics = {codec: f"for-old-readers-{codec}-{RUN}" for codec in Confluent.codecs}
    for codec, topic in topics.items():
        Confluent(bootstrap).create_topic(topic, PARTITIONS)
        Confluent(bootstrap).produce(topic, records(codec), codec)
    return topics


@pytest.mark.parametrize("old", OLD, indirect=True)
def test_an_old_client_reads_records_of_a_new_client(old: Family, written_by_a_new_client: dict[str, str]) -> None:
    for codec in OLD_CODECS:
        assert pairs(old.consume(written_by_a_new_client[codec], COUNT)) == sorted(records(codec))


@pytest.mark.parametrize("old", OLD, indirect=True)
def test_old_members_share_a_group_and_resume_at_committed_offsets(old: GroupMember, topic: str) -> None:
    group = f"group-of-{topic}"
    shared = old.share(topic, group, records("before"), PARTITIONS)
    assert sorted(shared.partitions_of_members) == [1, 2]
    assert pairs(shared.entries) == sorted(records("before"))
    old.produce(topic, records("after"))
    assert pairs(old.consume(topic, COUNT, group)) == sorted(records("after"))


def test_an_old_client_with_a_small_fetch_size_gets_large_records(bootstrap: str, topic: str) -> None:
    large = [(b"same", bytes([65 + number]) * 20_000) for number in range(5)]
    Confluent(bootstrap).produce(topic, large)
    consumer = Consumer({**Confluent09(bootstrap).common, "group.id": topic, "fetch.message.max.bytes": 1000})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: list[bytes | None] = []
    while len(values) < len(large):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        values.append(message.value())
    consumer.close()
    assert values == [value for _, value in large]


def test_zstd_is_an_error_for_an_old_client(bootstrap: str, written_by_a_new_client: dict[str, str]) -> None:
    topic = written_by_a_new_client["zstd"]
    consumer = Consumer({**Confluent09(bootstrap).common, "group.id": topic})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is not None
    consumer.close()
