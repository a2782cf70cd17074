"""Measures how fast dump-log reads a log, without and with its records, beside Kafka's own DumpLogSegments.

    python -m benchmarks.dump_log [--megabytes 64] [--runs 3] [--version 3.9.1]

One uncompressed segment with records of about 100 B in batches of 16 KB, read from the page cache; both programs are
whole processes, start-up included, and write the same text to /dev/null.  They run in turn, so that a busy machine
disturbs both alike.  `--megabytes 1024` is the size that the goal is about.  Our memory must not grow with the file's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.report import Figure, report
from kctl.records.build import build_batch
from kctl.records.header import HEADER, Record
from tests.peers import apache_kafka

ROOT = Path(__file__).parent.parent
RECORDS_PER_BATCH = 128
START_MS = 1_700_000_000_000
MODES = {"batches": (), "records": ("--print-data-log",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64, help="size of the segment")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--version", default=apache_kafka.LAST_WITH_ZOOKEEPER, help="of Apache Kafka")
    options = parser.parse_args()
    has_kafka = apache_kafka.why_not() is None
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder:
        path = Path(folder) / "00000000000000000000.log"
        count = write_segment(path, options.megabytes << 20)
        figures = []
        for mode, words in MODES.items():
            ours: list[Cost] = []
            theirs: list[Cost] = []
            for _ in range(options.runs):
                ours.append(run(kctl_command(path, words)))
                if has_kafka:
                    theirs.append(run(kafka_command(options.version, path, words)))
            for name, costs in (("kctl", ours), ("DumpLogSegments", theirs)):
                if costs:
                    figures += [
                        Figure(f"{mode}: {name}", "records/s", [count / cost.seconds for cost in costs]),
                        Figure(f"{mode}: {name}, processor", "s", [cost.processor_s for cost in costs]),
                        Figure(f"{mode}: {name}, memory", "MB", [cost.peak_mb for cost in costs]),
                    ]
    report("dump_log", figures, megabytes=options.megabytes, records=count, runs=options.runs, kafka=options.version)


def write_segment(path: Path, size: int) -> int:
    """Returns how many records it holds.  One batch again and again; its checksum does not cover the base offset."""
    records = [
        Record(0, START_MS + at, b"user-%09d" % at, (b'{"state":"shipped","number":%d}' % at).ljust(100))
        for at in range(RECORDS_PER_BATCH)
    ]
    batch = bytearray(build_batch(records))
    count = 0
    with path.open("wb") as file:
        while file.tell() < size:
            fields = list(HEADER.unpack_from(batch))
            fields[0] = count
            HEADER.pack_into(batch, 0, *fields)
            file.write(batch)
            count += RECORDS_PER_BATCH
    return count


def kctl_command(path: Path, words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "kctl", "dump-log", "--compat", "kafka-4", *words, str(path)]


def kafka_command(version: str, path: Path, words: tuple[str, ...]) -> list[str]:
    """With the default flags of the JVM; those of the tests are chosen for a short start."""
    folder = apache_kafka.jars(version)
    settings = folder.with_name("log4j-error.properties")
    settings_flag = [f"-Dlog4j.configuration=file:{settings}"] if settings.exists() else []
    tool = "kafka.tools.DumpLogSegments"
    return ["java", "-Xmx256m", *settings_flag, "-cp", f"{folder}/*", tool, "--files", str(path), *words]


class Cost(NamedTuple):
    """The cost of one run."""

    seconds: float
    processor_s: float
    """User and system time of all its threads; on a busy machine this compares better."""
    peak_mb: float


def run(command: list[str]) -> Cost:
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed with {process.returncode}: {' '.join(command)}")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
