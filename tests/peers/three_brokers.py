"""Clusters of three brokers: ours by `kctl cluster start`, Apache Kafka's with its own ZooKeeper."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.peers import apache_kafka, apache_zookeeper

BROKERS = range(3)
START_TIMEOUT_S = 120

PROPERTIES = {
    "auto.leader.rebalance.enable": "false",  # tests elect leaders themselves
    "log.cleaner.enable": "false",
}
APACHE_PROPERTIES = PROPERTIES | {
    "controlled.shutdown.enable": "false",  # there is no broker to transfer leadership to
    **apache_kafka.PATIENT_QUOTAS,
    **apache_kafka.HANGING_IS_ALLOWED,
}


@contextlib.contextmanager
def kctl_cluster(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Three brokers of ours on free ports; yields the bootstrap address.  The folder is for more `kctl cluster`."""
    command = [sys.executable, "-m", "kctl", "cluster"]
    properties = [word for name, value in {**PROPERTIES, **(more or {})}.items() for word in ("-o", f"{name}={value}")]
    start = [*command, "start", "--data-dir", str(folder), "--port", "0", *properties]
    try:
        started = subprocess.run(start, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        assert started.returncode == 0, started.stdout + started.stderr
        yield next(line.split("\t")[2] for line in started.stdout.splitlines() if line.startswith("broker-0\t"))
    finally:
        subprocess.run([*command, "stop", "--data-dir", str(folder)], timeout=START_TIMEOUT_S, check=False)


@contextlib.contextmanager
def apache_cluster(version: str, folder: Path) -> Iterator[str]:
    """Three brokers of Apache Kafka, started at the same time; yields the bootstrap address of the first."""
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(apache_zookeeper.apache_zookeeper(folder / "zookeeper"))

        pool = stack.enter_context(ThreadPoolExecutor(len(BROKERS)))
        running: list[contextlib.AbstractContextManager[str]] = []
        stack.callback(lambda: list(pool.map(lambda broker: broker.__exit__(None, None, None), running)))

        def start(number: int) -> str:
            properties = APACHE_PROPERTIES | {"broker.id": str(number)}
            data_dir = folder / f"broker-{number}"
            broker = apache_kafka.apache_kafka(version, data_dir, zookeeper=zookeeper, properties=properties)
            address = broker.__enter__()
            running.append(broker)
            return address

        addresses = list(pool.map(start, BROKERS))
        yield addresses[0]
