"""Kills exports at random times while DuckDB reads what they publish.

    python -m tests.faults.export_kills --table delta --engine local --seeds 10

For each seed: records are produced, an export starts, and its processes are killed with SIGKILL at a random time, again
and again; all at once, or only the driver.  Meanwhile a reader queries the target without a pause.  It must find every
offset up to the last commit that it saw before the query, and none twice; tables must end nowhere else.  After the last
round an export runs to its end, and exactly the delivered records must be there.

It prints one line per seed, and exits with status 1 after the first seed that fails, whose number repeats the order of
events, but not the exact times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from tests.integration.spark.peer import ENGINES, RUN_TIMEOUT_S, Topic, export_command
from tests.peers.kctl_broker import kctl_broker

PARTITIONS = 3
RECORDS_PER_ROUND = 600
TABLES = ("parquet", "iceberg", "delta")

Ends = dict[int, int]
"""The offset after the last one of each partition."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--table", choices=TABLES, default="parquet")
    options.add_argument("--engine", choices=sorted(ENGINES), default="local")
    options.add_argument("--first-seed", type=int, default=1)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--rounds", type=int, default=8, help="exports of each seed")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kctl-kills-") as name, kctl_broker(Path(name) / "broker") as broker:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            trial = Trial(broker.bootstrap, Path(name) / f"lake-{seed}", seed, given.engine, given.table)
            problem = trial.run(given.rounds)
            sys.stdout.write(f"seed {seed}: {problem or 'exact'}; {trial.summary()}\n")
            sys.stdout.flush()
            if problem:
                return 1
    return 0


class Trial:
    """The exports of one seed."""

    def __init__(self, bootstrap: str, target: Path, seed: int, engine: str, table: str) -> None:
        self._random = random.Random(seed)
        self._topic = Topic(bootstrap, f"orders-{seed}", PARTITIONS, engine)
        self._target = target
        self._table = table
        self._reader = Reader(target, self._topic.name, table)
        self._longest_s = 0.0
        self._kills = 0
        self._finished = 0

    def run(self, rounds: int) -> str:
        """What went wrong; empty if nothing did."""
        self._produce()
        self._export(None)
        with self._reader:
            for _ in range(rounds):
                self._produce()
                self._export(self._random.uniform(0, 1.1 * self._longest_s))
            self._export(None)
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for row in self._topic.rows:
            ends[row[0]] = max(ends[row[0]], row[1] + 1)
        return self._reader.problem or difference(self._reader.files(), ends, is_exact=True)

    def summary(self) -> str:
        """What happened."""
        return (
            f"{self._kills} exports killed, {self._finished} finished, {len(self._topic.rows)} records, "
            f"{self._reader.queries} queries"
        )

    def _produce(self) -> None:
        count = self._random.randrange(1, RECORDS_PER_ROUND)
        self._topic.produce({"value": b"%d" % n * 50, "partition": self._random.randrange(3)} for n in range(count))

    def _export(self, kill_after_s: float | None) -> None:
        command = export_command(self._topic, self._target, "--table", self._table, "--target-file-size", "16k")
        started = time.monotonic()
        scratch = self._target.with_name(f"{self._target.name}-scratch")
        scratch.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(scratch)}
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment) as process,
        ):
            try:
                status = process.wait(RUN_TIMEOUT_S if kill_after_s is None else kill_after_s)
            except subprocess.TimeoutExpired:
                assert kill_after_s is not None, f"an export did not end within {RUN_TIMEOUT_S} s"
                self._kill(process)
                return
            output.seek(0)
            assert status == 0, output.read().decode()
            self._longest_s = max(self._longest_s, time.monotonic() - started)
            self._finished += 1

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        self._kills += 1
        if self._random.random() < 0.5:
            process.kill()  # tasks notice the end of the driver, and may run beside the next export until then
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None or self._random.random() < 0.5:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait(RUN_TIMEOUT_S)


class Reader:
    """Queries a target until the block ends."""

    def __init__(self, target: Path, topic: str, table: str) -> None:
        self.problem = ""
        self.queries = 0
        self._target = target
        self._topic = topic
        self._table = table
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def files(self) -> list[str]:
        """The files that a query reads."""
        if self._table == "delta":
            from deltalake import DeltaTable  # noqa: PLC0415 - only for this kind

            return list(DeltaTable(self._target / self._topic).file_uris())
        if self._table == "iceberg":
            from kctl.spark.tables.iceberg import default_catalog  # noqa: PLC0415 - only for this kind

            with contextlib.closing(default_catalog(self._target)) as catalog:
                table = catalog.load_table(("kafka", self._topic.replace("-", "_")))
                return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        return [str(path) for path in (self._target / self._topic).glob("[!._]*.parquet")]

    def _read(self) -> None:
        while not self._ends.is_set() and not self.problem:
            try:
                # The folder of files shows those of a running batch too; what was committed before is complete.
                committed = self._committed() if self._table == "parquet" else None
                self.problem = difference(self.files(), committed, is_exact=False)
            except Exception as error:
                self.problem = f"the reader failed: {type(error).__name__}: {error}"
            self.queries += 1

    def _committed(self) -> Ends:
        last = max((self._target / "_kctl" / "commits").glob("[0-9]*.json"))
        partitions = json.loads(last.read_text())["positions"][self._topic]["partitions"]
        return {int(partition): found[0] for partition, found in partitions.items()}


def difference(files: Sequence[str], ends: Ends | None, *, is_exact: bool) -> str:
    """What is missing or twice in the files up to `ends`, by default up to the last offset; empty if nothing is."""
    query = 'select "partition", "offset", count(*) from read_parquet(?) group by all'
    with duckdb.connect() as connection:
        connection.execute("set threads = 1")
        rows: list[tuple[int, int, int]] = connection.execute(query, [list(files)]).fetchall()
    if twice := [row for row in rows if row[2] != 1]:
        return f"twice: {twice[:5]}"
    found = {(partition, offset) for partition, offset, _ in rows}
    if ends is None:
        ends = {partition: offset + 1 for partition, offset in sorted(found)}
    expected = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    if missing := sorted(expected - found):
        return f"missing: {missing[:5]}"
    if is_exact and found - expected:
        return f"unexpected: {sorted(found - expected)[:5]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
