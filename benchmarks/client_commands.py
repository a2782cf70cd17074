"""Measures the processor time of the commands that read and write records, beside kcat.

    python -m benchmarks.client_commands [--runs 5] [--against CHECKOUT] [--rows produce-1k,consume-jsonl]

`kctl produce` of 100,000 lines of 1 KB and of 300,000 lines of 100 B with keys, `kctl consume` of 300,000 records of
100 B with keys, and `kctl dump-log` of a segment of such records.  Start-up is included, and output goes to /dev/null.
kcat is measured too if it is installed. `--against` measures the commands of another checkout as well, with the same
interpreter; the commands run in turn, so that a busy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.dump_log import write_segment
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.environment import command_environment
from benchmarks.harness.report import Figure, report

ROOT = Path(__file__).parent.parent
PRODUCED, CONSUMED = 100_000, 300_000
GOALS = {
    "produce-1k": "<= 0.7",
    "consume-jsonl": "<= 2.5",
    "dump-verify": ">= 3 M records/s",
    "dump-records": ">= 3 M records/s",
}


class Line(NamedTuple):
    """A command line, and the file that it reads from standard input."""

    words: list[str]
    stdin: Path | None = None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--megabytes", type=int, default=256, help="size of the segment")
    options.add_argument("--against", metavar="CHECKOUT", type=Path, help="measure the commands of this checkout too")
    options.add_argument("--rows", help="only these, separated by commas")
    given = options.parse_args()
    checkouts = {"kctl": ROOT} | ({} if given.against is None else {"other": given.against})
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        bootstrap = stack.enter_context(kctl_broker(folder / "broker")).bootstrap
        segment = folder / "00000000000000000000.log"
        count = write_segment(segment, given.megabytes << 20)
        lines = {
            name: line
            for name, line in prepare(folder, bootstrap, segment).items()
            if given.rows is None or name in given.rows.split(",")
        }
        samples: dict[tuple[str, str], list[float]] = {}
        for turn in range(given.runs + 1):
            for name, line in lines.items():
                ours = [sys.executable, "-m", "kctl", *line.words]
                sides = {side: (ours, checkout) for side, checkout in checkouts.items()}
                if kcat is not None and name in KCAT:
                    sides["kcat"] = ([kcat, "-b", bootstrap, *KCAT[name]], ROOT)
                for side, (words, checkout) in sides.items():
                    cost = processor_s(Line(words, line.stdin), checkout)
                    if turn:  # the first turn warms up caches
                        samples.setdefault((name, side), []).append(cost)
    figures = []
    for (name, side), seconds in samples.items():
        figures.append(Figure(f"{name}: {side}", "CPU s", seconds, GOALS.get(name, "") if side == "kctl" else ""))
        if name.startswith("dump"):
            figures.append(Figure(f"{name}: {side}, speed", "records/CPU s", [count / cpu_s for cpu_s in seconds]))
    report("client_commands", figures, runs=given.runs, segment_records=count)


KCAT = {
    "produce-1k": ["-P", "-t", "produced", "-l", "/dev/stdin"],
    "produce-keys": ["-P", "-t", "keyed", "-K", "\t", "-l", "/dev/stdin"],
    "consume-jsonl": ["-C", "-q", "-e", "-J", "-t", "consumed"],
    "consume-format": ["-C", "-q", "-e", "-f", r"%p %o %k %s\n", "-t", "consumed"],
}


def prepare(folder: Path, bootstrap: str, segment: Path) -> dict[str, Line]:
    """The measured command lines, after the topics and files that they read have been written."""
    at = ["--bootstrap-server", bootstrap]
    values = folder / "lines.txt"
    values.write_bytes(b"".join((b'{"state":"shipped","number":%d}' % n).ljust(1024) + b"\n" for n in range(PRODUCED)))
    pairs = folder / "pairs.txt"
    pairs.write_bytes(
        b"".join(b"user-%09d\t%s\n" % (n, (b'{"state":"shipped","number":%d}' % n).ljust(100)) for n in range(CONSUMED))
    )
    for topic, partitions in (("produced", 1), ("keyed", 3), ("consumed", 1)):
        kctl(["topics", "create", topic, "--partitions", str(partitions), *at])
    kctl(["produce", "consumed", "--key-separator", "\t", "--file", str(pairs), *at])
    return {
        "produce-1k": Line(["produce", "produced", *at], values),
        "produce-keys": Line(["produce", "keyed", "--key-separator", "\t", *at], pairs),
        "consume-jsonl": Line(["consume", "consumed", "--format", "jsonl", *at]),
        "consume-plain": Line(["consume", "consumed", "--format", "plain", *at]),
        "consume-csv": Line(["consume", "consumed", "--format", "csv", *at]),
        "consume-format": Line(["consume", "consumed", "-f", r"%p %o %k %v\n", *at]),
        "dump-verify": Line(["dump-log", "--verify-only", str(segment)]),
        "dump-records": Line(["dump-log", "--compat", "kafka-4", "--print-data-log", str(segment)]),
    }


def kctl(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "kctl", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def processor_s(line: Line, checkout: Path) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(line.stdin or os.devnull, "rb") as stdin:
        subprocess.run(
            line.words,
            cwd=checkout,
            env=command_environment(PYTHONPATH=str(checkout)),
            check=True,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
