"""kctl.client as applications use it: beside librdkafka, on our broker and Apache Kafka's, and as in docs/client.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest

from kctl.client import (
    BlockingRebalanceListener,
    CommitFailed,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from kctl.errors import ApiError
from tests.integration.cli.conftest import KAFKA_4, ON_OURS
from tests.integration.cli.group_readers import TIMEOUT_S
from tests.peers import probe
from tests.peers.schema_registry import schema_registry

COUNT = 60
ROOT = Path(__file__).resolve().parents[3]
PAGES = tuple(
    ROOT / "docs" / name for name in ("client.md", "client-groups.md", "client-operations.md", "client-registry.md")
)
OF_KAFKA_4 = ('group_protocol="consumer"', "ShareConsumer")
"""Words in examples that need Kafka 4."""
EXAMPLES = re.findall(r"```python\n(.*?)```", "".join(page.read_text() for page in PAGES), re.DOTALL)


class Owned(BlockingRebalanceListener):
    """The partitions of a consumer, as its listener is notified."""

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.calls: list[str] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append("assigned")
        assert self.partitions.isdisjoint(partitions)
        self.partitions.update(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append("revoked")
        assert self.partitions.issuperset(partitions)
        self.partitions.difference_update(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append("lost")
        self.partitions.difference_update(partitions)


def member(
    bootstrap: str, group: str, assignor: str, *, commits: bool = True, max_poll_interval_ms: int = 300_000
) -> Consumer:
    return Consumer(
        ConsumerConfig(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
            assignors=(assignor,),
            enable_auto_commit=commits,
            max_poll_interval_ms=max_poll_interval_ms,
        )
    )


def librdkafka(bootstrap: str, group: str, assignor: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": assignor,
            "isolation.level": "read_committed",
        }
    )


def produce(bootstrap: str, topic: str, keys: range) -> None:
    with Producer(ProducerConfig(bootstrap_servers=bootstrap, compression_type="gzip")) as producer:
        futures = [producer.send(topic, f"value-{key}", key=f"key-{key}") for key in keys]
    assert all(future.result(0).offset >= 0 for future in futures)


class Failed(Exception):
    """The application fails."""


def write_and_fail(producer: Producer, topic: str) -> None:
    with producer.transaction():
        producer.send(topic, "aborted", partition=0)
        producer.flush()
        raise Failed


def read_and_fail(bootstrap: str, topic: str) -> None:
    with member(bootstrap, topic, "range") as consumer:
        consumer.subscribe([topic])
        for _ in consumer:
            raise Failed


@ON_OURS
def test_keys_are_partitioned_as_by_librdkafka(bootstrap: str, topic: str) -> None:
    keys = [f"key-{number}" for number in range(50)]
    theirs: dict[str, int | None] = {}

    def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        theirs[(message.key() or b"").decode()] = message.partition()

    other = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        other.produce(topic, b"theirs", key.encode(), on_delivery=note)
    assert other.flush(TIMEOUT_S) == 0
    with Producer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        ours = {key: producer.send(topic, "ours", key=key) for key in keys}
    assert {key: future.result(0).partition for key, future in ours.items()} == theirs


def test_transactions_are_read_by_librdkafka(bootstrap: str, topic: str) -> None:
    config = ProducerConfig(bootstrap_servers=bootstrap, transactional_id=topic)
    with Producer(config) as producer:
        with producer.transaction():
            producer.send(topic, "committed", partition=0)
        with pytest.raises(Failed):
            write_and_fail(producer, topic)
        with producer.transaction():
            producer.send(topic, "also committed", partition=0)
            producer.send_offsets(f"{topic}-group", {TopicPartition(topic, 0): 1})
        with Producer(config), pytest.raises(ApiError, match="another producer"), producer.transaction():
            producer.send(topic, "fenced", partition=0)
    reader = librdkafka(bootstrap, f"{topic}-reader", "range")
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []

    def has_both() -> bool:
        values.extend(message.value() for message in reader.consume(10, 0.2))
        return len(values) >= 2

    probe.wait_until(has_both, what="both are read", timeout_s=TIMEOUT_S)
    reader.close()
    assert values == [b"committed", b"also committed"]
    with Consumer(ConsumerConfig(bootstrap_servers=bootstrap, group_id=f"{topic}-group")) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}


@pytest.mark.parametrize("assignor", ["roundrobin", "cooperative-sticky"])
@ON_OURS
def test_shares_a_group_with_librdkafka(bootstrap: str, topic: str, assignor: str) -> None:
    produce(bootstrap, topic, range(COUNT))
    seen: list[bytes | None] = []
    owned = Owned()
    other = librdkafka(bootstrap, topic, assignor)
    with member(bootstrap, topic, assignor, commits=False) as ours:
        ours.subscribe([topic], owned)

        def poll_until_all(count: int) -> None:
            def is_done() -> bool:
                seen.extend(record.value for record in ours.poll(100))
                return len(set(seen)) >= count

            probe.wait_until(is_done, what="our member reads everything", timeout_s=TIMEOUT_S)

        poll_until_all(COUNT)
        assert len(owned.partitions) == 3
        ours.commit()
        other.subscribe([topic])

        def is_shared() -> bool:
            ours.poll(100)
            other.consume(10, 0.1)
            return bool(other.assignment()) and len(owned.partitions) + len(other.assignment()) == 3

        probe.wait_until(is_shared, what="both have partitions", timeout_s=TIMEOUT_S)
        assert "revoked" in owned.calls
        assert ours.assignment == owned.partitions
        other.close()

        def is_alone() -> bool:
            seen.extend(record.value for record in ours.poll(100))
            return len(owned.partitions) == 3

        probe.wait_until(is_alone, what="our member takes over", timeout_s=TIMEOUT_S)
    assert owned.partitions == set()
    assert len(seen) == COUNT, "committed records were not read again"


@ON_OURS
def test_member_that_does_not_poll_loses_its_partitions(bootstrap: str, topic: str) -> None:
    """Another member gets them, and a transaction of the former one cannot commit their offsets (KIP-447)."""
    produce(bootstrap, topic, range(COUNT))
    owned, others = Owned(), Owned()
    producer_config = ProducerConfig(bootstrap_servers=bootstrap, transactional_id=topic)
    with (
        member(bootstrap, topic, "range", commits=False, max_poll_interval_ms=1_000) as ours,
        member(bootstrap, topic, "range", commits=False) as other,
        Producer(producer_config) as producer,
    ):
        ours.subscribe([topic], owned)
        next(iter(ours))
        before = ours.group_metadata()
        with producer.transaction():
            producer.send_offsets(before, {TopicPartition(topic, 0): 1})
        other.subscribe([topic], others)

        def has_all() -> bool:
            other.poll(100)
            return len(others.partitions) == 3

        probe.wait_until(has_all, what="the other member has all partitions", timeout_s=TIMEOUT_S)
        assert owned.calls == ["assigned"]
        producer.begin_transaction()
        with pytest.raises(CommitFailed, match="a rebalance has taken it away"):
            producer.send_offsets(before, {TopicPartition(topic, 0): 2})
        producer.abort_transaction()

        def is_back() -> bool:
            ours.poll(100)
            other.poll(100)
            return "lost" in owned.calls and bool(owned.partitions)

        probe.wait_until(is_back, what="the first member has partitions again", timeout_s=TIMEOUT_S)
        assert owned.calls[:2] == ["assigned", "lost"]
        assert other.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}


@ON_OURS
def test_failed_block_commits_nothing_of_its_last_records(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(3))
    with pytest.raises(Failed):
        read_and_fail(bootstrap, topic)
    with member(bootstrap, topic, "range") as consumer:
        consumer.subscribe([topic])
        values = sorted(record.value for _, record in zip(range(3), consumer, strict=False))
    assert values == [b"value-0", b"value-1", b"value-2"]
    with member(bootstrap, topic, "range") as consumer:
        assert sum(consumer.committed(consumer.partitions_of(topic)).values()) == 3


@ON_OURS
def test_examples_of_the_documentation_run(bootstrap: str, topic: str) -> None:
    examples = [example for example in EXAMPLES if not any(word in example for word in OF_KAFKA_4)]
    assert len(examples) >= 8
    run(examples, bootstrap, topic)


@pytest.mark.parametrize("bootstrap", [KAFKA_4], indirect=True)
def test_examples_for_kafka_4_run(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, range(3))
    examples = [example for example in EXAMPLES if any(word in example for word in OF_KAFKA_4)]
    assert len(examples) >= 2
    run(examples, bootstrap, topic)


def run(examples: Sequence[str], bootstrap: str, topic: str) -> None:
    """Executes the programs with the address of the broker, and with topics and groups of this test."""
    groups = ("invoices", "parcels", "billing", "shipping", "copy", "orders-loader", "orders-copy", "orders-avro")
    with schema_registry() as registry:
        for number, example in enumerate(examples):
            program = example.replace("localhost:9092", bootstrap).replace('"orders"', f'"{topic}"')
            program = program.replace('"copies"', f'"{topic}"').replace("http://localhost:8081", registry.url)
            program = program.replace('"orders.*"', f'"{topic}.*"')
            for name in groups:
                program = program.replace(f'"{name}"', f'"{topic}-{name}"')
            exec(compile(program, f"docs/client.md example {number}", "exec"), {"__name__": __name__})
