#!/usr/bin/env python3
"""A worker that reads a topic and writes another one, exactly once, also when it is killed or loses partitions.

Start several with the same name and different instances:

python examples/clients/exactly_once.py localhost:9092 orders invoices billing instance-1
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from kctl.client import CommitFailed, Consumer, ConsumerConfig, ConsumerRecord, Producer, ProducerConfig, TopicPartition


def invoice(record: ConsumerRecord[bytes, bytes]) -> bytes:
    """Return what is written for a record."""
    return b"invoice for " + record.value


def work(
    bootstrap: str,
    source: str,
    target: str,
    name: str,
    instance: str,
    *,
    transform: Callable[[ConsumerRecord[bytes, bytes]], bytes] = invoice,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Read, transform and write until `is_over`, in one transaction for each list of records."""
    reading = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # offsets are part of the transactions
        isolation_level="read_committed",
    )
    writing = ProducerConfig(bootstrap_servers=bootstrap, transactional_id=f"{name}-{instance}")
    with Producer(writing) as producer, Consumer(reading) as consumer:
        consumer.subscribe([source])
        while not is_over():
            records = consumer.poll(500)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, transform(record), key=record.key)
                    offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
                    producer.send_offsets(consumer.group_metadata(), offsets)
            except CommitFailed:  # a rebalance came between: the transaction was aborted
                seek_back(consumer, records)


def seek_back(consumer: Consumer[bytes, bytes], records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
    """Read the records again, of those partitions that the worker still has."""
    first = {TopicPartition(record.topic, record.partition): record.offset for record in reversed(records)}
    for partition in consumer.assignment & first.keys():
        consumer.seek(partition, first[partition])


if __name__ == "__main__":
    bootstrap, source, target, name, instance = sys.argv[1:]
    work(bootstrap, source, target, name, instance)
