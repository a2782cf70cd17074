"""Measures the time from the command to the first response of our broker, its memory while it is idle, and its files.

    python -m benchmarks.broker_footprint [--runs 7] [--beside 3.9.1 --beside 4.3.1]

Start-up is the time from starting the process to its first response to ApiVersions, on an empty data folder and on one
that it has used before.  Memory is resident memory two seconds later.  Limits: Python itself starts in 15 to 20 ms and
holds 10 MB; asyncio costs 60 ms and 10 MB more.  Apache Kafka starts with its service of metadata: a ZooKeeper, or the
formatting of its folder; its heap is as large as it needs.  A broker of a pool has started before a test takes it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from kctl.testing import KafkaBroker
from tests.peers import probe
from tests.peers.apache_kafka import apache_kafka_process
from tests.peers.java import UTF_8

TIMEOUT_S = 30
SETTLED_AFTER_S = 2


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--beside", action="append", default=[], metavar="VERSION", help="of Apache Kafka; repeatable")
    given = options.parse_args()
    runs = given.runs
    first_s, again_s, cpu_s, resident_mb = [], [], [], []
    disk_mb: list[float] = []
    theirs: dict[str, list[tuple[float, float, float]]] = {version: [] for version in given.beside}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder:
            first_s.append(measure(Path(folder))[0])
            took_s, used_s, memory_mb = measure(Path(folder))
            again_s.append(took_s)
            cpu_s.append(used_s)
            resident_mb.append(memory_mb)
            disk_mb.append(size_mb(Path(folder)))
        for version, measured in theirs.items():
            measured.append(measure_apache(version))
    figures = [
        Figure("start, empty data folder", "s to ApiVersions", first_s, "< 1"),
        Figure("start, used data folder", "s to ApiVersions", again_s, "< 1"),
        Figure("start, used data folder", "CPU s to ApiVersions", cpu_s),
        Figure("idle resident memory", "MB", resident_mb, "< 80"),
        Figure("files of an idle broker", "MB", disk_mb),
        Figure("a broker of a pool, to ApiVersions", "s", [measure_pooled() for _ in range(runs)], "< 0.06"),
    ]
    for version, measured in theirs.items():
        for name, unit, values in zip(
            ("start, empty data folder", "idle resident memory", "files"),
            ("s", "MB", "MB"),
            zip(*measured, strict=True),
            strict=True,
        ):
            figures.append(Figure(f"Apache Kafka {version}: {name}", unit, values))
    report("broker_footprint", figures, runs=runs)


def measure(folder: Path) -> tuple[float, float, float]:
    """Starts the broker, sends requests until it responds, waits while it is idle, stops it.

    Returns the seconds to the first response, the processor seconds used until then, and the MB at rest.
    """
    bootstrap = f"127.0.0.1:{probe.free_port()}"
    port = bootstrap.partition(":")[2]
    started = time.perf_counter()
    broker = subprocess.Popen(
        [sys.executable, "-m", "kctl", "broker", "start", "--data-dir", folder / "data", "--port", port, "--quiet"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    try:
        probe.wait_until(
            lambda: probe.responds_to_api_versions(bootstrap), what="the broker", timeout_s=TIMEOUT_S, interval_s=0.005
        )
        took_s = time.perf_counter() - started
        subject = Subject(bootstrap, broker.pid)
        used_s = subject.cpu_s()
        time.sleep(SETTLED_AFTER_S)
        return took_s, used_s, subject.resident_mb()
    finally:
        broker.terminate()
        broker.wait(TIMEOUT_S)


def measure_apache(version: str) -> tuple[float, float, float]:
    """As above, for Apache Kafka on an empty folder; the last figure is the size of its files in MB."""
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder:
        started = time.perf_counter()
        with apache_kafka_process(version, Path(folder, "data"), jvm_flags=("-Xmx1g", *UTF_8)) as (bootstrap, process):
            took_s = time.perf_counter() - started
            time.sleep(SETTLED_AFTER_S)
            return took_s, Subject(bootstrap, process.pid).resident_mb(), size_mb(Path(folder))


def measure_pooled() -> float:
    """Returns the seconds until a broker of a pool that is ready has responded."""
    with KafkaBroker.pool(1) as pool, pool.broker():
        time.sleep(SETTLED_AFTER_S)  # The next one starts meanwhile.
        started = time.perf_counter()
        with pool.broker() as broker:
            probe.wait_until(
                lambda: probe.responds_to_api_versions(broker.bootstrap_servers),
                what="the broker",
                timeout_s=TIMEOUT_S,
                interval_s=0.001,
            )
            return time.perf_counter() - started


def size_mb(folder: Path) -> float:
    """What the files of the folder take on the disk, which is less than their length where they have holes."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
