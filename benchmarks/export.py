"""Measures the processor time of an export to Parquet beside a loop over records, and of an increment.

    python -m benchmarks.export [--runs 3] [--megabytes 1000] [--spark] [--connector]

The loop is what a script would be: a confluent-kafka consumer in one process, whose records become columns of a
pyarrow table.  Both write zstd and read batches that a producer compressed with lz4.  Processor time is that of all
processes of the command, without the broker; measuring it needs Linux.  `--spark` measures `--engine spark` too,
which starts a JVM, and `--connector` a job of Spark 4.0.0 (fetched with Maven and pip) that writes the same columns
with its official connector for Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Collection, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.processor_time import used_s
from benchmarks.harness.report import Figure, report
from tests.peers.apache_kafka import spark_connector_jars
from tests.peers.cache import cache_folder

PARTITIONS = 4
TIMEOUT_S = 600
VALUE_BYTES = {"1 KB": 1000, "100 B": 100}
GOALS = {"1 KB": "<= 0.6", "100 B": "<= 0.35"}
CONNECTOR_VERSION = "4.0.0"
CONNECTOR_GOALS = {"export": "<= 0.2", "export --engine spark": "<= 0.3"}
INCREMENT = 10_000
LOOP_ROWS = 200_000
"""Rows that the loop gathers before it writes them."""
WORDS = [f"word{number}" for number in range(2_000)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--megabytes", type=int, default=1000, help="of values in each topic")
    options.add_argument("--spark", action="store_true")
    options.add_argument("--connector", action="store_true")
    options.add_argument("--loop", nargs=3, metavar=("BOOTSTRAP", "TOPIC", "FILE"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.loop:
        loop(*given.loop)
        return
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as name, kctl_broker(Path(name) / "broker") as broker:
        folder = Path(name)
        figures = [figure for size in VALUE_BYTES for figure in measure(broker.bootstrap, size, given, folder)]
    report("export", figures, runs=given.runs, megabytes=given.megabytes)


def measure(bootstrap: str, size: str, given: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    """The figures of one topic, measured in turns."""
    topic = f"values-{VALUE_BYTES[size]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    fill(bootstrap, topic, VALUE_BYTES[size], given.megabytes * 1_000_000 // VALUE_BYTES[size])
    engines = ["export", *(["export --engine spark"] if given.spark else [])]
    used: dict[str, list[float]] = {name: [] for name in ("loop", "increment", "connector", *engines)}
    this = [sys.executable, "-m", "benchmarks.export"]
    connector = python_with_connector() if given.connector else []
    for _ in range(given.runs):
        used["loop"].append(processor_s([*this, "--loop", bootstrap, topic, str(folder / "loop")]))
        if given.connector:
            target = folder / "connected"
            used["connector"].append(processor_s([*connector, bootstrap, topic, str(target)]))
            shutil.rmtree(target)
        for engine in engines:
            target = folder / "exported"
            command = [sys.executable, "-m", "kctl", *engine.split(), topic, "--to", str(target), "--quiet"]
            used[engine].append(processor_s([*command, "--bootstrap-server", bootstrap]))
            if engine == "export":
                fill(bootstrap, topic, VALUE_BYTES[size], INCREMENT)
                used["increment"].append(processor_s([*command, "--bootstrap-server", bootstrap]))
            shutil.rmtree(target)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    yield Figure(f"{size}, loop over records", "CPU s", used["loop"])
    for engine in engines:
        yield Figure(f"{size}, kctl {engine}", "CPU s", used[engine])
        ratios = [kctl_s / other for kctl_s, other in zip(used[engine], used["loop"], strict=True)]
        yield Figure(f"{size}, kctl {engine} / loop", "", ratios, GOALS[size] if engine == "export" else "")
        if given.connector:
            ratios = [kctl_s / other for kctl_s, other in zip(used[engine], used["connector"], strict=True)]
            yield Figure(f"{size}, kctl {engine} / Spark's connector", "", ratios, CONNECTOR_GOALS[engine])
    if given.connector:
        yield Figure(f"{size}, Spark's connector", "CPU s", used["connector"])
    yield Figure(f"{size}, increment of {INCREMENT:,} records", "CPU s", used["increment"], "<= 1")


def fill(bootstrap: str, topic: str, value_bytes: int, count: int) -> None:
    """Records with keys, and values of words that compress about threefold."""
    chosen = random.Random(20261122)
    values = [" ".join(chosen.choices(WORDS, k=value_bytes // 6)).encode()[:value_bytes] for _ in range(5_000)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 200_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % 5_000], b"key-%d" % (number % 100_000))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def loop(bootstrap: str, topic: str, file: str) -> None:
    """Writes all records of the topic to a Parquet file, with the columns of an export."""
    import pyarrow as pa  # noqa: PLC0415 - only the process that is measured needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    fields = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "offset": pa.int64()}
    schema = pa.schema({**fields, "timestamp": pa.timestamp("ms", tz="UTC"), "timestampType": pa.int32()})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "loop", "enable.auto.commit": False})
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)[1]
        for partition in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    left = sum(ends.values())
    columns: list[list[object]] = [[] for _ in schema]
    with contextlib.closing(consumer), pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while left:
            for message in consumer.consume(10_000, timeout=1.0):
                assert message.error() is None
                kind, timestamp_ms = message.timestamp()
                row = (message.key(), message.value(), message.partition(), message.offset(), timestamp_ms, kind - 1)
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
                left -= 1
            if len(columns[0]) >= LOOP_ROWS or not left:
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                columns = [[] for _ in schema]


def python_with_connector() -> list[str]:
    """A Python with the PySpark that the connector is made for, installed in the cache, and the program for it."""
    folder = cache_folder() / f"pyspark-{CONNECTOR_VERSION}"
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        venv.create(part, with_pip=True, clear=True)
        install = [str(part / "bin" / "pip"), "install", "-q", f"pyspark=={CONNECTOR_VERSION}"]
        subprocess.run(install, check=True, timeout=TIMEOUT_S)
        part.rename(folder)
    jars = ",".join(map(str, spark_connector_jars(CONNECTOR_VERSION)))
    return [str(folder / "bin" / "python"), str(Path(__file__).with_name("spark_connector.py")), jars]


def processor_s(command: list[str], *, daemons: Collection[int] = ()) -> float:
    """Processor time of a command with its processes, also of those that outlive it, and of `daemons` meanwhile."""
    return used_s(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), daemons=daemons)


if __name__ == "__main__":
    main()
