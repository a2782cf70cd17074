"""Several brokers and a ZooKeeper on this machine, each a process of its own, for development.

DIR/cluster.json    the layout: brokers, ports, ZooKeeper, properties; the next start reads it
DIR/security/       with --secure: certificates, the user and client properties, see `secure_setup`
DIR/broker-N/       the data folder of broker N, see `data_folder`
DIR/zookeeper/      data of the ZooKeeper, unless an external one is used
DIR/zookeeper.lock  locked while the ZooKeeper runs, since the process inherits the lock; contains its process id
DIR/zookeeper.out   its output
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.config.broker import SINGLE_BROKER_PROPERTIES
from kctl.errors import KctlError, UsageError
from kctl.output.log_lines import LogFormat
from kctl.server.process.data_folder import DataFolder
from kctl.server.process.starting import StartOptions, start_detached
from kctl.system.operating_system import module_command

if TYPE_CHECKING:
    from kctl.server.process.secure_setup import SecureSetup

LOOPBACK = "127.0.0.1"
BROKERS = 3
PORT = 9092
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.05
_PORT_MAX = 65_535

_OWN = frozenset({"broker.id", "listeners", "advertised.listeners", "zookeeper.connect", "log.dir", "log.dirs"})
"""Properties that differ between brokers, or that the cluster sets."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a cluster.  Broker N listens at ports[N]; zookeeper is None if the cluster starts its own."""

    ports: tuple[int, ...]
    zookeeper: str | None
    zookeeper_port: int = 0
    overrides: Mapping[str, str] = field(default_factory=dict)
    is_secure: bool = False
    """Whether the brokers use TLS and SCRAM, with the setup in the folder."""

    @property
    def connect(self) -> str:
        """The ZooKeeper connection string."""
        return self.zookeeper or f"{LOOPBACK}:{self.zookeeper_port}"

    def properties_of(self, broker_id: int, secure: SecureSetup | None = None) -> dict[str, str]:
        """Return all properties of one broker: required ones, defaults for the number of brokers, and overrides."""
        port = self.ports[broker_id]
        security = {} if secure is None else secure.broker_properties(port)
        return {
            **defaults_for(len(self.ports)),
            **security,
            **self.overrides,
            "broker.id": str(broker_id),
            "listeners": security.get("listeners", f"PLAINTEXT://{LOOPBACK}:{port}"),
            "zookeeper.connect": self.connect,
        }


@dataclass(frozen=True, slots=True)
class Member:
    """The state of one process of the cluster; an external ZooKeeper is `external`."""

    name: str
    state: str
    address: str | None
    pid: int | None
    data_dir: Path | None
    problem: str | None = None

    @property
    def is_well(self) -> bool:
        """True if it is serving."""
        return self.state in {"serving", "external"}


def defaults_for(brokers: int) -> dict[str, str]:
    """Return the default properties for this number of brokers; with several, topics survive the loss of one broker."""
    replicas = str(min(3, brokers))
    return {
        **SINGLE_BROKER_PROPERTIES,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
        "controlled.shutdown.retry.backoff.ms": "500",
        "group.initial.rebalance.delay.ms": "500",  # A member's first requests take longer with several brokers.
    }


def settle(
    before: Layout | None,
    *,
    brokers: int | None,
    port: int | None,
    zookeeper: str | None,
    overrides: Mapping[str, str] | None,
    is_secure: bool = False,
) -> Layout:
    """Return the layout from the options, with `before` for options that are None; port 0 means a free port.

    Brokers can be added to a cluster, but not removed, and its ZooKeeper and its security cannot be changed.

    Pure.  Raises UsageError.
    """
    for name in sorted(_OWN & (overrides or {}).keys()):
        raise UsageError(f"-o {name}: set by the cluster for each broker; see --port and --zookeeper")
    known = len(before.ports) if before else 0
    count = brokers if brokers is not None else known or BROKERS
    if count < 1:
        raise UsageError(f"--brokers {count}: must be at least 1")
    if count < known:
        raise UsageError(f"--brokers {count}: the cluster has {known} brokers, which cannot be removed")
    if before and zookeeper is not None and zookeeper != before.zookeeper:
        raise UsageError(f"--zookeeper {zookeeper}: the cluster uses {before.zookeeper or 'its own ZooKeeper'}")
    if before and is_secure and not before.is_secure:
        raise UsageError("--secure: the cluster was started without it; use another --data-dir")
    if before and port is not None and (port or before.ports[0]) != before.ports[0]:
        raise UsageError(f"--port {port}: the brokers of the cluster use the ports from {before.ports[0]}")
    first = before.ports[0] if before else PORT if port is None else port
    if not 0 <= first <= _PORT_MAX - count + 1:
        raise UsageError(f"--port {first}: {count} brokers need ports below {_PORT_MAX + 1}")
    ports = list(before.ports) if before else []
    while len(ports) < count:
        is_any = ports[-1] == 0 if ports else first == 0
        ports.append(0 if is_any else ports[-1] + 1 if ports else first)
    return Layout(
        ports=tuple(ports),
        zookeeper=before.zookeeper if before else zookeeper,
        zookeeper_port=before.zookeeper_port if before else 0,
        overrides=overrides if overrides is not None else before.overrides if before else {},
        is_secure=before.is_secure if before else is_secure,
    )


