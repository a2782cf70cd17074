"""Measures `kctl export --mode upsert` beside MERGE of Spark, on the same changes into the same kind of table.

    python -m benchmarks.upsert_merge PYTHON JARS [--keys 1000000] [--changes 1000000] [--batches 5] [--kinds delta,...]

PYTHON has a PySpark that fits JARS, which are those of iceberg-spark-runtime and delta-spark, separated by commas.  The
first batch has all keys, the others random ones, a tenth of them deletes.  kctl reads the changes from a topic, in a
process for each batch; Spark reads them from Parquet files, in one session.  Processor time is that of all processes
(Linux), wall time that of the batches, of Spark without the start of the session.  Both tables must have the same rows.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness.processor_time import used_s
from benchmarks.harness.report import Figure, report
from tests.integration.spark.test_tables import read
from tests.peers.kctl_broker import kctl_broker

TIMEOUT_S = 600
TOPIC = "customers"
PROGRAM = Path(__file__).with_name("spark_merge.py")
Change = tuple[int, str | None, int]
"""Id, name (None for a delete), a number."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("python")
    options.add_argument("jars")
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--changes", type=int, default=1_000_000, help="of each batch")
    options.add_argument("--batches", type=int, default=5)
    options.add_argument("--kinds", default="iceberg,delta")
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-") as name,
        kctl_broker(Path(name) / "broker") as broker,
    ):
        kinds = given.kinds.split(",")
        figures = measure(broker.bootstrap, Path(name), kinds, given)
    report("upsert_merge", figures, keys=given.keys, changes=given.changes, batches=given.batches)


def measure(bootstrap: str, folder: Path, kinds: list[str], given: argparse.Namespace) -> list[Figure]:
    """The figures of all kinds; each batch is produced before both merge it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(TIMEOUT_S)
    ours: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for batch in range(given.batches):
        write(bootstrap, folder / "changes" / f"{batch:03}", list(changes(batch, given)), batch)
        for kind in kinds:
            ours[kind].append(export(bootstrap, folder / kind, kind))
    figures = []
    for kind in kinds:
        command = [given.python, str(PROGRAM), given.jars, kind, str(folder / "changes"), str(folder / f"{kind}-spark")]
        merged: list[dict[str, Any]] = []
        used = used_s(lambda command=command, merged=merged: merged.append(run(command)))  # type: ignore[misc]
        values = read(folder / kind, TOPIC, kind).column("value").combine_chunks()
        assert (len(values), pc.sum(values.field("n")).as_py()) == (merged[0]["rows"], merged[0]["total"])
        own_s, own_wall_s = (sum(pair[index] for pair in ours[kind]) for index in (0, 1))
        wall_s = sum(merged[0]["seconds"])
        figures += [
            Figure(f"{kind}, kctl", "CPU s", [own_s]),
            Figure(f"{kind}, MERGE of Spark", "CPU s", [used]),
            Figure(f"{kind}, kctl / Spark", "of CPU", [own_s / used]),
            Figure(f"{kind}, kctl", "s", [own_wall_s]),
            Figure(f"{kind}, MERGE of Spark", "s", [wall_s]),
            Figure(f"{kind}, kctl / Spark", "of wall time", [own_wall_s / wall_s]),
        ]
    return figures


def changes(batch: int, given: argparse.Namespace) -> Iterator[Change]:
    """Yield the changes of a batch."""
    chance = random.Random(batch)
    ids = range(given.keys) if not batch else (chance.randrange(given.keys) for _ in range(given.changes))
    for number, id_ in enumerate(ids):
        is_delete = bool(batch) and number % 10 == 9
        yield id_, None if is_delete else f"customer {chance.randrange(1 << 40)}", number


def write(bootstrap: str, folder: Path, batch: list[Change], number: int) -> None:
    """Write the changes into the topic, and as files for Spark."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for id_, name, n in batch:
        value = None if name is None else json.dumps({"id": id_, "name": name, "n": n}).encode()
        while True:
            try:
                producer.produce(TOPIC, value, key=str(id_))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    folder.mkdir(parents=True)
    ids, names, numbers = zip(*batch, strict=True)
    table = pa.table({"id": ids, "name": names, "n": numbers, "change": range(len(batch))})
    table = table.append_column("deleted", pc.is_null(table.column("name")))
    pq.write_table(table, folder / f"{number}.parquet", compression="zstd")


def export(bootstrap: str, target: Path, kind: str) -> tuple[float, float]:
    """Processor and wall time of a batch."""
    command = [sys.executable, "-m", "kctl", "export", TOPIC, "--to", str(target), "--table", kind, "--quiet"]
    command += ["--mode", "upsert", "--key", "string", "--value", "json", "--bootstrap-server", bootstrap]
    started = time.monotonic()
    used = used_s(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    return used, time.monotonic() - started


def run(command: list[str]) -> dict[str, Any]:
    """What the program of Spark prints."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


if __name__ == "__main__":
    main()
