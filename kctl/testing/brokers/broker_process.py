"""Runs a broker in a separate process for tests, which can stop, kill and restart it.

Runs `kctl broker start` with the embedded ZooKeeper on a free port of the loopback address, without Java or Docker.
The broker stops when the process that has started it ends, also if that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

from kctl.config.properties import format_properties
from kctl.server.process.starting import TEST_CONTROL
from kctl.system.operating_system import module_command
from kctl.testing.brokers.client_settings import ClientSettings
from kctl.testing.brokers.control import Control, ControlFailed
from kctl.testing.brokers.faults import BrokerClock, BrokerFaults
from kctl.testing.brokers.security import LOOPBACK, ListenerSecurity, listener_security, write_private
from kctl.testing.brokers.snapshot import Snapshot
from kctl.testing.brokers.state import BrokerState
from kctl.testing.brokers.warm_process import ForkedProcess, WarmProcess, warm_process

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.01
_TAIL_LINES = 30
_WARNING = "kctl: warning: "

Started = subprocess.Popen[bytes] | ForkedProcess

TEST_PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
"""Properties that make tests faster: fewer internal partitions, no rebalance delay."""


class BrokerFailed(RuntimeError):
    """The broker did not start or stop; the text ends with the last lines of its output."""


class BrokerOptions(TypedDict, total=False):
    """The keyword arguments of brokers."""

    port: int | None
    """The port of the first listener; 0, the default, is a free one."""
    security: str | None
    """The security of a listener, which is beside one without: see docs/testing/security.md."""
    plaintext: bool
    """With `security`: False for a broker that has no listener without it."""
    unsigned_tokens: bool
    """With security="oauthbearer": the broker accepts tokens without a signature too; includes `control`."""
    secure: bool
    """TLS, SCRAM, an authorizer and the super user `admin`, as `kctl broker start --secure`."""
    schema_registry: bool
    """A schema registry at `schema_registry_url`."""
    control: bool
    """The methods of BrokerFaults can be used."""
    max_replication_factor: int | None
    """Topics that clients create with more replicas get so many; includes `control`."""
    warm: WarmProcess | None
    """The process from which that of the broker is forked."""


_OPTIONS = tuple(BrokerOptions.__annotations__)


class BrokerProcess(BrokerFaults, ClientSettings, BrokerState):
    """A broker process; the fixtures return it started.

    `bootstrap_servers`, `listeners` and the contents of `data_dir` stay the same over restarts.
    """

    def __init__(
        self, data_dir: Path, properties: Mapping[str, str] | None = None, **options: Unpack[BrokerOptions]
    ) -> None:
        """`properties` are Kafka properties by name; port 0 selects a free port, also in `listeners`.

        Raises TypeError for an unknown option, and ValueError for options that contradict each other.
        """
        if unknown := options.keys() - set(_OPTIONS):
            raise TypeError(f"{min(unknown)} is not an argument of brokers; they are {', '.join(_OPTIONS)}")
        self.data_dir = data_dir
        self.properties = {**TEST_PROPERTIES, **(properties or {})}
        security, unsigned_tokens = options.get("security"), options.get("unsigned_tokens", False)
        self.secure = options.get("secure", False)
        if "listeners" in self.properties and options.get("port") is not None:
            raise ValueError("port and listeners cannot be combined: give the port in listeners")
        if security is not None and (self.secure or "listeners" in self.properties):
            raise ValueError("security sets up the listeners: it cannot be combined with secure and listeners")
        if security is None and not options.get("plaintext", True):
            raise ValueError("plaintext=False needs security, which sets up the other listener")
        if unsigned_tokens and not (security or "").startswith("oauthbearer"):
            raise ValueError('unsigned_tokens needs security="oauthbearer" or "oauthbearer-tls"')
        self.host = LOOPBACK
        self.port = options.get("port") or 0
        self.listeners: dict[str, str] = {}
        """host:port by the name of the listener, as they are advertised."""
        self._security: ListenerSecurity | None = None
        self._sets_up_listeners = security is not None
        folder = data_dir.absolute() / "security"
        if security is not None:
            self._security = listener_security(security, folder, has_plaintext=options.get("plaintext", True))
            self.properties["listeners"] = self._security.listeners(self.port)
        elif self.secure:
            self._security = ListenerSecurity(folder)
        self.clock = BrokerClock(self.ask)
        self.schema_registry_url: str | None = None
        """With `schema_registry`, from the first start; the same after a restart."""
        self._has_registry = options.get("schema_registry", False)
        self.max_replication_factor = options.get("max_replication_factor")
        self._accepts_unsigned_tokens = unsigned_tokens
        has_control = options.get("control", False) or unsigned_tokens or self.max_replication_factor is not None
        self._control = Control() if has_control else None
        self._warm = options.get("warm")
        self._process: Started | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the first listener, for clients."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def secure_bootstrap_servers(self) -> str:
        """host:port of the secured listener; that of the first one if there is no other."""
        return self.listeners.get(self._secured().protocol, self.bootstrap_servers)

    @property
    def listener_security(self) -> ListenerSecurity | None:
        """The secured listener; None without one."""
        return self._security

    @property
    def client_properties_file(self) -> Path:
        """The file with `client_properties`, for --command-config and Java clients since Kafka 2.7."""
        return self.data_dir / "client.properties"

    @property
    def java_properties_file(self) -> Path:
        """The file with `java_properties`, for all Java clients."""
        return self.data_dir / "client-java.properties"

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

    @property
    def output_bytes(self) -> int:
        """The size of the output until now."""
        return self._output_path.stat().st_size if self._output_path.exists() else 0

    def output_since(self, position: int) -> str:
        """Return the output after so many bytes, at most the last MiB."""
        if not self._output_path.exists():
            return ""
        with self._output_path.open("rb") as output:
            output.seek(max(position, self.output_bytes - (1 << 20)))
            return output.read().decode(errors="replace")

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker and return when it serves.  Raises BrokerFailed."""
        assert not self.is_running, "the broker is already running"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        words = ["broker", "start", "--data-dir", str(self.data_dir), "--stop-with", str(os.getpid())]
        if "listeners" not in self.properties:
            words += ["--port", str(self.port)]
        if self._security is not None:
            words.append("--secure")
        if self._sets_up_listeners:
            self._secured().prepare()
            words += ["--config", str(self._secured().write_broker_properties())]
        if self._has_registry:
            port = urlsplit(self.schema_registry_url or "").port or 0
            words += ["--schema-registry-port", str(port)]
        for name, value in self.properties.items():
            words += ["-o", f"{name}={value}"]
        before = len(self.output)
        environment = {} if self._control is None else {TEST_CONTROL: str(self._control.path)}
        self._process = _run(words, self._output_path, self._warm, environment)
        try:
            self._take(self._wait_until_announced(self._process, timeout_s))
            if self._control is not None:
                self._seen_requests = 0
                self.clock.restore()
                if self.max_replication_factor is not None:
                    self.ask("cap_replication_factor", maximum=self.max_replication_factor)
                if self._accepts_unsigned_tokens:
                    self.ask("accept_unsigned_tokens")
        except BaseException:
            self.kill()
            raise
        for line in self.output[before:].splitlines():
            if line.startswith(_WARNING):  # A property that has no effect, such as a misspelled one.
                warnings.warn(f"kctl broker: {line.removeprefix(_WARNING)}", stacklevel=2)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut the broker down cleanly (SIGTERM), if it is running.  Raises BrokerFailed."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # It may be paused.
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"the broker has not stopped in {timeout_s:.0f} s:\n{self._tail()}") from None
        finally:
            self._close_control()
        if status != 0:
            raise BrokerFailed(f"the broker ended with status {status}:\n{self._tail()}")

    def kill(self) -> None:
        """Kill the broker (SIGKILL), if it is running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        self._close_control()

    def pause(self) -> None:
        """Stop the process without ending it (SIGSTOP): its connections stay open, and nothing is answered."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop the broker, if it is running, and start it on the same port with the same data."""
        self.stop()
        self.start()

    def snapshot(self) -> Snapshot:
        """Return a copy of the data as it is now, of a broker that runs or is stopped; see `restore`.

        Raises ValueError for a broker with data outside of its data folder.
        """
        if others := {"log.dir", "log.dirs", "zookeeper.connect"} & self.properties.keys():
            raise ValueError(f"a broker with {min(others)} has data outside of its folder: it has no snapshots")
        if not self.is_running:
            return Snapshot(self.data_dir)
        self._warm = self._warm or warm_process()
        self._warm.prepare()  # For `restore`, meanwhile.
        self._pause_now()
        try:
            return Snapshot(self.data_dir)
        finally:
            self.resume()

    def restore(self, snapshot: Snapshot) -> None:
        """Replace all data by those of a snapshot of this broker; a broker that runs is killed, and started again."""
        was_running = self.is_running
        self.kill()
        snapshot.restore(self.data_dir)
        if was_running:
            self.start()

    def _pause_now(self) -> None:
        """Stop the process, and return when it is stopped or has ended."""
        if isinstance(self._process, ForkedProcess):
            assert self._warm is not None
            self._warm.pause(self._process)
            return
        self.pause()
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Send a command to the broker; see kctl/server/process/test_control.

        Raises ValueError if it is refused, ControlFailed if the broker does not run or was not started with `control`.
        """
        if self._control is None:
            raise ControlFailed(f"{command}: the broker needs control=True")
        return self._control.ask(command, **arguments)

    def _close_control(self) -> None:
        if self._control is not None:
            self._control.close()

    def _take(self, announced: Mapping[str, Any]) -> None:
        """Keep the addresses: the next start uses the same ports."""
        self.host, self.port, self.listeners = announced["host"], announced["port"], dict(announced["listeners"])
        if (listeners := self.properties.get("listeners")) is not None:
            self.properties["listeners"] = ",".join(map(self._with_port, listeners.split(",")))
        write_private(self.client_properties_file, format_properties(self.client_properties))
        write_private(self.java_properties_file, format_properties(self.java_properties))

    def _with_port(self, listener: str) -> str:
        """`NAME://HOST:0` with the port that the broker has chosen."""
        name, _, _ = listener.strip().partition("://")
        bound, _, port = listener.rpartition(":")
        address = self.listeners.get(name.upper(), "")
        return f"{bound}:{address.rpartition(':')[2]}" if port.strip() == "0" and address else listener

    def _wait_until_announced(self, process: Started, timeout_s: float) -> dict[str, Any]:
        def is_announced() -> bool:
            if process.poll() is not None:
                raise BrokerFailed(f"the broker ended with status {process.returncode}:\n{self._tail()}")
            is_complete = not self._has_registry or self._registry_file.exists()
            return self._announced().get("pid") == process.pid and is_complete

        if not wait_until(is_announced, timeout_s):
            raise BrokerFailed(f"the broker does not serve after {timeout_s:.0f} s:\n{self._tail()}")
        if self._has_registry:
            self.schema_registry_url = json.loads(self._registry_file.read_text(encoding="utf-8"))["url"]
        return self._announced()

    @property
    def _registry_file(self) -> Path:
        return self.data_dir / "schema-registry.json"

    def _announced(self) -> dict[str, Any]:
        """Return the status that a broker of this folder, possibly an earlier one, wrote when it started to serve."""
        try:
            announced = json.loads((self.data_dir / "broker.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return announced if isinstance(announced, dict) else {}

    @property
    def _output_path(self) -> Path:
        return self.data_dir / "test-output.txt"

    def _tail(self) -> str:
        return _tail(self.output)


class ZooKeeperProcess:
    """A single-node ZooKeeper service in a separate process, for the brokers of a test."""

    def __init__(self, data_dir: Path, *, warm: WarmProcess | None = None) -> None:
        """Take no port yet; the process is forked from `warm`, if that is given."""
        self.data_dir = data_dir
        self.port = 0
        """A free port is chosen at the first start, and stays."""
        self._warm = warm
        self._process: Started | None = None

    @property
    def address(self) -> str:
        """HOST:PORT for `zookeeper.connect`."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """True between `start` and the end of the process, whatever ended it."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the service and return when it accepts connections.  Raises BrokerFailed."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if not self.port:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.port = listener.getsockname()[1]
        words = ["broker", "zookeeper-start", "--port", str(self.port)]
        words += ["--data-dir", str(self.data_dir), "--stop-with", str(os.getpid())]
        process = self._process = _run(words, self._output_path, self._warm)

        def is_serving() -> bool:
            if process.poll() is not None:
                raise BrokerFailed(f"the ZooKeeper ended with status {process.returncode}:\n{self._tail()}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
            return False

        if not wait_until(is_serving, timeout_s):
            self.kill()
            raise BrokerFailed(f"the ZooKeeper does not serve after {timeout_s:.0f} s:\n{self._tail()}")

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the service (SIGTERM), if it is running."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill the service (SIGKILL), if it is running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @property
    def _output_path(self) -> Path:
        return self.data_dir / "test-output.txt"

    def _tail(self) -> str:
        return _tail(self._output_path.read_text(errors="replace"))


def _run(
    words: Sequence[str], output: Path, warm: WarmProcess | None, more: Mapping[str, str] | None = None
) -> Started:
    """Start `kctl WORDS`, with its output appended to a file, and with more environment variables."""
    environment = {**os.environ, **(more or {})}
    if warm is not None:
        return warm.start(words, output, environment)
    with output.open("ab") as stream:
        return subprocess.Popen(
            [*module_command("kctl"), *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )


def wait_until(claim: Callable[[], bool], timeout_s: float) -> bool:
    """Return True as soon as the claim holds, False if it does not within the time."""
    deadline_s = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-_TAIL_LINES:])
