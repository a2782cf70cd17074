"""Kills exports at random times and steps while DuckDB, and Spark, read what they publish.

    python -m tests.faults.export_kills --table delta --engine local --seeds 10 --compact

For each seed: records are produced, in transactions of which some are aborted, an export starts while more of them are
produced, and its processes are killed with SIGKILL at a random time, again and again: all at once, only the driver, or
with Spark only Java or its Python workers.  Half of the kills are at a step instead: before a random one of the system
calls by which the driver changes names and syncs files, which strace counts (`--no-steps` without it).  Meanwhile a
reader queries the target.  It must find every record up to the last commit that it saw before the query, and none
twice; tables must end nowhere else.  After the last round an export runs to its end, and exactly the delivered records
must be there.

With `--compact` small files are merged meanwhile, again and again; readers of a folder of Parquet files then read those
that the commits name.  `--spark-python` is a Python whose PySpark reads beside DuckDB, with the jars of the formats in
`--spark-jars` (PySpark 4.1 can read Iceberg and Delta; DuckDB reads the files that their libraries name).

It prints one line per seed, and the steps before which drivers were killed, by how often; it exits with status 1 after
the first seed that fails, whose number repeats the order of events, but not the exact times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from kctl.tables.commits.commit_log import CommitLog
from kctl.tables.exec.targets.files import DiskFiles
from tests.integration.spark.peer import ENGINES, RUN_TIMEOUT_S, Topic, export_command
from tests.peers.kctl_broker import kctl_broker

PARTITIONS = 3
RECORDS_PER_ROUND = 600
TABLES = ("parquet", "iceberg", "delta")
STEPS = "link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,fsync,fdatasync"
"""The system calls that are steps."""
READER_SHARE = 4
"""A reader pauses so that its queries take this part of the time: the exports need a processor too."""

Rows = list[tuple[int, int, int]]
"""Partition, offset and number of rows."""
Ends = dict[int, int]
"""The offset after the last one of each partition."""
Offsets = set[tuple[int, int]]
"""Partitions and offsets."""
Step = tuple[str, int]
"""A system call, and which of those of this name in its thread it is: strace counts each name by itself."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--table", choices=TABLES, default="parquet")
    options.add_argument("--engine", choices=sorted(ENGINES), default="local")
    options.add_argument("--first-seed", type=int, default=1)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--rounds", type=int, default=8, help="exports of each seed")
    options.add_argument("--compact", action="store_true")
    options.add_argument("--no-steps", action="store_true", help="kill at random times only")
    options.add_argument("--spark-python", default="")
    options.add_argument("--spark-jars", default="", help="separated by commas")
    given = options.parse_args()
    if not given.no_steps and not shutil.which("strace"):
        options.error("strace is not on the PATH: install it, or give --no-steps")
    steps = Steps()
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
                steps=None if given.no_steps else steps,
                compacts=given.compact,
                spark=spark if given.spark_python else [],
            )
            problem = trial.run(given.rounds)
            sys.stdout.write(f"seed {seed}: {problem or 'exact'}; {trial.summary()}\n")
            sys.stdout.flush()
            if problem:
                return 1
    for step, count in steps.killed_before.most_common():
        sys.stdout.write(f"{count:5} before {step}\n")
    return 0


@dataclass(slots=True)
class Steps:
    """What is known of the steps of exports, over all seeds."""

    usual: list[Step] = field(default_factory=list)
    """The steps of the last finished export that was not the first one of its seed."""
    killed_before: Counter[str] = field(default_factory=Counter)
    """The steps before which drivers were killed."""


