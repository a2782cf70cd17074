"""Kills exports at random times while DuckDB, and Spark, read what they publish.

    python -m tests.faults.export_kills --table delta --engine local --seeds 10 --compact

For each seed: records are produced, an export starts, and its processes are killed with SIGKILL at a random time, again
and again: all at once, only the driver, or with Spark only Java or its Python workers.  Meanwhile a reader queries the
target without a pause.  It must find every offset up to the last commit that it saw before the query, and none twice;
tables must end nowhere else.  After the last round an export runs to its end, and exactly the delivered records must be
there.

With `--compact` small files are merged meanwhile, again and again; readers of a folder of Parquet files then read those
that the commits name.  `--spark-python` is a Python whose PySpark reads beside DuckDB, with the jars of the formats in
`--spark-jars` (PySpark 4.1 can read Iceberg and Delta; DuckDB reads the files that their libraries name).

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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from kctl.spark.commit_log import CommitLog
from kctl.spark.exec.files import DiskFiles
from tests.integration.spark.peer import ENGINES, RUN_TIMEOUT_S, Topic, export_command
from tests.peers.kctl_broker import kctl_broker

PARTITIONS = 3
RECORDS_PER_ROUND = 600
TABLES = ("parquet", "iceberg", "delta")

Rows = list[tuple[int, int, int]]
"""Partition, offset and number of rows."""
Ends = dict[int, int]
"""The offset after the last one of each partition."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--table", choices=TABLES, default="parquet")
    options.add_argument("--engine", choices=sorted(ENGINES), default="local")
    options.add_argument("--first-seed", type=int, default=1)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--rounds", type=int, default=8, help="exports of each seed")
    options.add_argument("--compact", action="store_true")
    options.add_argument("--spark-python", default="")
    options.add_argument("--spark-jars", default="", help="separated by commas")
    given = options.parse_args()
    spark = [given.spark_python, str(Path(__file__).with_name("spark_reader.py")), given.table, given.spark_jars]
    with tempfile.TemporaryDirectory(prefix="kctl-kills-") as name, kctl_broker(Path(name) / "broker") as broker:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            target = Path(name) / f"lake-{seed}"
            trial = Trial(
                broker.bootstrap,
                target,
                seed,
                given.engine,
                given.table,
                compacts=given.compact,
                spark=spark if given.spark_python else [],
            )
            problem = trial.run(given.rounds)
            sys.stdout.write(f"seed {seed}: {problem or 'exact'}; {trial.summary()}\n")
            sys.stdout.flush()
            if problem:
                return 1
    return 0


