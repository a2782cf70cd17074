"""Unmodified clients against one broker: they create topics, produce, consume, share partitions and commit.

Each test runs with every client library that supports it.  The records are few, because the tests are about
compatibility; keys determine the partition, so that the order per key can be checked.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.clients import kcat
from tests.integration.clients.aio_kafka import AioKafka
from tests.integration.clients.confluent import Confluent
from tests.integration.clients.conftest import PARTITIONS, RUN
from tests.integration.clients.family import TIMEOUT_S, Administrator, Entry, Family, GroupMember
from tests.integration.clients.kafka_js import KafkaJs
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.clients.kcat import Kcat
from tests.peers import kafkajs
from tests.peers.probe import wait_until

pytestmark = pytest.mark.clients

COUNT = 120
ADMINISTRATORS: list[type[Administrator]] = [Confluent, KafkaPython, AioKafka, KafkaJs]
GROUP_MEMBERS: list[type[GroupMember]] = [Confluent, KafkaPython, AioKafka, KafkaJs]
FAMILIES: list[type[Family]] = [*GROUP_MEMBERS, Kcat]
WHY_NOT = {KafkaJs: kafkajs.why_not, Kcat: kcat.why_not}


@pytest.fixture
def family(request: pytest.FixtureRequest, bootstrap: str) -> Family:
    return _opened(request.param, bootstrap)


@pytest.mark.parametrize("family", ADMINISTRATORS, indirect=True)
def test_a_topic_can_be_created_used_and_deleted(family: Administrator, bootstrap: str) -> None:
    topic = f"made-by-{type(family).__name__}-{RUN}"
    family.create_topic(topic, 2)
    family.produce(topic, _records("first"))
    assert sum(Confluent(bootstrap).end_offsets(topic, 2)) == COUNT
    family.delete_topic(topic)
    wait_until(lambda: topic not in Confluent(bootstrap).topics(), what=f"{topic} is gone", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_records_of_every_codec_are_read_in_order(family: Family, topic: str, bootstrap: str) -> None:
    sent = []
    for codec in family.codecs:
        family.produce(topic, _records(codec), codec)
        sent += _records(codec)
    got = family.consume(topic, len(sent))
    _assert_same(got, sent)
    _assert_in_order(got)
    assert sum(Confluent(bootstrap).end_offsets(topic, PARTITIONS)) == len(sent), "nothing was written twice"


@pytest.mark.parametrize("family", GROUP_MEMBERS, indirect=True)
def test_a_group_of_two_shares_the_partitions_and_resumes_at_committed_offsets(family: GroupMember, topic: str) -> None:
    group = f"group-of-{topic}"
    shared = family.share(topic, group, _records("before"), PARTITIONS)
    assert sorted(shared.partitions_of_members) == [1, 2]
    _assert_same(shared.entries, _records("before"))

    family.produce(topic, _records("after"))
    resumed = family.consume(topic, COUNT, group)
    _assert_same(resumed, _records("after"))


@pytest.fixture(scope="module")
def written_by_all(bootstrap: str) -> dict[str, list[tuple[bytes, bytes]]]:
    """The records in the topic of each codec, by codec."""
    sent: dict[str, list[tuple[bytes, bytes]]] = {}
    for codec in Confluent.codecs:
        Confluent(bootstrap).create_topic(_topic_of(codec), PARTITIONS)
        sent[codec] = []
        for kind in FAMILIES:
            if codec in kind.codecs:
                records = _records(kind.__name__, 20)
                _opened(kind, bootstrap).produce(_topic_of(codec), records, codec)
                sent[codec] += records
    return sent


@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_each_client_reads_records_of_all_others(
    family: Family, written_by_all: dict[str, list[tuple[bytes, bytes]]]
) -> None:
    for codec in family.codecs:
        sent = written_by_all[codec]
        _assert_same(family.consume(_topic_of(codec), len(sent)), sent)


def _topic_of(codec: str) -> str:
    return f"written-by-all-with-{codec}-{RUN}"


def _opened(kind: type[Family], bootstrap: str) -> Family:
    why_not = WHY_NOT.get(kind)
    if why_not and (reason := why_not()):
        pytest.skip(reason)
    return kind(bootstrap)


def _records(tag: str, count: int = COUNT) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (number % 16), f"{tag}-{number:04}".encode()) for number in range(count)]


def _assert_same(got: list[Entry], sent: list[tuple[bytes, bytes]]) -> None:
    read: Counter[tuple[bytes | None, bytes]] = Counter((entry.key, entry.value) for entry in got)
    written: Counter[tuple[bytes | None, bytes]] = Counter(sent)
    assert read == written, f"{sum((written - read).values())} missing, {sum((read - written).values())} too many"


def _assert_in_order(got: list[Entry]) -> None:
    """Per partition in offset order, one key on one partition, and per key and codec in the order of sending."""
    last_offset: dict[int, int] = {}
    last_value: dict[tuple[bytes | None, bytes], bytes] = {}
    partition_of: dict[bytes | None, int] = {}
    for entry in got:
        assert entry.offset > last_offset.get(entry.partition, -1)
        last_offset[entry.partition] = entry.offset
        assert partition_of.setdefault(entry.key, entry.partition) == entry.partition
        codec = entry.value.partition(b"-")[0]
        assert entry.value > last_value.get((entry.key, codec), b"")
        last_value[entry.key, codec] = entry.value
