"""A member of a group in a process of its own, of one of four clients: prints the partition and offset that it reads.

    python -m tests.faults.group_member CLIENT BOOTSTRAP TOPIC GROUP ASSIGNOR

Offsets are committed after each list of records.  tests/faults/mixed_groups.py starts and kills such members.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable

RECORDS_MAX = 10
SESSION_MS = 6_000
HEARTBEAT_MS = 500


def main() -> None:
    client, bootstrap, topic, group, assignor = sys.argv[1:]
    MEMBERS[client](bootstrap, topic, group, assignor)


def show(records: Iterable[tuple[int | None, int | None]]) -> None:
    """One write, so that a kill cuts no line in two."""
    text = "".join(f"{partition} {offset}\n" for partition, offset in records)
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def kctl(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    from kctl.client import CommitFailed, Consumer, ConsumerConfig  # noqa: PLC0415 - each process is one client

    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        assignors=(assignor,),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=RECORDS_MAX,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while True:
            records = consumer.poll(100)
            show((record.partition, record.offset) for record in records)
            if records:
                with contextlib.suppress(CommitFailed):  # the new owner reads them again
                    consumer.commit()


def confluent(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - see above

    settings = {"enable.auto.commit": False, "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([topic])
    while True:
        messages = [message for message in consumer.consume(RECORDS_MAX, 0.1) if message.error() is None]
        show((message.partition(), message.offset()) for message in messages)
        if messages:
            with contextlib.suppress(KafkaException):
                consumer.commit(asynchronous=False)


def aiokafka(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - see above
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # noqa: PLC0415
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # noqa: PLC0415
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(assignors[assignor],),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        while True:
            found = await consumer.getmany(timeout_ms=100, max_records=RECORDS_MAX)
            show((record.partition, record.offset) for records in found.values() for record in records)
            if found:
                with contextlib.suppress(KafkaError):
                    await consumer.commit()

    asyncio.run(run())


MEMBERS = {"kctl": kctl, "confluent": confluent, "aiokafka": aiokafka}


if __name__ == "__main__":
    main()
