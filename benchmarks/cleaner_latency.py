"""Measures the latency of producing while logs are compacted.

    python -m benchmarks.cleaner_latency [--runs 3] [--megabytes 128] [--partitions 4] [--batch-bytes 16384] [--no-pin]

One message after the other at 1,000 a second, as in produce_latency, into a topic of its own: first with the cleaner
idle, then while it works on a topic with keys written four times each.  Both in one run, so the ratios are what counts;
broker and client have a processor each where there are two, and the broker shares its own with the process of the
cleaner; with --no-pin all share all.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from benchmarks.harness import librdkafka
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, pin

RATE_PER_S = 1000
IDLE_S = 4.0
TIMEOUT_S = 600
VALUE_BYTES = 100
CHECKPOINT = "cleaner-offset-checkpoint"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch-bytes", type=int, default=16384)
    parser.add_argument("--no-pin", action="store_true", help="do not give broker and client a processor each")
    options = parser.parse_args()
    figures: dict[str, tuple[str, list[float]]] = {}

    def note(name: str, unit: str, value: float) -> None:
        figures.setdefault(name, (unit, []))[1].append(value)

    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder,
        kctl_broker(Path(folder) / "broker", properties={"log.cleaner.backoff.ms": "100"}) as broker,
    ):
        subject = Subject(broker.bootstrap, broker.pid)
        if not options.no_pin:
            pin(subject.pid)
        librdkafka.create_topic(subject.bootstrap, "latency")
        for run in range(options.runs):
            _run(subject, broker.logs_dir, f"table-{run}", options, note)
    report(
        "cleaner_latency",
        [Figure(name, unit, values) for name, (unit, values) in figures.items()],
        rate_per_s=RATE_PER_S,
        runs=options.runs,
        megabytes=options.megabytes,
        partitions=options.partitions,
        batch_bytes=options.batch_bytes,
    )


def _run(
    subject: Subject, folder: Path, table: str, options: argparse.Namespace, note: Callable[[str, str, float], None]
) -> None:
    fill(
        subject.bootstrap,
        table,
        partitions=options.partitions,
        megabytes=options.megabytes,
        batch_bytes=options.batch_bytes,
    )
    idle = latencies_ms_until(subject.bootstrap, seconds=IDLE_S, is_over=lambda: False)
    set_dirty_ratio(subject.bootstrap, table, "0")
    started, cpu_s = time.perf_counter(), subject.cpu_s()
    working = latencies_ms_until(
        subject.bootstrap, seconds=TIMEOUT_S, is_over=lambda: cleaned(folder, table) == options.partitions
    )
    taken_s = time.perf_counter() - started
    for name, latencies in (("idle", idle), ("cleaning", working)):
        cuts = statistics.quantiles(latencies, n=100)
        note(f"p50, {name}", "ms", cuts[49])
        note(f"p99, {name}", "ms", cuts[98])
    note("p50, cleaning / idle", "x", statistics.median(working) / statistics.median(idle))
    note("p99, cleaning / idle", "x", statistics.quantiles(working, n=100)[98] / statistics.quantiles(idle, n=100)[98])
    librdkafka.delete_topic(subject.bootstrap, table)
    note("cleaned meanwhile", "MB/s", options.megabytes / taken_s)
    note("processor time of the broker meanwhile", "s/s", (subject.cpu_s() - cpu_s) / taken_s)


def fill(bootstrap: str, table: str, *, partitions: int, megabytes: int, batch_bytes: int, codec: str = "none") -> None:
    """A compacted topic with records of 100 B, each key written four times; the cleaner leaves it alone.

    Values are hexadecimal digits, which a codec makes about half as large.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    config = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20), "min.cleanable.dirty.ratio": "1"}
    admin.create_topics([NewTopic(table, partitions, 1, config=config)])[table].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": batch_bytes,
            "compression.codec": codec,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    chance = random.Random(7)
    count = megabytes * 1_000_000 // (VALUE_BYTES + 24)
    digits = chance.randbytes(1 << 19).hex().encode()
    for number in range(count):
        at = chance.randrange(len(digits) - VALUE_BYTES)
        key = b"user-%09d" % chance.randrange(count // 4)
        producer.produce(table, digits[at : at + VALUE_BYTES], key, number % partitions)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(60):
        raise SystemExit("not all messages were delivered")


def set_dirty_ratio(bootstrap: str, table: str, ratio: str) -> None:
    """With "0" the cleaner begins with the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, table, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def cleaned(folder: Path, table: str) -> int:
    """How many partitions have been cleaned once."""
    found = next(folder.rglob(CHECKPOINT), None)
    return 0 if found is None else sum(line.startswith(f"{table} ") for line in found.read_text().splitlines())


def latencies_ms_until(
    bootstrap: str, *, seconds: float, is_over: Callable[[], bool], topic: str = "latency"
) -> list[float]:
    """The latencies of messages until time or something else is over."""
    latencies_ms: list[float] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"a message was not delivered: {error}")
        latencies_ms.append((message.latency() or 0.0) * 1000)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    next_s = time.perf_counter()
    end_s = next_s + seconds
    sent = 0
    while next_s < end_s:
        producer.produce(topic, bytes(100), on_delivery=note)
        sent += 1
        next_s += 1 / RATE_PER_S
        while (left_s := next_s - time.perf_counter()) > 0:
            producer.poll(left_s)
        if not sent % 100 and is_over():
            break
    else:
        if seconds == TIMEOUT_S:
            raise SystemExit("the cleaner did not come to an end")
    if producer.flush(30):
        raise SystemExit("not all messages were delivered")
    return latencies_ms[RATE_PER_S // 5 :]


if __name__ == "__main__":
    main()
