"""A pytest plugin for kazoo's own test suite: its ensemble is one server of ours, which it may stop and start.

Loaded into the subprocess that `test_kazoo_suite` starts; KCTL_ZOOKEEPER_FOLDER is the data folder of the server.
"""

from __future__ import annotations

import os
from pathlib import Path

from kazoo.testing import harness

from tests.peers import leftovers
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess


class OneServer:
    """The interface of a managed server in kazoo's test harness."""

    def __init__(self, process: EmbeddedZooKeeperProcess) -> None:
        self._process = process
        self.address = process.connect
        self.client_port = process.port
        self.running = False

    def run(self) -> None:
        if not self.running:
            self._process.start()
            self.running = True

    def stop(self) -> None:
        if self.running:
            self._process.stop()
            self.running = False


class Ensemble(list[OneServer]):
    """The interface of a cluster in kazoo's test harness."""

    def start(self) -> None:
        for server in self:
            server.run()

    def stop(self) -> None:
        for server in self:
            server.stop()

    terminate = reset = stop

    def get_logs(self) -> list[str]:
        return []


ENSEMBLE = Ensemble([OneServer(EmbeddedZooKeeperProcess(Path(os.environ["KCTL_ZOOKEEPER_FOLDER"])))])


def pytest_configure() -> None:
    leftovers.end_with_this_process()
    ENSEMBLE.start()
    harness.get_global_cluster = lambda: ENSEMBLE


def pytest_unconfigure() -> None:
    ENSEMBLE.stop()
