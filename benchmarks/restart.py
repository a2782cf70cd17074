"""Measures a broker with many partitions: their creation, idling, a clean stop, and the start until each is led again.

    python -m benchmarks.restart [--runs 3] [--partitions 10000] [--per-topic 100] [--records 1] [--data-dir DIR]

One broker on its embedded ZooKeeper.  Each partition gets `--records` records of 100 bytes.  A start is timed from the
start of the process to the acknowledgement of a record of the first partition, and of one of each partition.  With
`--data-dir` the broker and its data are kept, so that later runs need not create the topics.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from kctl.admin.topics.topics import NewTopic, create_topics, delete_topics
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.settings import ClientSettings, parse_servers

TIMEOUT_S = 600
TOPICS_PER_REQUEST = 20
IDLE_S = 10
SETTLED_AFTER_S = 5

Samples = dict[tuple[str, str], list[float]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="stops and starts; medians are reported")
    options.add_argument("--partitions", type=int, default=10_000)
    options.add_argument("--per-topic", type=int, default=100, help="partitions of a topic")
    options.add_argument("--records", type=int, default=1, help="records of each partition")
    options.add_argument("--data-dir", type=Path, help="keep the data here, or use those of a run before")
    options.add_argument("--delete", action="store_true", help="delete all topics at the end, and time that")
    given = options.parse_args()
    samples: Samples = {}
    with contextlib.ExitStack() as stack:
        folder = given.data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        is_new = not (folder / "broker").exists()
        handle = stack.enter_context(kctl_broker(folder / "broker"))
        names = [f"many-{number}" for number in range(given.partitions // given.per_topic)]
        if is_new:
            subject = Subject(handle.bootstrap, handle.pid)
            empty_mb = subject.resident_mb()
            asyncio.run(create(subject, names, given.per_topic, samples))
            _add(samples, "memory per partition after creation", "KB", _per(subject, empty_mb, given.partitions))
            produce(handle.bootstrap, names, range(given.per_topic), given.records)
        for _ in range(given.runs):
            started = time.perf_counter()
            handle.stop()
            _add(samples, "clean stop", "s", time.perf_counter() - started)
            started = time.perf_counter()
            handle.start()
            subject = Subject(handle.bootstrap, handle.pid)
            _add(samples, "start until it serves", "s", time.perf_counter() - started)
            produce(handle.bootstrap, names[-1:], [given.per_topic - 1], 1)
            _add(samples, "start until the first append", "s", time.perf_counter() - started)
            _add(samples, "the broker meanwhile", "CPU s", subject.cpu_s())
            produce(handle.bootstrap, names, range(given.per_topic), 1)
            _add(samples, "start until an append of each", "s", time.perf_counter() - started)
            _add(samples, "the broker meanwhile, all", "CPU s", subject.cpu_s())
            time.sleep(SETTLED_AFTER_S)
            used_s = subject.cpu_s()
            time.sleep(IDLE_S)
            _add(samples, "idle", "CPU ms/s", 1000 * (subject.cpu_s() - used_s) / IDLE_S)
            _add(samples, "memory", "MB", subject.resident_mb())
        if given.delete:
            asyncio.run(delete(Subject(handle.bootstrap, handle.pid), names, samples))
    report(
        "restart",
        [Figure(name, unit, values) for (name, unit), values in samples.items()],
        runs=given.runs,
        partitions=given.partitions,
        per_topic=given.per_topic,
    )


def _add(samples: Samples, name: str, unit: str, value: float) -> None:
    samples.setdefault((name, unit), []).append(value)


def _per(subject: Subject, empty_mb: float, partitions: int) -> float:
    return (subject.resident_mb() - empty_mb) * 1000 / partitions


@contextlib.asynccontextmanager
async def _client(subject: Subject) -> AsyncIterator[ClusterClient]:
    client = ClusterClient(
        ClientSettings(parse_servers(subject.bootstrap), timeout_ms=TIMEOUT_S * 1000), AsyncioTransport()
    )
    try:
        yield client
    finally:
        await client.close()


async def create(subject: Subject, names: list[str], partitions: int, samples: Samples) -> None:
    """Create the topics; record the time of the first and of the last tenth of them, per 1,000 topics."""
    async with _client(subject) as client:
        tenth = max(len(names) // 10, 1)
        started, began, used_s = time.perf_counter(), time.perf_counter(), subject.cpu_s()
        for at in range(0, len(names), TOPICS_PER_REQUEST):
            if at % tenth < TOPICS_PER_REQUEST and at:
                took_s = (time.perf_counter() - began) / tenth * 1000
                cpu_s = (subject.cpu_s() - used_s) / tenth * 1000
                print(f"created {at}: {took_s:.2f} s, {cpu_s:.2f} CPU s per 1,000", file=sys.stderr, flush=True)
                began, used_s = time.perf_counter(), subject.cpu_s()
            topics = [NewTopic(name, partitions, 1) for name in names[at : at + TOPICS_PER_REQUEST]]
            for created in await create_topics(client, topics):
                assert created.outcome.is_done, created.outcome
        _add(samples, "creation of all", "s", time.perf_counter() - started)


async def delete(subject: Subject, names: list[str], samples: Samples) -> None:
    """Delete the topics."""
    async with _client(subject) as client:
        started, used_s = time.perf_counter(), subject.cpu_s()
        for at in range(0, len(names), TOPICS_PER_REQUEST):
            for deleted in await delete_topics(client, names[at : at + TOPICS_PER_REQUEST]):
                assert deleted.is_done, deleted
        _add(samples, "deletion of all", "s", time.perf_counter() - started)
        _add(samples, "the broker meanwhile, deletion", "CPU s", subject.cpu_s() - used_s)


def produce(bootstrap: str, names: Iterable[str], partitions: Iterable[int], records: int) -> None:
    """So many records to each partition, acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "message.timeout.ms": 300_000})
    numbers = list(partitions)
    for name in names:
        for number in numbers:
            for _ in range(records):
                _produce(producer, name, number)
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not all records were acknowledged")


def _produce(producer: Producer, name: str, number: int) -> None:
    while True:
        try:
            producer.produce(name, bytes(100), partition=number, on_delivery=_check)
            return
        except BufferError:
            producer.poll(0.1)


def _check(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise SystemExit(f"a record was not written: {error}")


if __name__ == "__main__":
    main()
