"""Helpers to write and read transactions with confluent-kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.peers.probe import wait_until

TIMEOUT_S = 60.0


def producer(bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
    """A new instance; earlier ones of the same id are fenced when this returns."""
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            # The output of a fenced producer is not an error here.
            "log_level": 0,
        }
    )
    made.init_transactions(TIMEOUT_S)
    return made


def write(made: Producer, topic: str, values: Iterable[bytes]) -> None:
    """Writes in the open transaction; the records are in the log when this returns."""
    for number, value in enumerate(values):
        made.produce(topic, value, b"key-%d" % number)
    assert made.flush(TIMEOUT_S) == 0


def transact(made: Producer, topic: str, values: Iterable[bytes]) -> None:
    """One transaction, committed."""
    made.begin_transaction()
    write(made, topic, values)
    made.commit_transaction(TIMEOUT_S)


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes]:
    """All records that a consumer gets up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = _partitions_of(consumer, topic)
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"no end of {topic} in sight: {len(values)} records so far"
        message = consumer.poll(0.2)
        if message is None:
            continue
        error, partition = message.error(), message.partition()
        assert partition is not None
        if error is None:
            values.append(message.value() or b"")
            ended.discard(partition)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(partition)
        else:
            raise KafkaException(error)
    consumer.close()
    return sorted(values)


def _partitions_of(consumer: Consumer, topic: str) -> list[int]:
    """Waits until the broker has the metadata; before that, the topic would seem to have no partitions."""
    found: list[int] = []

    def are_known() -> bool:
        found.extend(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        return bool(found)

    wait_until(are_known, what=f"partitions of {topic}", timeout_s=TIMEOUT_S)
    return found


def reader_of(bootstrap: str, group: str, topic: str, count: int) -> Consumer:
    """A member of the group that has read so many records and committed nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    got = 0
    while got < count:
        assert time.monotonic() < deadline, f"only {got} records of {topic}"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            got += 1
    return consumer


def offset_of(bootstrap: str, group: str, topic: str, *, timeout_s: float = TIMEOUT_S) -> int:
    """The committed offset of the group for partition 0; waits for pending transactions.  Raises KafkaException."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "broker.address.family": "v4", "group.id": group})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout_s)[0].offset
    finally:
        consumer.close()


def is_fenced(error: KafkaException) -> bool:
    return error.args[0].fatal() and error.args[0].code() in {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
