"""Records with gaps in a cluster, and what another cluster has of them: lost, doubled, and offsets of groups.

Read and written with librdkafka, which shares no code with what copies them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

TIMEOUT_S = 60
HISTORY = "history"
PARTITIONS = 2


class Read(NamedTuple):
    """A record as a consumer sees it, without its offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, str], ...]


def write(bootstrap: str, chance: random.Random, first: int, count: int, *, topic: str = HISTORY) -> None:
    """Write transactions of a random size; one in four is aborted, so that the offsets have gaps."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-{topic}", "linger.ms": 5})
    producer.init_transactions(TIMEOUT_S)
    number = first
    while number < first + count:
        size = min(chance.choice((1, 3, 40, 200)), first + count - number)
        is_aborted = chance.random() < 0.25
        producer.begin_transaction()
        for value in range(number, number + size):
            producer.produce(
                topic,
                f"{'aborted' if is_aborted else 'record'}-{value}",
                key=f"k-{value % 50}",
                partition=value % PARTITIONS,
                timestamp=1_796_000_000_000 + value,
                headers=[("number", str(value).encode())],
            )
        if is_aborted:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            number += size


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, tps: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The offsets of a group; those of partitions without one are left out."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = consumer.committed([TopicPartition(*tp) for tp in tps], timeout=TIMEOUT_S)
    consumer.close()
    return {(place.topic, place.partition): place.offset for place in places if place.offset >= 0}


def end_offset(bootstrap: str, topic: str, partition: int) -> int:
    """The high watermark; 0 for a topic that does not exist."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        if topic not in consumer.list_topics(timeout=TIMEOUT_S).topics:
            return 0
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
    finally:
        consumer.close()
    return int(end)


def read(bootstrap: str, topic: str, partition: int) -> dict[int, Read]:
    """The committed records of a partition, by their offsets."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 5,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    records: dict[int, Read] = {}
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return records
        headers = tuple((str(name), str(value)) for name, value in list(message.headers() or ()))
        records[message.offset() or 0] = Read(message.key(), message.value(), message.timestamp()[1], headers)
    raise TimeoutError(f"no end of {topic}-{partition}")


class Faults(NamedTuple):
    """What is wrong in the target."""

    lost: int
    doubled: int
    changed_order: int
    """Partitions with the right records in another order."""


def compare(source: dict[int, Read], target: dict[int, Read]) -> Faults:
    """Compare a partition with its copy."""
    left, right = Counter(source.values()), Counter(target.values())
    is_reordered = left == right and list(source.values()) != list(target.values())
    return Faults((left - right).total(), (right - left).total(), int(is_reordered))


class GroupFaults(NamedTuple):
    """Where a group continues in the target, compared with the source."""

    right: int
    absent: int
    repeated: int
    """Records that it would read again."""
    skipped: int


def compare_groups(source: str, target: str, groups: list[str], tps: list[tuple[str, int]]) -> GroupFaults:
    """Compare what the groups read next, to the end."""
    here, there = ({tp: read(bootstrap, *tp) for tp in tps} for bootstrap in (source, target))
    right = absent = repeated = skipped = 0
    for group in groups:
        offsets = committed(target, group, tps)
        for tp, offset in committed(source, group, tps).items():
            if tp not in offsets:
                absent += 1
                continue
            next_here = [record for place, record in here[tp].items() if place >= offset]
            next_there = [record for place, record in there[tp].items() if place >= offsets[tp]]
            faults = compare(dict(enumerate(next_here)), dict(enumerate(next_there)))
            right += faults == (0, 0, 0)
            repeated, skipped = repeated + faults.doubled, skipped + faults.lost
    return GroupFaults(right, absent, repeated, skipped)