class DevCluster:
    """The cluster in one folder.  Owner: one command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def layout(self) -> Layout | None:
        """Return the layout of an earlier start; None if there was none.  Raises KctlError."""
        try:
            document = json.loads(self._layout_path.read_text(encoding="utf-8"))
            return Layout(**{**document, "ports": tuple(document["ports"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise KctlError(f"{self._layout_path} cannot be read: {error}") from None

    def start(
        self,
        layout: Layout,
        log_format: LogFormat,
        *,
        on_warning: Callable[[str], None],
        stop_with: int | None = None,
    ) -> list[Member]:
        """Start the processes that do not run; a broker that fails to start has a problem, the others keep running.

        They stop at the end of the process `stop_with`, if it is given.

        Each warning is passed to `on_warning` once.  Raises KctlError if the folder or the ZooKeeper cannot be used.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KctlError(f"{self.path} cannot be used: {error.strerror}") from None
        layout = self._with_ports(layout)
        self._layout_path.write_text(json.dumps(asdict(layout)) + "\n", encoding="utf-8")
        secure = self.secure_setup(layout)
        if layout.zookeeper is None:
            self._start_zookeeper(layout.zookeeper_port, log_format, stop_with)
        if secure is not None:
            self._secure(layout, secure)
        warnings: list[str] = []
        with ThreadPoolExecutor(len(layout.ports)) as starters:
            starting = (
                starters.submit(self._start_broker, layout, number, log_format, warnings.append, stop_with)
                for number in range(len(layout.ports))
            )
            problems = [start.result() for start in list(starting)]
        for warning in dict.fromkeys(warnings):
            on_warning(warning)
        zookeeper, *brokers = self.members(layout)
        return [zookeeper, *(replace(broker, problem=why) for broker, why in zip(brokers, problems, strict=True))]

    def secure_setup(self, layout: Layout) -> SecureSetup | None:
        """Return the certificates and the user, made if they are not there; None without --secure.

        Raises KctlError.
        """
        if not layout.is_secure:
            return None
        from kctl.server.process.secure_setup import prepare  # noqa: PLC0415 - imports cryptography

        return prepare(self.path.absolute() / "security")

    def members(self, layout: Layout) -> list[Member]:
        """Return the state of the ZooKeeper and the brokers."""
        return [self._zookeeper(layout), *(self._broker(layout, number) for number in range(len(layout.ports)))]

    def stop(self, layout: Layout) -> list[Member]:
        """Stop the brokers one after the other, each with a controlled shutdown, then the ZooKeeper."""
        stopped = []
        for number in range(len(layout.ports)):
            problem = self._stop_broker(number)
            stopped.append(replace(self._broker(layout, number), problem=problem))
        problem = None
        if layout.zookeeper is None and not any(broker.problem for broker in stopped):
            problem = self._stop_zookeeper()
        return [replace(self._zookeeper(layout), problem=problem), *stopped]

    def _secure(self, layout: Layout, secure: SecureSetup) -> None:
        """Store the user in ZooKeeper, unless a broker runs already, and write the client properties."""
        from kctl.config.dynamic import ConfigView  # noqa: PLC0415 - other verbs do without
        from kctl.server.process.host import store_user  # noqa: PLC0415 - the whole server

        if not any(self._folder(number).running() for number in range(len(layout.ports))):
            configs = ConfigView(layout.properties_of(0, secure))
            asyncio.run(store_user(layout.connect, configs, *secure.user()))
        secure.write_client_files(",".join(f"{LOOPBACK}:{port}" for port in layout.ports))

    def restart(self, layout: Layout, number: int, log_format: LogFormat, *, on_warning: Callable[[str], None]) -> None:
        """Stop one broker with a controlled shutdown and start it; return when it serves.  Raises KctlError."""
        running = self._folder(number).running()
        stop_with = None if running is None else running.stop_with
        problem = self._stop_broker(number) or self._start_broker(layout, number, log_format, on_warning, stop_with)
        if problem is not None:
            raise KctlError(problem)

    def _stop_broker(self, number: int) -> str | None:
        """Stop a broker, if it runs; return None, or why it still runs."""
        folder = self._folder(number)
        running = folder.running()
        if running is None:
            return f"broker {number} is starting or stopping; try again" if folder.is_locked() else None
        os.kill(running.pid, signal.SIGTERM)
        if _wait_until(lambda: not folder.is_locked(), STOP_TIMEOUT_S):
            return None
        return f"broker {number} (process {running.pid}) has not stopped in {STOP_TIMEOUT_S:.0f} s"

    def _start_broker(
        self,
        layout: Layout,
        number: int,
        log_format: LogFormat,
        on_warning: Callable[[str], None],
        stop_with: int | None = None,
    ) -> str | None:
        """Start a broker; return None, or why it does not run."""
        folder = self._folder(number)
        if folder.running() is not None:
            return None
        properties = layout.properties_of(number, self.secure_setup(layout))
        options = StartOptions(
            folder=folder, file_properties={}, overrides=properties, log_format=log_format, stop_with=stop_with
        )
        try:
            start_detached(options, on_warning=on_warning)
        except KctlError as error:
            return f"broker {number}: {error}"
        return None

    def _start_zookeeper(self, port: int, log_format: LogFormat, stop_with: int | None) -> None:
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return  # it runs
        if _accepts(port):
            os.close(fd)
            raise KctlError(f"zookeeper: port {port} of {LOOPBACK}, which the cluster has chosen for it, is in use")
        try:
            command = [*module_command("kctl"), "broker", "zookeeper-start", "--port", str(port)]
            command += ["--data-dir", str(self.path / "zookeeper"), "--log-format", log_format]
            command += [] if stop_with is None else ["--stop-with", str(stop_with)]
            with self._output_path.open("ab") as output:
                start = output.tell()
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=(fd,),
                )
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{process.pid}\n".encode(), 0)
        finally:
            os.close(fd)
        serves = _wait_until(lambda: process.poll() is not None or _accepts(port), START_TIMEOUT_S)
        if process.poll() is not None:
            text = self._output_path.read_bytes()[start:].decode(errors="replace")
            messages = [line.removeprefix("kctl: ") for line in text.splitlines() if line.startswith("kctl: ")]
            raise KctlError(f"zookeeper: {' '.join(messages) or f'ended with status {process.returncode}'}")
        process.returncode = 0  # It keeps running; suppresses the warning about a child that was not waited for.
        if not serves:
            raise KctlError(f"zookeeper: does not serve after {START_TIMEOUT_S:.0f} s; see {self._output_path}")

    def _stop_zookeeper(self) -> str | None:
        pid = self._zookeeper_pid()
        if pid is None:
            return None
        os.kill(pid, signal.SIGTERM)
        if _wait_until(lambda: self._zookeeper_pid() is None, STOP_TIMEOUT_S):
            return None
        return f"zookeeper (process {pid}) has not stopped in {STOP_TIMEOUT_S:.0f} s"

    def _zookeeper_pid(self) -> int | None:
        """Return the process that holds the lock; None if there is none."""
        try:
            fd = os.open(self._lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return int(os.pread(fd, 32, 0) or b"0") or None
        finally:
            os.close(fd)
        return None

    def _zookeeper(self, layout: Layout) -> Member:
        if layout.zookeeper is not None:
            return Member("zookeeper", "external", layout.zookeeper, None, None)
        pid = self._zookeeper_pid()
        state = "stopped" if pid is None else "serving" if _accepts(layout.zookeeper_port) else "starting"
        return Member("zookeeper", state, layout.connect, pid, self.path / "zookeeper")

    def _broker(self, layout: Layout, number: int) -> Member:
        folder = self._folder(number)
        running = folder.running()
        state = "serving" if running else "starting" if folder.is_locked() else "stopped"
        address = running.address if running else f"{LOOPBACK}:{layout.ports[number]}"
        return Member(f"broker-{number}", state, address, running.pid if running else None, folder.path)

    def _with_ports(self, layout: Layout) -> Layout:
        """Replace port 0 by free ports."""
        count = layout.ports.count(0) + (layout.zookeeper is None and layout.zookeeper_port == 0)
        free = _free_ports(count)
        ports = tuple(port or free.pop() for port in layout.ports)
        return replace(layout, ports=ports, zookeeper_port=free.pop() if free else layout.zookeeper_port)

    def _folder(self, number: int) -> DataFolder:
        return DataFolder(self.path / f"broker-{number}")

    @property
    def _layout_path(self) -> Path:
        return self.path / "cluster.json"

    @property
    def _lock_path(self) -> Path:
        return self.path / "zookeeper.lock"

    @property
    def _output_path(self) -> Path:
        return self.path / "zookeeper.out"


def _free_ports(count: int) -> list[int]:
    """Free ports; all are bound until the last is known, so that they are distinct."""
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _wait_until(claim: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
