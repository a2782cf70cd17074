"""Measures what reading a message costs the clients of Python: kctl, aiokafka, kafka-python, confluent-kafka.

    python -m benchmarks.client_consume [--runs 3] [--count 1000000] [--size 100] [--apache 4.3.1]

Each client reads the same three partitions from their beginning, 500 records at a time or one after the other
(iteration), in a process of its own, each in turn in every run: messages per second, and processor time of the client
per message, both after the first records have arrived.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import parser, subject

PARTITIONS, RECORDS = 3, 500
PACKAGES = {
    "kctl async": "kctl",
    "kctl async iteration": "kctl",
    "kctl blocking iteration": "kctl",
    "aiokafka": "aiokafka",
    "aiokafka iteration": "aiokafka",
    "kafka-python": "kafka",
    "confluent-kafka": "confluent_kafka",
}
GOALS = {
    ("kctl async", "messages/s"): ">= 1.5 of aiokafka",
    ("kctl async", "processor us/message"): "<= 0.67 of aiokafka",
}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in PACKAGES:
        client, bootstrap, topic, count = sys.argv[1:]
        print(json.dumps(measure(CONSUMERS[client], bootstrap, topic, int(count))))
        return
    arguments = parser(__doc__, runs=3)
    arguments.add_argument("--count", type=int, default=1_000_000, help="messages of each client and run")
    arguments.add_argument("--size", type=int, default=100, help="bytes of a value")
    options = arguments.parse_args()
    clients = [client for client, package in PACKAGES.items() if find_spec(package) is not None]
    samples: dict[tuple[str, str], list[float]] = {}
    with subject(options) as broker:
        topic = "client-consume"
        librdkafka.create_topic(broker.bootstrap, topic, PARTITIONS)
        librdkafka.produce(broker.bootstrap, topic, count=options.count, size=options.size)
        for _ in range(options.runs):
            for client in clients:
                words = [sys.executable, "-m", "benchmarks.client_consume", client, broker.bootstrap, topic]
                command = [*words, str(options.count)]
                figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                for unit, value in figures.items():
                    samples.setdefault((client, unit), []).append(value)
        librdkafka.delete_topic(broker.bootstrap, topic)
    figures = [
        Figure(f"consume {options.size} B, {client}", unit, values, GOALS.get((client, unit), ""))
        for (client, unit), values in samples.items()
    ]
    report("client_consume", figures, runs=options.runs)


def measure(
    consume: Callable[[str, str, int, Callable[[int], None]], None], bootstrap: str, topic: str, count: int
) -> dict[str, float]:
    """One run; the time begins with the first records, whose number the client reports."""
    started: list[tuple[int, float, float]] = []
    consume(bootstrap, topic, count, lambda read: started.append((read, time.perf_counter(), _cpu_s())))
    read, at_s, cpu_before_s = started[0]
    took_s, cpu_s = time.perf_counter() - at_s, _cpu_s() - cpu_before_s
    return {"messages/s": (count - read) / took_s, "processor us/message": cpu_s / (count - read) * 1e6}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _kctl_async(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from kctl.client import AsyncConsumer, ConsumerConfig  # noqa: PLC0415 - each process measures one client

    async def run() -> None:
        config = ConsumerConfig(bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=RECORDS)
        async with AsyncConsumer(config) as consumer:
            await consumer.assign(await consumer.partitions_of(topic))
            read = len(await consumer.poll(60_000))
            begin(read)
            while read < count:
                read += len(await consumer.poll(60_000))

    asyncio.run(run())


def _kctl_iteration(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from kctl.client import AsyncConsumer, ConsumerConfig  # noqa: PLC0415 - see above

    async def run() -> None:
        config = ConsumerConfig(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with AsyncConsumer(config) as consumer:
            await consumer.assign(await consumer.partitions_of(topic))
            read = 0
            async for _ in consumer:
                read += 1
                if read == 1:
                    begin(read)
                if read == count:
                    return

    asyncio.run(run())


def _kctl_blocking(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from kctl.client import Consumer, ConsumerConfig  # noqa: PLC0415 - see above

    with Consumer(ConsumerConfig(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign(consumer.partitions_of(topic))
        for read, _ in enumerate(consumer, 1):
            if read == 1:
                begin(read)
            if read == count:
                return


def _aiokafka(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - see above

    async def run() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        read = 0
        while read < count:
            records = await consumer.getmany(timeout_ms=60_000, max_records=RECORDS)
            read += sum(map(len, records.values()))
            begin(read)
        await consumer.stop()

    asyncio.run(run())


def _aiokafka_iteration(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - see above

    async def run() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        read = 0
        async for _ in consumer:
            read += 1
            if read == 1:
                begin(read)
            if read == count:
                break
        await consumer.stop()

    asyncio.run(run())


def _kafka_python(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from kafka import KafkaConsumer  # noqa: PLC0415 - see above

    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    read = 0
    while read < count:
        records = consumer.poll(timeout_ms=60_000, max_records=RECORDS)
        read += sum(map(len, records.values()))
        begin(read)
    consumer.close()


def _confluent(bootstrap: str, topic: str, count: int, begin: Callable[[int], None]) -> None:
    from confluent_kafka import Consumer  # noqa: PLC0415 - see above

    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    read = 0
    while read < count:
        read += len(consumer.consume(RECORDS, 60))
        begin(read)
    consumer.close()


CONSUMERS = {
    "kctl async": _kctl_async,
    "kctl async iteration": _kctl_iteration,
    "kctl blocking iteration": _kctl_blocking,
    "aiokafka": _aiokafka,
    "aiokafka iteration": _aiokafka_iteration,
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
}


if __name__ == "__main__":
    main()
