"""An Apache Kafka broker starts on kctl's data directory and serves everything, and vice versa.

One ZooKeeper keeps the cluster; one broker writes, ends cleanly or by kill -9, the other starts on a copy of the data,
finds everything, writes more and ends the same way; then the first starts on what the other has left.  After a clean
end neither has anything to repair.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kctl.zookeeper import paths
from tests.integration.jvm.broker_data import PROPERTIES, BrokerData
from tests.peers import apache_zookeeper
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, apache_kafka_process, why_not
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

BROKER_ID = 3
SETTINGS = {**PROPERTIES, "broker.id": str(BROKER_ID), "zookeeper.connection.timeout.ms": "60000"}
SESSION_TIMEOUT_MS = {"stopped": 18_000, "killed": 4_000}
"""Only the sessions of killed brokers are waited for; a shorter timeout could expire sessions of running ones."""
OLD_ON_EMBEDDED = (OLDEST_JUDGE, "embedded-zookeeper")
NEW_ON_APACHE = (LAST_WITH_ZOOKEEPER, "apache-zookeeper")

COMPLAINT = re.compile(r" (?:WARN|WARNING|ERROR|FATAL) |Traceback|Recovering unflushed segment|unclean shutdown")
NATURAL = re.compile(
    r"No meta\.properties file under dir"  # at its first start
    r"|NetworkClient|kafka\.controller\.RequestSendThread"  # its controller connects to the starting broker
    r"|message\.format\.version|incompatible message format"  # of the topic with an old message.format.version
)


class Places:
    """The data directory and its current broker: each broker gets a copy of the previous one's data."""

    def __init__(self, folder: Path, connect: str, version: str, end: str) -> None:
        self.data = BrokerData(deletes_records=end == "stopped")
        self._folder = folder
        self._connect = connect
        self._version = version
        self._is_killed = end == "killed"
        self._settings = SETTINGS | {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS[end])}
        self._count = 0
        self._last: Path | None = None

    @contextmanager
    def ours(self) -> Iterator[str]:
        """kctl's broker; yields its address, and stops it.  After a clean shutdown it must not log warnings."""
        data = self._copy("ours")
        with kctl_broker(data, properties=self._settings, zookeeper=self._connect) as broker:
            yield broker.bootstrap
            self._check_complaints(broker.log_text)
            self._end(broker.kill9, broker.stop)

    @contextmanager
    def theirs(self) -> Iterator[str]:
        """Apache Kafka's broker, likewise."""
        data = self._copy("theirs")
        started = apache_kafka_process(self._version, data, zookeeper=self._connect, properties=self._settings)
        with started as (bootstrap, process):
            yield bootstrap
            self._check_complaints(process.log_text)
            self._end(lambda: process.stop(signal.SIGKILL), process.stop)

    def _copy(self, whose: str) -> Path:
        place = self._folder / f"{self._count}-{whose}"
        if self._last is not None:
            shutil.copytree(self._last / "logs", place / "logs")
        self._count += 1
        self._last = place
        return place

    def _check_complaints(self, output: str) -> None:
        if not self._is_killed:
            complaints = [line for line in output.splitlines() if COMPLAINT.search(line) and not NATURAL.search(line)]
            assert not complaints, "\n".join(complaints)

    def _end(self, kill: Callable[[], object], stop: Callable[[], object]) -> None:
        if self._is_killed:
            kill()
        else:
            stop()
        _wait_until_forgotten(self._connect)


def _wait_until_forgotten(connect: str) -> None:
    """Waits until ZooKeeper has no node of the broker: Apache Kafka does not start while that of an older session
    exists.
    """
    client = KazooClient(connect)
    client.start(30)
    try:
        for path in (paths.broker(BROKER_ID), paths.CONTROLLER):
            wait_until(lambda: client.exists(path) is None, what=f"the end of {path}", timeout_s=60)  # noqa: B023 - called here
    finally:
        client.stop()
        client.close()


@contextmanager
def _zookeeper(coordination: str, folder: Path) -> Iterator[str]:
    if reason := why_not() or apache_zookeeper.why_not():
        pytest.skip(reason)
    if coordination == "apache-zookeeper":
        with apache_zookeeper.apache_zookeeper(folder) as connect:
            yield connect
    else:
        with embedded_zookeeper(folder) as server:
            yield server.connect


@pytest.mark.parametrize(
    ("version", "coordination", "end"),
    [pytest.param(*OLD_ON_EMBEDDED, "stopped", marks=pytest.mark.matrix), (*NEW_ON_APACHE, "killed")],
)
def test_apache_kafka_takes_over_our_data_and_kctl_takes_it_back(
    version: str, coordination: str, end: str, tmp_path: Path
) -> None:
    with _zookeeper(coordination, tmp_path / "zookeeper") as connect:
        places = Places(tmp_path, connect, version, end)
        data = places.data
        with places.ours() as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
            data.check(bootstrap)
        with places.theirs() as bootstrap:
            data.check(bootstrap)
            data.write(bootstrap)
        with places.ours() as bootstrap:
            data.check(bootstrap)


@pytest.mark.parametrize(
    ("version", "coordination", "end"),
    [(*OLD_ON_EMBEDDED, "killed"), pytest.param(*NEW_ON_APACHE, "stopped", marks=pytest.mark.matrix)],
)
def test_kctl_takes_over_apache_kafkas_data_and_apache_kafka_takes_it_back(
    version: str, coordination: str, end: str, tmp_path: Path
) -> None:
    with _zookeeper(coordination, tmp_path / "zookeeper") as connect:
        places = Places(tmp_path, connect, version, end)
        data = places.data
        with places.theirs() as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
        with places.ours() as bootstrap:
            data.check(bootstrap)
            data.write(bootstrap)
        with places.theirs() as bootstrap:
            data.check(bootstrap)
