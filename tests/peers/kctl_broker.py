"""A kctl broker as a process started by `kctl broker start`, which can be killed and restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.peers import probe
from tests.peers.process import KctlProcess, Process

START_TIMEOUT_S = 60

OWN_PROGRAM = ("env",)
"""For tests that are about the command line or the start of the process."""

TEST_PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "250",
}


class KctlBroker:
    """A started broker: its address, its id, and the ways to stop it."""

    def __init__(
        self,
        words: Sequence[str],
        bootstrap: str,
        data_dir: Path,
        *,
        run_by: Sequence[str] = (),
        network: Path | None = None,
    ) -> None:
        """`words` are the arguments of kctl; `run_by` as for `kctl_broker`, and `network` as for `KctlProcess`."""
        self._words = words
        self._run_by = run_by
        self._network = network
        self.bootstrap = bootstrap
        self.data_dir = data_dir
        self.log = data_dir.with_name(f"{data_dir.name}.output")
        self.start()

    def start(self) -> None:
        """Starts the process and returns when topics can be created; raises with the end of its log if that fails."""
        self._process = self._started()
        try:
            self._process.wait_until(lambda: probe.has_controller(self.bootstrap), timeout_s=START_TIMEOUT_S)
            self._process.wait_until((self.data_dir / "broker.json").exists, timeout_s=START_TIMEOUT_S)
        except BaseException:
            self._process.stop(signal.SIGKILL)
            raise

    def _started(self) -> Process:
        if self._run_by:
            command = [*self._run_by, sys.executable, "-m", "kctl", *self._words]
            return Process("kctl broker", command, log=self.log)
        return KctlProcess("kctl broker", self._words, log=self.log, network=self._network)

    def restart(self) -> None:
        """A clean shutdown, if it runs, and a start with the same data, port and properties."""
        if self.is_running:
            self.stop()
        self.start()

    def stop(self) -> None:
        """SIGTERM; raises AssertionError unless the broker shuts down with exit status 0."""
        status = self._process.stop(signal.SIGTERM)
        assert status == 0, f"the broker's clean shutdown ended with {status}:\n{self.log_text}"

    def kill9(self) -> None:
        """SIGKILL: no flush, no clean shutdown marker, and the ZooKeeper session stays until it expires."""
        self._process.stop(signal.SIGKILL)

    def halt(self) -> None:
        """SIGSTOP: the process stands still until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def logs_dir(self) -> Path:
        """Its log directory: one folder for each partition."""
        return self.data_dir / "logs"

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log_text(self) -> str:
        """Its output, over all its starts."""
        return self._process.log_text


@contextlib.contextmanager
def kctl_broker(
    data_dir: Path,
    *,
    properties: Mapping[str, str] | None = None,
    zookeeper: str | None = None,
    port: int | None = None,
    run_by: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[KctlBroker]:
    """A serving broker; without `zookeeper` (a connect string) it runs on its embedded one.

    With the property `listeners`, `port` is that of a listener without TLS and SASL.

    `run_by` is a command that runs the command line given to it, under a resource limit for example; `OWN_PROGRAM` does
    nothing else.  Without it, the process is forked from one that has imported kctl.  `options` are more options of the
    command.
    """
    port = port or probe.free_port()
    words = ["broker", "start", "--data-dir", str(data_dir), *options]
    if "listeners" not in (properties or {}):
        words += ["--port", str(port)]
    if zookeeper:
        words += ["--zookeeper", zookeeper]
    for name, value in {**TEST_PROPERTIES, **(properties or {})}.items():
        words += ["-o", f"{name}={value}"]
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    broker = KctlBroker(words, f"127.0.0.1:{port}", data_dir, run_by=run_by)
    try:
        yield broker
    except BaseException:
        broker.kill9()
        raise
    if broker.is_running:
        broker.stop()
