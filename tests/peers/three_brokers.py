"""Clusters of three brokers: ours by `kctl cluster start` or forked, Apache Kafka's with its own ZooKeeper."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kctl.server.process.dev_cluster import defaults_for
from tests.peers import apache_kafka, apache_zookeeper
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import KctlBroker, kctl_broker

T = TypeVar("T")

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
def forked_cluster(folder: Path, properties_of: Callable[[int], Mapping[str, str]]) -> Iterator[list[KctlBroker]]:
    """Three brokers of ours on one ZooKeeper, forked, which takes an eighth of the processor time of `kctl_cluster`.

    Their properties are those of `kctl cluster start` and what `properties_of` returns for each.
    """
    with embedded_zookeeper(folder / "zookeeper") as zookeeper:

        def broker(number: int) -> contextlib.AbstractContextManager[KctlBroker]:
            properties = {**defaults_for(len(BROKERS)), **properties_of(number), "broker.id": str(number)}
            return kctl_broker(folder / f"broker-{number}", zookeeper=zookeeper.connect, properties=properties)

        with _all_at_once(broker) as brokers:
            yield brokers


@contextlib.contextmanager
def apache_cluster(version: str, folder: Path) -> Iterator[str]:
    """Three brokers of Apache Kafka; yields the bootstrap address of the first."""
    with apache_zookeeper.apache_zookeeper(folder / "zookeeper") as zookeeper:

        def broker(number: int) -> contextlib.AbstractContextManager[str]:
            properties = APACHE_PROPERTIES | {"broker.id": str(number)}
            return apache_kafka.apache_kafka(
                version, folder / f"broker-{number}", zookeeper=zookeeper, properties=properties
            )

        with _all_at_once(broker) as addresses:
            yield addresses[0]


@contextlib.contextmanager
def _all_at_once(broker: Callable[[int], contextlib.AbstractContextManager[T]]) -> Iterator[list[T]]:
    """Starts brokers at the same time, and stops them likewise."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(BROKERS)))
        running: list[contextlib.AbstractContextManager[T]] = []
        stack.callback(lambda: list(pool.map(lambda started: started.__exit__(None, None, None), running)))

        def start(number: int) -> T:
            starting = broker(number)
            started = starting.__enter__()
            running.append(starting)
            return started

        yield list(pool.map(start, BROKERS))