class Trial:
    """The exports of one seed."""

    options: Sequence[str] = ("--target-file-size", "16k")
    """Of each export."""

    def __init__(
        self,
        bootstrap: str,
        target: Path,
        seed: int,
        engine: str,
        table: str,
        *,
        steps: Steps | None = None,
        compacts: bool = False,
        spark: Sequence[str] = (),
    ) -> None:
        """`spark` is the command of a reader; without one only DuckDB reads.

        Without `steps` exports are killed at random times only.
        """
        self._random = random.Random(seed)
        self._topic = Topic(bootstrap, f"orders-{seed}", PARTITIONS, engine)
        self._target = target
        self._table = table
        self._victims = ("driver", "all", "java", "worker") if engine == "spark" else ("driver", "all")
        lake = Lake(target, self._topic, table, is_compacted=compacts)
        self._lake = lake
        self._readers = [Reader(lake, duckdb_rows)]
        self._spark = (
            subprocess.Popen(spark, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) if spark else None
        )
        if self._spark:
            self._readers.append(Reader(lake, partial(spark_rows, self._spark)))
        self._compactor = Compactor(target) if compacts else None
        self._usual_s = 0.0
        """How long the last finished export took."""
        self._steps = steps
        self._kills = 0
        self._killed_at_steps = 0
        self._finished = 0

    def run(self, rounds: int) -> str:
        """What went wrong; empty if nothing did."""
        self._produce(self._transactions())
        self._export()
        with contextlib.ExitStack() as stack:
            if self._spark:
                stack.callback(self._end_spark, self._spark)
            for reader in (*self._readers, *([self._compactor] if self._compactor else [])):
                stack.enter_context(reader)
            for number in range(rounds):
                self._produce(self._transactions())
                producing = threading.Thread(target=self._produce, args=(self._transactions(),))
                producing.start()
                self._export_killed(number)
                producing.join()
        self._export()
        problems = [reader.problem for reader in self._readers if reader.problem]
        return "; ".join(problems) or difference(duckdb_rows(self._lake), self._lake.delivered(), None, is_exact=True)

    def _export_killed(self, number: int) -> None:
        """One export of a round, which is killed at a step or a time unless it ends before."""
        if self._steps is not None and number % 2 and self._steps.usual:
            self._export(before_step=self._random.choice(self._steps.usual))
        else:
            self._export(kill_after_s=self._random.uniform(0.2, 0.9) * self._usual_s)

    @staticmethod
    def _end_spark(process: subprocess.Popen[str]) -> None:
        assert process.stdin
        process.stdin.close()
        process.wait(RUN_TIMEOUT_S)

    def summary(self) -> str:
        """What happened."""
        return (
            f"{self.counts()}, {len(self._topic.rows)} records, "
            f"{' and '.join(str(reader.queries) for reader in self._readers)} queries"
            + (f", {self._compactor.merged} compactions" if self._compactor else "")
        )

    def counts(self) -> str:
        """How many exports there were."""
        return f"{self._kills} exports killed, {self._killed_at_steps} of them at steps, {self._finished} finished"

    def _transactions(self) -> list[tuple[str, int]]:
        """What to produce: how, and how many records."""
        # Readers cannot read a folder without a file, so some records are always delivered.
        kinds = ("", *self._random.choices(("", "committed", "aborted"), k=self._random.randrange(3)))
        return [(kind, self._random.randrange(1, RECORDS_PER_ROUND // 3)) for kind in kinds]

    def _produce(self, transactions: Iterable[tuple[str, int]]) -> None:
        for kind, count in transactions:
            entries = self._entries(count)
            if kind == "aborted":
                self._topic.produce_aborted(entries, f"{self._topic.name}-aborted")
            else:
                self._topic.produce(entries, transactional_id=kind and f"{self._topic.name}-{kind}")

    def _entries(self, count: int) -> list[dict[str, Any]]:
        """Arguments of Producer.produce."""
        return [{"value": b"%d" % n * 50, "partition": n * 7 % PARTITIONS} for n in range(count)]

    def _export(self, *, kill_after_s: float | None = None, before_step: Step | None = None) -> None:
        """One export: to its end, or killed after a time or before a step."""
        command = export_command(self._topic, self._target, "--table", self._table, *self.options)
        scratch = self._target.with_name(f"{self._target.name}-scratch")
        scratch.mkdir(exist_ok=True)
        trace = scratch / "trace"
        if self._steps is not None and kill_after_s is None:
            command = [*strace(trace, before_step), *command]
        started = time.monotonic()
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
            if before_step and status == -signal.SIGKILL:
                self._after_step(process.pid, trace)
                return
            output.seek(0)
            assert status == 0, output.read().decode()
            self._usual_s = time.monotonic() - started
            self._finished += 1
        if self._steps is not None and kill_after_s is None:
            found = steps_of(trace, self._target)
            self._steps.usual = found if self._finished > 1 else self._steps.usual or found
        if self._compactor:
            self._compactor.step()  # a folder with an interrupted batch cannot be compacted

    def _after_step(self, driver: int, trace: Path) -> None:
        """Counts the step before which the driver was killed, and kills the rest, or leaves it to itself."""
        assert self._steps is not None
        self._kills += 1
        self._killed_at_steps += 1
        self._steps.killed_before[last_step(trace, self._target)] += 1
        if self._random.choice((True, False)):
            for pid in session_of(driver):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

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


def strace(trace: Path, before_step: Step | None) -> list[str]:
    """The words before a command whose steps are written to `trace`, and which ends before the given one, if any.

    Programs that it starts are not traced.
    """
    inject = ["-e", f"inject={before_step[0]}:signal=KILL:when={before_step[1]}"] if before_step else []
    # -D: the command is the child of the caller, and strace not its parent.
    return ["strace", "-D", "-f", "-b", "execve", "-y", "-qq", "-o", str(trace), "-e", f"trace={STEPS}", *inject, "--"]


def steps_of(trace: Path, target: Path) -> list[Step]:
    """The steps of a trace that change files of the target."""
    counts: Counter[tuple[str, str]] = Counter()
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        if call := re.match(r"(\d+) +(\w+)\(", line):
            thread, name = call.groups()
            counts[thread, name] += 1
            if str(target) in line:
                found.append((name, counts[thread, name]))
    return found


def last_step(trace: Path, target: Path) -> str:
    """The call that was not carried out: its name, and the path relative to the target with # for numbers and names."""
    calls: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        thread, _, call = line.partition(" ")
        if "resumed>" not in call:
            calls[thread] = call.lstrip()
        if call.endswith("= ?"):
            path = calls[thread].partition(f"{target}/")[2]
            path = re.split(r'[">]', path)[0] if path else "outside of the target"
            return f"{calls[thread].partition('(')[0]} {re.sub(r'[0-9a-f-]{6,}|[0-9]+', '#', path)}"
    return "an unknown step"


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

    def __init__(self, target: Path, topic: Topic, table: str, *, is_compacted: bool) -> None:
        self.table = table
        self.folder = target / topic.name
        self._target = target
        self._topic = topic.name
        self._rows = topic.rows
        self._is_compacted = is_compacted

    def delivered(self) -> Offsets:
        """The records so far, without those of aborted transactions."""
        return {row[:2] for row in self._rows}

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
        from kctl.tables.formats.iceberg import default_catalog  # noqa: PLC0415 - only for this kind

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

    pause_s = 0.0
    """The time until the next step."""

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
            self._ends.wait(self.pause_s)

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
        started = time.monotonic()
        delivered = self._lake.delivered()
        committed = self._lake.committed()
        commits = self._lake.commits()
        try:
            self.problem = difference(self._rows(self._lake), delivered, committed, is_exact=False)
        except Exception as error:
            if commits == self._lake.commits():  # otherwise files may have been replaced
                self.problem = f"the reader failed: {type(error).__name__}: {error}"
        self.queries += 1
        self.pause_s = (READER_SHARE - 1) * (time.monotonic() - started)
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


def difference(rows: Rows, delivered: Offsets, ends: Ends | None, *, is_exact: bool) -> str:
    """What is missing or twice in the rows up to `ends`, by default up to the last ones; empty if nothing is.

    With `is_exact` the rows must be all delivered records and no others.
    """
    if twice := [row for row in rows if row[2] != 1]:
        return f"twice: {twice[:5]}"
    found = {(partition, offset) for partition, offset, _ in rows}
    if ends is None:
        ends = {partition: offset + 1 for partition, offset in sorted(found)}
    expected = delivered if is_exact else {delivery for delivery in delivered if delivery[1] < ends.get(delivery[0], 0)}
    if missing := sorted(expected - found):
        return f"missing: {missing[:5]}"
    if is_exact and found - expected:
        return f"unexpected: {sorted(found - expected)[:5]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
