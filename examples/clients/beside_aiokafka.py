"""What the other programs of this folder do, with aiokafka 0.14: for docs/tutorials/client-programs.md."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Mapping

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

INSERT = "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)"


async def store(producer: AIOKafkaProducer, topic: str, key: bytes, body: bytes) -> Mapping[str, int]:
    """web_handler.py: send one body; keys and values are bytes, and one request of each broker is in flight."""
    stored = await producer.send_and_wait(topic, body, key=key)
    return {"partition": stored.partition, "offset": stored.offset}


async def copy(bootstrap: str, topic: str, group: str, database: sqlite3.Connection) -> int:
    """batch_job.py: copy the records up to the ends that the partitions have now."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    count = 0
    try:
        ends = await consumer.end_offsets(consumer.assignment())  # of the partitions that the group assigns
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            found = await consumer.getmany(timeout_ms=1_000)
            with database:
                for records in found.values():
                    rows = ((record.partition, record.offset, record.key, record.value) for record in records)
                    database.executemany(INSERT, rows)
                    count += len(records)
            if found:
                await consumer.commit()
    finally:
        await consumer.stop()
    return count


async def work(bootstrap: str, source: str, target: str, name: str, instance: str, is_over: Callable[[], bool]) -> None:
    """exactly_once.py: offsets are committed by the name of the group, so that a member that has lost its partitions
    is not refused (KIP-447): each instance then needs partitions of its own.
    """
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{name}-{instance}")
    await consumer.start()
    await producer.start()
    try:
        while not is_over():
            found = await consumer.getmany(timeout_ms=500)
            if not found:
                continue
            async with producer.transaction():
                for record in (record for records in found.values() for record in records):
                    await producer.send(target, b"invoice for " + record.value, key=record.key)
                offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
                await producer.send_offsets_to_transaction(offsets, name)
    finally:
        await producer.stop()
        await consumer.stop()


async def tail(
    bootstrap: str, topic: str, *, lines: int = 10, since_s: float | None = None
) -> AsyncGenerator[ConsumerRecord, None]:
    """tail.py."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        partitions = consumer.assignment()
        starts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, max(starts[partition], ends[partition] - lines))
        if since_s is not None:
            time_ms = int((time.time() - since_s) * 1000)
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
            for partition, first in found.items():
                consumer.seek(partition, ends[partition] if first is None else first.offset)
        async for record in consumer:
            yield record
    finally:
        await consumer.stop()
