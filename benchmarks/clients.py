"""Measures what a message costs the clients of Python: kctl, aiokafka, kafka-python and confluent-kafka, side by side.

    python -m benchmarks.clients [--runs 3] [--count 300000] [--size 100] [--apache 4.3.1]

Each client produces the same messages with acks=all, idempotence, batches of 64 KiB and linger.ms=5, in a process of
its own, each in turn in every run: messages per second, and processor time of the client per message.
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

BATCH_BYTES, LINGER_MS = 64 << 10, 5
PACKAGES = {
    "kctl async": "kctl",
    "kctl blocking": "kctl",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka",
    "confluent-kafka": "confluent_kafka",
}
GOALS = {
    ("kctl async", "messages/s"): ">= 2 of aiokafka",
    ("kctl async", "processor us/message"): "<= 0.5 of aiokafka",
    ("kctl blocking", "messages/s"): ">= 0.8 of kctl async",
}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in PACKAGES:
        client, bootstrap, topic, count, size = sys.argv[1:]
        print(json.dumps(measure(PRODUCERS[client], bootstrap, topic, int(count), b"x" * int(size))))
        return
    arguments = parser(__doc__, runs=3)
    arguments.add_argument("--count", type=int, default=300_000, help="messages of each client and run")
    arguments.add_argument("--size", type=int, default=100, help="bytes of a value")
    options = arguments.parse_args()
    clients = [client for client, package in PACKAGES.items() if find_spec(package) is not None]
    samples: dict[tuple[str, str], list[float]] = {}
    with subject(options) as broker:
        for run in range(options.runs):
            for number, client in enumerate(clients):
                topic = f"clients-{run}-{number}"
                librdkafka.create_topic(broker.bootstrap, topic, 3)
                words = [sys.executable, "-m", "benchmarks.clients", client, broker.bootstrap, topic]
                command = [*words, str(options.count), str(options.size)]
                figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                librdkafka.delete_topic(broker.bootstrap, topic)
                for unit, value in figures.items():
                    samples.setdefault((client, unit), []).append(value)
    figures = [
        Figure(f"produce {options.size} B, {client}", unit, values, GOALS.get((client, unit), ""))
        for (client, unit), values in samples.items()
    ]
    report("clients", figures, runs=options.runs)


def measure(
    produce: Callable[[str, str, int, bytes, Callable[[], None]], None],
    bootstrap: str,
    topic: str,
    count: int,
    value: bytes,
) -> dict[str, float]:
    """One run; the time begins when the producer has written its first message."""
    started: list[tuple[float, float]] = []
    produce(bootstrap, topic, count, value, lambda: started.append((time.perf_counter(), _cpu_s())))
    took_s, cpu_s = time.perf_counter() - started[0][0], _cpu_s() - started[0][1]
    return {"messages/s": count / took_s, "processor us/message": cpu_s / count * 1e6}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _kctl_async(bootstrap: str, topic: str, count: int, value: bytes, begin: Callable[[], None]) -> None:
    from kctl.client import AsyncProducer, ProducerConfig  # noqa: PLC0415 - each process measures one client

    async def run() -> None:
        config = ProducerConfig(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS)
        async with AsyncProducer(config) as producer:
            await (await producer.send(topic, value))
            begin()
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()

    asyncio.run(run())


def _kctl_blocking(bootstrap: str, topic: str, count: int, value: bytes, begin: Callable[[], None]) -> None:
    from kctl.client import Producer, ProducerConfig  # noqa: PLC0415 - see above

    config = ProducerConfig(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS)
    with Producer(config) as producer:
        producer.send(topic, value).result()
        begin()
        for _ in range(count):
            producer.send(topic, value)
        producer.flush()


def _aiokafka(bootstrap: str, topic: str, count: int, value: bytes, begin: Callable[[], None]) -> None:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - see above

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=BATCH_BYTES, linger_ms=LINGER_MS
        )
        await producer.start()
        await producer.send_and_wait(topic, value)
        begin()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        await producer.stop()

    asyncio.run(run())


def _kafka_python(bootstrap: str, topic: str, count: int, value: bytes, begin: Callable[[], None]) -> None:
    from kafka import KafkaProducer  # noqa: PLC0415 - see above

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, batch_size=BATCH_BYTES, linger_ms=LINGER_MS
    )
    producer.send(topic, value).get(60)
    begin()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    producer.close()


def _confluent(bootstrap: str, topic: str, count: int, value: bytes, begin: Callable[[], None]) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - see above

    settings = {"enable.idempotence": True, "batch.size": BATCH_BYTES, "linger.ms": LINGER_MS}
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, **settings})
    producer.produce(topic, value)
    producer.flush()
    begin()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


PRODUCERS = {
    "kctl async": _kctl_async,
    "kctl blocking": _kctl_blocking,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
}


if __name__ == "__main__":
    main()
