"""Runs a broker in a separate process for tests, which can stop, kill and restart it.

Runs `kctl broker start` with the embedded ZooKeeper on a free port of the loopback address, without Java or Docker.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kctl.child_processes import module_command

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.01
_TAIL_LINES = 30

TEST_PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
"""Properties that make tests faster: fewer internal partitions, no rebalance delay."""


class BrokerFailed(RuntimeError):
    """The broker did not start or stop; the text ends with the last lines of its output."""


class BrokerProcess:
    """A broker process; the fixtures return it started.

    `bootstrap_servers` and the contents of `data_dir` stay the same over restarts.
    """

    def __init__(self, data_dir: Path, properties: Mapping[str, str] | None = None, *, port: int = 0) -> None:
        """`properties` are Kafka properties by name; port 0 selects a free port."""
        self.data_dir = data_dir
        self.properties = {**TEST_PROPERTIES, **(properties or {})}
        self.host = "127.0.0.1"
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port, for clients."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """True between `start` and the end of the process, whatever ended it."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id; only while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """Output of the broker, over all its starts."""
        return self._output_path.read_text(errors="replace") if self._output_path.exists() else ""

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the broker and returns when it serves.  Raises BrokerFailed."""
        assert not self.is_running, "the broker is already running"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [*module_command("kctl"), "broker", "start"]
        command += ["--data-dir", str(self.data_dir), "--port", str(self.port)]
        for name, value in self.properties.items():
            command += ["-o", f"{name}={value}"]
        with self._output_path.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self.port = self._wait_until_announced(self._process, timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shuts the broker down cleanly (SIGTERM), if it is running.  Raises BrokerFailed."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"the broker has not stopped in {timeout_s:.0f} s:\n{self._tail()}") from None
        if status != 0:
            raise BrokerFailed(f"the broker ended with status {status}:\n{self._tail()}")

    def kill(self) -> None:
        """Kills the broker (SIGKILL), if it is running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stops the broker, if it is running, and starts it on the same port with the same data."""
        self.stop()
        self.start()

    def _wait_until_announced(self, process: subprocess.Popen[bytes], timeout_s: float) -> int:
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            announced = self._announced()
            if announced.get("pid") == process.pid:
                return int(announced["port"])
            if process.poll() is not None:
                raise BrokerFailed(f"the broker ended with status {process.returncode}:\n{self._tail()}")
            time.sleep(_POLL_S)
        raise BrokerFailed(f"the broker does not serve after {timeout_s:.0f} s:\n{self._tail()}")

    def _announced(self) -> dict[str, Any]:
        """The status that a broker of this folder, possibly an earlier one, wrote when it started to serve."""
        try:
            announced = json.loads((self.data_dir / "broker.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return announced if isinstance(announced, dict) else {}

    @property
    def _output_path(self) -> Path:
        return self.data_dir / "test-output.txt"

    def _tail(self) -> str:
        return "\n".join(self.output.splitlines()[-_TAIL_LINES:])
