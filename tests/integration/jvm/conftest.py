"""One broker for Apache Kafka's Java programs, on Apache ZooKeeper; tests of other clients use the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers import apache_kafka, apache_zookeeper
from tests.peers.kctl_broker import KctlBroker, kctl_broker

# Small enough for a few hundred records to fill some segments and to leave some index entries.
SMALL_SEGMENTS = {"log.segment.bytes": "16384", "log.index.interval.bytes": "1024"}


@pytest.fixture(scope="session", autouse=True)
def _jars() -> None:
    """Skips the tests of this folder without the jars of Apache Kafka."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    """A broker with small segments."""
    if reason := apache_zookeeper.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("broker")
    with (
        apache_zookeeper.apache_zookeeper(folder / "zookeeper") as connect,
        kctl_broker(folder / "data", properties=SMALL_SEGMENTS, zookeeper=connect) as broker,
    ):
        yield broker


@pytest.fixture(scope="session")
def apache_kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Apache Kafka's own broker with the same settings, to compare the tools' output on files that Kafka wrote."""
    folder = tmp_path_factory.mktemp("apache-kafka")
    with apache_kafka.apache_kafka(apache_kafka.OLDEST_JUDGE, folder, properties=SMALL_SEGMENTS) as bootstrap:
        yield bootstrap, folder / "logs"
