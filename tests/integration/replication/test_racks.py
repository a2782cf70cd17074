"""Consumers read from the replica in their rack, and get everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.integration.replication.conftest import RACKS, TIMEOUT_S, Racks
from tests.peers import apache_kafka
from tests.peers.probe import wait_until

pytestmark = pytest.mark.timeout(300)

RECORDS, SIZE = 400, 10_000


def traffic(racks: Racks, topic: str, rack: str | None) -> tuple[int, list[int]]:
    """How many different records librdkafka reads, and how many bytes it receives from each broker."""
    received = [0] * len(RACKS)

    def note(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] >= 0:
                received[broker["nodeid"]] = broker["rxbytes"]

    config: dict[str, Any] = {
        "bootstrap.servers": racks.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "statistics.interval.ms": 100,
        "stats_cb": note,
    }
    if rack is not None:
        config["client.rack"] = rack
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: set[int] = set()

    def has_all() -> bool:
        for message in consumer.consume(1000, 0.1):
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            if error is None:
                offset = message.offset()
                assert offset is not None
                offsets.add(offset)
        return len(offsets) >= RECORDS and sum(received) >= RECORDS * SIZE

    try:
        wait_until(has_all, what="all records and statistics", timeout_s=TIMEOUT_S)
    finally:
        consumer.close()
    return len(offsets), received


@pytest.fixture(scope="module")
def topic(racks: Racks) -> str:
    """A topic whose leader is in rack a, with replicas in all racks."""
    racks.create("racks", 0, 1, 2)
    racks.produce("racks", RECORDS, SIZE)
    racks.until("equal replicas", lambda: racks.size("racks", 0) == racks.size("racks", 1) == racks.size("racks", 2))
    return "racks"


@pytest.mark.parametrize(("rack", "broker"), [("a", 0), ("b", 1), ("c", 2), (None, 0), ("elsewhere", 0)])
def test_librdkafka_reads_from_the_replica_of_its_rack(racks: Racks, topic: str, rack: str | None, broker: int) -> None:
    count, received = traffic(racks, topic, rack)
    assert count == RECORDS
    others = sum(size for number, size in enumerate(received) if number != broker)
    assert received[broker] > RECORDS * SIZE > 10 * others


def test_a_follower_hides_aborted_records(racks: Racks) -> None:
    racks.create("aborted", 0, 1)
    producer = Producer({"bootstrap.servers": racks.bootstrap, "transactional.id": "racks"})
    producer.init_transactions(TIMEOUT_S)
    for value, end in (
        (b"gone", producer.abort_transaction),
        (b"kept", producer.commit_transaction),
        (b"lost", producer.abort_transaction),
        (b"last", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("aborted", value)
        assert producer.flush(TIMEOUT_S) == 0
        end(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": racks.bootstrap, "group.id": "unused", "client.rack": "b"})
    consumer.assign([TopicPartition("aborted", 0, 0)])
    values: list[bytes] = []

    def has_last() -> bool:
        values.extend(message.value() or b"" for message in consumer.consume(10, 0.1) if message.error() is None)
        return b"last" in values

    try:
        wait_until(has_last, what="the last record", timeout_s=TIMEOUT_S)
    finally:
        consumer.close()
    assert values == [b"kept", b"last"]


def test_kctl_consumer_with_a_rack_gets_all_records(racks: Racks, topic: str) -> None:
    everywhere = racks.run(f"consume {topic} --format json")
    assert len(json.loads(everywhere)) == RECORDS
    assert racks.run(f"consume {topic} --format json", config="client.rack=b\n") == everywhere


@pytest.mark.jvm
def test_java_consumer_with_a_rack_gets_all_records(racks: Racks, topic: str) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    words = ["--bootstrap-server", racks.bootstrap, "--topic", topic, "--from-beginning"]
    words += ["--max-messages", str(RECORDS), "--consumer-property", "client.rack=c", "--timeout-ms", "60000"]
    ran = apache_kafka.run_java_tool(
        apache_kafka.OLDEST_JUDGE, "kafka.tools.ConsoleConsumer", words, timeout_s=TIMEOUT_S
    )
    assert len(set(ran.stdout.splitlines())) == RECORDS, ran.stderr
