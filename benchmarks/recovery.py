"""Measures the recovery of a partition after a crash, and the start with many partitions after a clean stop.

    python -m benchmarks.recovery [--runs 3] [--megabytes 2000] [--partitions 2000] [--dir DIR]

One partition of 16 KB batches with the recovery point at 0: every byte is read and its checksum computed, the indexes
and the producer state are built anew.  Limit: reading the same files in 1 MiB pieces, in the line below.  Then logs of
three segments each, opened from a clean shutdown; memory is that of this process before and after.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.append_path import NOW_MS, new_log
from benchmarks.harness.report import Figure, report
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import RealFiles
from kctl.storage.log_manager import LogManager
from kctl.storage.recovery.recovery import open_log
from kctl.testing.sim_clock import ManualClock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--dir", default=None, help="where to write; default: the temporary folder")
    options = parser.parse_args()
    at = tempfile.mkdtemp(prefix="kctl-recovery-", dir=options.dir)
    try:
        size = fill(at, options.megabytes)
        recoveries = [recover(at) for _ in range(options.runs)]
        reads = [read_all(Path(at, "bench-0")) for _ in range(options.runs)]
        shutil.rmtree(Path(at, "bench-0"))
        figures = [
            Figure("recovery of one partition", "MB/s", [size / taken / 1e6 for taken in recoveries], ">= 1000"),
            Figure("reading its files alone", "MB/s", [size / taken / 1e6 for taken in reads]),
        ]
        create_many(at, options.partitions)
        before = resident_mb()
        starts = [start_many(at, is_last=run == options.runs - 1) for run in range(options.runs)]
        figures += [
            Figure(f"clean start of {options.partitions} partitions", "s", starts, "< 10"),
            Figure("memory that they hold", "MB", [resident_mb() - before], "< 300"),
        ]
    finally:
        shutil.rmtree(at)
    report("recovery", figures, runs=options.runs, megabytes=options.megabytes, partitions=options.partitions)


def fill(at: str, megabytes: int) -> int:
    log = new_log(at)
    batch = bytearray(build_batch([Record(0, NOW_MS, b"key", bytes(1000)) for _ in range(16)]))
    for _ in range(megabytes * 1_000_000 // len(batch)):
        batch[:8] = bytes(8)
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    log.release()
    return log.size_bytes


def recover(at: str) -> float:
    started = time.perf_counter()
    log = open_log(
        TopicPartition("bench", 0),
        f"{at}/bench-0",
        LogConfig(),
        files=RealFiles(),
        log_directory=LogDirectory(at),
        removals=DelayedRemovals(),
        random=random.Random(1),
        now_ms=NOW_MS,
        was_clean=False,
        recovery_point=0,
    )
    taken = time.perf_counter() - started
    log.release()
    return taken


def read_all(directory: Path) -> float:
    started = time.perf_counter()
    for path in directory.glob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        position = 0
        while data := os.pread(fd, 1 << 20, position):
            position += len(data)
        os.close(fd)
    return time.perf_counter() - started


def create_many(at: str, partitions: int) -> None:
    manager = LogManager([at], files=RealFiles(), clock=ManualClock(), random=random.Random(1))
    manager.load()
    for partition in range(partitions):
        log = manager.get_or_create(TopicPartition("many", partition))
        for _ in range(3):
            log.append_as_leader(build_batch([Record(0, NOW_MS, b"k", b"v")]), leader_epoch=0, now_ms=NOW_MS)
            log.roll(NOW_MS)
        log.release()
    manager.clean_shutdown()


def start_many(at: str, *, is_last: bool) -> float:
    started = time.perf_counter()
    manager = LogManager([at], files=RealFiles(), clock=ManualClock(), random=random.Random(1))
    manager.load()
    taken = time.perf_counter() - started
    if not is_last:
        manager.clean_shutdown()
    return taken


def resident_mb() -> float:
    """What the process holds now; the peak where the kernel does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    main()
