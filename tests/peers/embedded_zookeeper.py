"""The embedded ZooKeeper as a process started by `kctl broker zookeeper-start`, which can be killed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.peers import probe
from tests.peers.process import KctlProcess

START_TIMEOUT_S = 60


class EmbeddedZooKeeperProcess:
    """The server: its address, and methods to stop and restart it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = probe.free_port()
        self.connect = f"127.0.0.1:{self.port}"
        self.log = data_dir.with_name(f"{data_dir.name}.output")
        self._process: KctlProcess | None = None

    def start(self) -> None:
        words = ["broker", "zookeeper-start", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        self._process = KctlProcess("kctl zookeeper", words, log=self.log)
        self._process.wait_until(lambda: probe.accepts(self.connect), timeout_s=START_TIMEOUT_S)

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """The exit status; negative: the signal that ended it."""
        assert self._process is not None
        return self._process.stop(signal_number)

    def kill9(self) -> None:
        self.stop(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def embedded_zookeeper(data_dir: Path) -> Iterator[EmbeddedZooKeeperProcess]:
    """Serving in the block, and ended after it."""
    server = EmbeddedZooKeeperProcess(data_dir)
    try:
        server.start()
        yield server
    finally:
        server.stop()
