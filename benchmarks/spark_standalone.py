"""Measures the processor time of an export by two workers of a standalone Spark cluster beside local[2].

    python -m benchmarks.spark_standalone [--runs 3] [--megabytes 1000]

Master and workers are those of the pyspark wheel, on this machine, and are started before.  Processor time is that of
all processes: driver, executors, their Python processes, master and workers; measuring it needs Linux.  Each export is
a new application, so that the JVMs of its driver and executors start in it, with the archive of classes of `kctl spark
warmup` if there is one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.export import PARTITIONS, TIMEOUT_S, VALUE_BYTES, fill, processor_s
from benchmarks.harness.report import Figure, report
from tests.peers.kctl_broker import kctl_broker
from tests.peers.spark_cluster import SparkCluster, spark_cluster

GOAL = "<= 1.1"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--megabytes", type=int, default=1000, help="of values in each topic")
    given = options.parse_args()
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
    command = [sys.executable, "-m", "kctl", "export", "--engine", "spark", topic, "--to", str(target), "--quiet"]
    command += ["--bootstrap-server", bootstrap, "--conf", f"spark.pyspark.python={sys.executable}"]
    daemons = [cluster.leader.pid, *(worker.pid for worker in cluster.workers)]
    local, alone = [], []
    for _ in range(given.runs):
        local.append(processor_s([*command, "--master", "local[2]"]))
        shutil.rmtree(target)
        alone.append(processor_s([*command, "--master", cluster.master], daemons=daemons))
        shutil.rmtree(target)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    ratios = [alone_s / other for alone_s, other in zip(alone, local, strict=True)]
    return [
        Figure(f"{size}, local[2]", "CPU s", local),
        Figure(f"{size}, two workers", "CPU s", alone),
        Figure(f"{size}, two workers / local[2]", "", ratios, GOAL),
    ]


if __name__ == "__main__":
    main()