class Trial:
    """The exports of one seed."""

    def __init__(
        self,
        bootstrap: str,
        target: Path,
        seed: int,
        engine: str,
        table: str,
        *,
        compacts: bool = False,
        spark: Sequence[str] = (),
    ) -> None:
        """`spark` is the command of a reader; without one only DuckDB reads."""
        self._random = random.Random(seed)
        self._topic = Topic(bootstrap, f"orders-{seed}", PARTITIONS, engine)
        self._target = target
        self._table = table
        self._victims = ("driver", "all", "java", "worker") if engine == "spark" else ("driver", "all")
        lake = Lake(target, self._topic.name, table, is_compacted=compacts)
        self._lake = lake
        self._readers = [Reader(lake, duckdb_rows)]
        self._spark = (
            subprocess.Popen(spark, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) if spark else None
        )
        if self._spark:
            self._readers.append(Reader(lake, partial(spark_rows, self._spark)))
        self._compactor = Compactor(target) if compacts else None
        self._longest_s = 0.0
        self._kills = 0
        self._finished = 0

    def run(self, rounds: int) -> str:
        """What went wrong; empty if nothing did."""
        self._produce()
        self._export(None)
        with contextlib.ExitStack() as stack:
            if self._spark:
                stack.callback(self._end_spark, self._spark)
            for one in (*self._readers, *([self._compactor] if self._compactor else [])):
                stack.enter_context(one)
            for _ in range(rounds):
                self._produce()
                self._export(self._random.uniform(0, 1.1 * self._longest_s))
        self._export(None)
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for row in self._topic.rows:
            ends[row[0]] = max(ends[row[0]], row[1] + 1)
        problems = [reader.problem for reader in self._readers if reader.problem]
        return "; ".join(problems) or difference(duckdb_rows(self._lake), ends, is_exact=True)

    @staticmethod
    def _end_spark(process: subprocess.Popen[str]) -> None:
        assert process.stdin
        process.stdin.close()
        process.wait(RUN_TIMEOUT_S)

    def summary(self) -> str:
        """What happened."""
        return (
            f"{self._kills} exports killed, {self._finished} finished, {len(self._topic.rows)} records, "
            f"{' and '.join(str(reader.queries) for reader in self._readers)} queries"
            + (f", {self._compactor.merged} compactions" if self._compactor else "")
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
        if self._compactor:
            self._compactor.step()  # a folder with an interrupted batch cannot be compacted

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        self._kills += 1
        victim = self._random.choice(self._victims)
        found = session_of(process.pid)
        pids = {
            # Tasks notice the end of the driver, and may run beside the next export until then.
            "driver": [process.pid],
            "java": [pid for pid, name in found.items() if name == "java"],
            "worker": [pid for pid, name in found.items() if name.startswith("python") and pid != process.pid],
        }.get(victim, [])
        for pid in pids or found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(RUN_TIMEOUT_S)  # without Java it fails; a task whose worker was killed is repeated


def session_of(leader: int) -> dict[int, str]:
    """The running processes of a session, with their names.  Spark's workers have process groups of their own."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            state, _, _, session, *_ = rest.split()
            if int(session) == leader and state != "Z":
                found[int(path.parent.name)] = name
    return found


class Lake:
    """What readers know of a target."""

    def __init__(self, target: Path, topic: str, table: str, *, is_compacted: bool) -> None:
        self.table = table
        self.folder = target / topic
        self._target = target
        self._topic = topic
        self._is_compacted = is_compacted

    def files(self) -> list[str]:
        """The files that a query reads."""
        if self.table == "delta":
            from deltalake import DeltaTable  # noqa: PLC0415 - only for this kind

            return list(DeltaTable(self.folder).file_uris())
        if self.table == "iceberg":
            with self._iceberg() as table:
                return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        if self._is_compacted:
            return [str(self._target / path) for path in CommitLog(DiskFiles(self._target)).committed_paths()]
        return [str(path) for path in self.folder.glob("[!._]*.parquet")]

    def source(self) -> list[str]:
        """What Spark loads: metadata of Iceberg, the folder of a Delta table, or files."""
        if self.table == "iceberg":
            with self._iceberg() as table:
                return [table.metadata_location]
        return [str(self.folder)] if self.table == "delta" else self.files()

    @contextlib.contextmanager
    def _iceberg(self) -> Iterator[Any]:
        from kctl.spark.tables.iceberg import default_catalog  # noqa: PLC0415 - only for this kind

        with contextlib.closing(default_catalog(self._target)) as catalog:
            yield catalog.load_table(("kafka", self._topic.replace("-", "_")))

    def committed(self) -> Ends | None:
        """The ends after the last commit of a folder; None for tables, whose commits are atomic.

        The folder of files shows those of a running batch too; what was committed before is complete.
        """
        if self.table != "parquet":
            return None
        partitions = json.loads(self._last_commit().read_text())["positions"][self._topic]["partitions"]
        return {int(partition): found[0] for partition, found in partitions.items()}

    def commits(self) -> int:
        """Number of commits of a compacted folder, whose readers must read the log again if it has changed."""
        is_compacted_folder = self.table == "parquet" and self._is_compacted
        return int(self._last_commit().name.partition(".")[0]) if is_compacted_folder else 0

    def _last_commit(self) -> Path:
        return max((self._target / "_kctl" / "commits").glob("[0-9]*.json"))


class Background:
    """Repeats a step in a thread until the block ends."""

    def __init__(self) -> None:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._repeat)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._ends.is_set() and self.step():
            pass

    def step(self) -> bool:
        """Whether to go on."""
        raise NotImplementedError


class Reader(Background):
    """Queries a target."""

    def __init__(self, lake: Lake, rows: Callable[[Lake], Rows]) -> None:
        super().__init__()
        self.problem = ""
        self.queries = 0
        self._lake = lake
        self._rows = rows

    def step(self) -> bool:
        """One query."""
        committed = self._lake.committed()
        commits = self._lake.commits()
        try:
            self.problem = difference(self._rows(self._lake), committed, is_exact=False)
        except Exception as error:
            if commits == self._lake.commits():  # otherwise files may have been replaced
                self.problem = f"the reader failed: {type(error).__name__}: {error}"
        self.queries += 1
        return not self.problem


class Compactor(Background):
    """Merges small files."""

    def __init__(self, target: Path) -> None:
        super().__init__()
        self.merged = 0
        self._target = target

    def step(self) -> bool:
        """One compaction, which an export may refuse."""
        command = [sys.executable, "-m", "kctl", "tables", "compact", str(self._target), "--yes", "--format", "json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
        assert "Traceback" not in done.stderr, done.stderr
        self.merged += done.returncode == 0 and '"compacted"' in done.stdout
        return True


def duckdb_rows(lake: Lake) -> Rows:
    """Partition, offset and number of rows."""
    query = 'select "partition", "offset", count(*) from read_parquet(?) group by all'
    with duckdb.connect() as connection:
        connection.execute("set threads = 1")
        rows: Rows = connection.execute(query, [lake.files()]).fetchall()
    return rows


def spark_rows(process: subprocess.Popen[str], lake: Lake) -> Rows:
    """As `duckdb_rows`, by the Spark of another process."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(lake.source()) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return [(partition, offset, count) for partition, offset, count in answer]


def difference(rows: Rows, ends: Ends | None, *, is_exact: bool) -> str:
    """What is missing or twice in the rows up to `ends`, by default up to the last offset; empty if nothing is."""
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
