"""A member of a group in a process of its own, of one of four clients: prints the partition and offset that it reads.

    python -m tests.faults.group_member CLIENT BOOTSTRAP TOPIC GROUP ASSIGNOR

Offsets are committed after each list of records.  tests/faults/mixed_groups.py starts and kills such members.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable
from typing import Any

RECORDS_MAX = 10
CONSUMER_PROTOCOL = "consumer"
"""In place of an assignor: the protocol of KIP-848, in which the broker assigns."""
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


def kctl(bootstrap: str, topic: str, group: str, assignor: str, *, is_classic: bool = False) -> None:
    from kctl.client import CommitFailed, Consumer, ConsumerConfig  # noqa: PLC0415 - each process is one client

    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if assignor != CONSUMER_PROTOCOL or is_classic:
        assignors = ("range",) if is_classic else (assignor,)
        settings = {"assignors": assignors, "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=RECORDS_MAX,
        **settings,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while True:
            records = consumer.poll(100)
            show((record.partition, record.offset) for record in records)
            if records:
                with contextlib.suppress(CommitFailed):  # the new owner reads them again
                    consumer.commit()


def kctl_classic(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    """A member of the classic protocol, whatever the others have: Kafka 4 has both in one group."""
    kctl(bootstrap, topic, group, assignor, is_classic=True)


def confluent(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - see above

    settings: dict[str, Any] = {"group.protocol": "consumer"}
    if assignor != CONSUMER_PROTOCOL:
        times = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        settings = {"partition.assignment.strategy": assignor, **times}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "broker.address.family": "v4",
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


MEMBERS = {"kctl": kctl, "kctl-classic": kctl_classic, "confluent": confluent, "aiokafka": aiokafka}


if __name__ == "__main__":
    main()
