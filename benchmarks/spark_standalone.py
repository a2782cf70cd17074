"""Measures the processor time of an export by two workers of a standalone Spark cluster beside local[2].

    python -m benchmarks.spark_standalone [--runs 3] [--megabytes 1000]

Master and workers are those of the pyspark wheel, on this machine, and are started before.  Processor time is that of
all processes: driver, executors, their Python processes, master and workers; measuring it needs Linux.  Each export is
a new application, so that the JVMs of its driver and executors start in it, with the archive of classes of `kctl spark
warmup` if there is one.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.export import PARTITIONS, TIMEOUT_S, VALUE_BYTES, fill, processor_s
from benchmarks.harness.report import Figure, report
from tests.peers.kctl_broker import kctl_broker
from tests.peers.spark_cluster import SparkCluster, spark_cluster

GOAL = "<= 1.1"
PR_SET_CHILD_SUBREAPER = 36
EXECUTORS_END_TIMEOUT_S = 60
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--megabytes", type=int, default=1000, help="of values in each topic")
    given = options.parse_args()
    # Python processes of an executor that ends before them become children of this process, which counts them.
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-") as name,
        kctl_broker(Path(name) / "broker") as broker,
        spark_cluster(Path(name), workers=2) as cluster,
    ):
        folder = Path(name)
        figures = [figure for size in VALUE_BYTES for figure in measure(broker.bootstrap, size, given, folder, cluster)]
    report("spark_standalone", figures, runs=given.runs, megabytes=given.megabytes)


def measure(
    bootstrap: str, size: str, given: argparse.Namespace, folder: Path, cluster: SparkCluster
) -> Sequence[Figure]:
    """The figures of one topic, measured in turns."""
    topic = f"values-{VALUE_BYTES[size]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    fill(bootstrap, topic, VALUE_BYTES[size], given.megabytes * 1_000_000 // VALUE_BYTES[size])
    target = folder / "exported"
    command = [sys.executable, "-m", "kctl", "spark", "export", topic, "--to", str(target), "--quiet"]
    command += ["--bootstrap-server", bootstrap, "--conf", f"spark.pyspark.python={sys.executable}"]
    local, alone = [], []
    for _ in range(given.runs):
        local.append(processor_s([*command, "--master", "local[2]"]))
        shutil.rmtree(target)
        alone.append(cluster_s(cluster, lambda: subprocess.run([*command, "--master", cluster.master], check=True)))
        shutil.rmtree(target)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    ratios = [one / other for one, other in zip(alone, local, strict=True)]
    return [
        Figure(f"{size}, local[2]", "CPU s", local),
        Figure(f"{size}, two workers", "CPU s", alone),
        Figure(f"{size}, two workers / local[2]", "", ratios, GOAL),
    ]


def cluster_s(cluster: SparkCluster, work: Callable[[], object]) -> float:
    """Processor time of the work, which waits for its own processes, and of the cluster meanwhile."""
    daemons = [cluster.leader.pid, *(worker.pid for worker in cluster.workers)]
    before = _ended_children_s() + sum(map(_with_children_s, daemons))
    work()
    deadline = time.monotonic() + EXECUTORS_END_TIMEOUT_S
    while _executors(daemons):
        assert time.monotonic() < deadline, "an executor does not end"
        time.sleep(0.1)
    _reap()
    return _ended_children_s() + sum(map(_with_children_s, daemons)) - before


def _executors(daemons: Sequence[int]) -> list[int]:
    """Processes of Spark whose parent is a daemon, or has ended."""
    children = [
        int(child)
        for pid in (*daemons, os.getpid())
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [pid for pid in children if pid not in daemons and b"pyspark" in _title(pid)]


def _title(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def _reap() -> None:
    """Waits for processes that have no other parent and have ended."""
    while True:
        done = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        if done is None:
            return


def _ended_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _with_children_s(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S


if __name__ == "__main__":
    main()
