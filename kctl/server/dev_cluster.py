"""Several brokers and a coordination service on this machine, each a process of its own, for development.

DIR/cluster.json    the layout: brokers, ports, coordination, properties; the next start takes it up again
DIR/broker-N/       the data folder of broker N, see `data_folder`
DIR/zookeeper/      what the coordination service keeps, unless a real ensemble was named
DIR/zookeeper.lock  locked for as long as the service lives, since the process inherits the lock; holds its id
DIR/zookeeper.out   what it printed
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from kctl.config.broker import SINGLE_BROKER_PROPERTIES
from kctl.errors import KctlError, UsageError
from kctl.server.data_folder import DataFolder

LOOPBACK = "127.0.0.1"
BROKERS = 3
PORT = 9092
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.05
_PORT_MAX = 65_535

_OWN = frozenset({"broker.id", "listeners", "advertised.listeners", "zookeeper.connect", "log.dir", "log.dirs"})
"""What differs from broker to broker, or what the cluster decides."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a cluster is made of.  Broker N listens at ports[N]; zookeeper is None for a service of its own."""

    ports: tuple[int, ...]
    zookeeper: str | None
    zookeeper_port: int = 0
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def connect(self) -> str:
        return self.zookeeper or f"{LOOPBACK}:{self.zookeeper_port}"

    def properties_of(self, broker_id: int) -> dict[str, str]:
        """All properties of one broker: what it must have, what suits that many brokers, what was asked for."""
        return {
            **defaults_for(len(self.ports)),
            **self.overrides,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.ports[broker_id]}",
            "zookeeper.connect": self.connect,
        }


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster as it is now; a service that is not ours is `external`."""

    name: str
    state: str
    address: str | None
    pid: int | None
    data_dir: Path | None
    problem: str | None = None

    @property
    def is_well(self) -> bool:
        return self.state in {"serving", "external"}


def defaults_for(brokers: int) -> dict[str, str]:
    """Properties that suit so many brokers: a lone one's, and every topic survives the loss of one of several."""
    replicas = str(min(3, brokers))
    return {
        **SINGLE_BROKER_PROPERTIES,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "controlled.shutdown.retry.backoff.ms": "500",
        "group.initial.rebalance.delay.ms": "500",  # A member's first questions take longer with several brokers.
    }


def settle(
    before: Layout | None,
    *,
    brokers: int | None,
    port: int | None,
    zookeeper: str | None,
    overrides: Mapping[str, str] | None,
) -> Layout:
    """The layout that was asked for, where nothing was said that of `before`; port 0 stands for a free one.

    Brokers can be added to a cluster, but neither taken away nor given another coordination service.  Pure.  Raises
    UsageError.
    """
    for name in sorted(_OWN & (overrides or {}).keys()):
        raise UsageError(f"-o {name}: the brokers of a cluster get theirs by themselves; see --port and --zookeeper")
    known = len(before.ports) if before else 0
    count = brokers if brokers is not None else known or BROKERS
    if count < 1:
        raise UsageError(f"--brokers {count}: a cluster has at least one")
    if count < known:
        raise UsageError(f"--brokers {count}: the cluster has {known} already, and they hold data")
    if before and zookeeper is not None and zookeeper != before.zookeeper:
        raise UsageError(f"--zookeeper {zookeeper}: the cluster uses {before.zookeeper or 'a service of its own'}")
    if before and port is not None and (port or before.ports[0]) != before.ports[0]:
        raise UsageError(f"--port {port}: the cluster has its brokers from {before.ports[0]} on")
    first = before.ports[0] if before else PORT if port is None else port
    if not 0 <= first <= _PORT_MAX - count + 1:
        raise UsageError(f"--port {first}: no room for {count} brokers between 0 and {_PORT_MAX}")
    ports = list(before.ports) if before else []
    while len(ports) < count:
        is_any = ports[-1] == 0 if ports else first == 0
        ports.append(0 if is_any else ports[-1] + 1 if ports else first)
    return Layout(
        ports=tuple(ports),
        zookeeper=before.zookeeper if before else zookeeper,
        zookeeper_port=before.zookeeper_port if before else 0,
        overrides=overrides if overrides is not None else before.overrides if before else {},
    )


class DevCluster:
    """The cluster of one folder.  Owner: one command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def layout(self) -> Layout | None:
        """What was started here before; None when nothing was.  Raises KctlError."""
        try:
            document = json.loads(self._layout_path.read_text(encoding="utf-8"))
            return Layout(**{**document, "ports": tuple(document["ports"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise KctlError(f"{self._layout_path} cannot be read: {error}") from None

    def start(self, layout: Layout, *, on_warning: Callable[[str], None]) -> list[Member]:
        """Start what does not run yet; a broker that does not start has a problem, and the others stay.

        What several brokers warn of is told once.  Raises KctlError when the folder or the coordination service
        cannot be used.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KctlError(f"{self.path} cannot be used: {error.strerror}") from None
        layout = self._with_ports(layout)
        self._layout_path.write_text(json.dumps(asdict(layout)) + "\n", encoding="utf-8")
        if layout.zookeeper is None:
            self._start_zookeeper(layout.zookeeper_port)
        warnings: list[str] = []
        with ThreadPoolExecutor(len(layout.ports)) as starters:
            starting = (
                starters.submit(self._start_broker, layout, number, warnings.append)
                for number in range(len(layout.ports))
            )
            problems = [start.result() for start in list(starting)]
        for warning in dict.fromkeys(warnings):
            on_warning(warning)
        zookeeper, *brokers = self.members(layout)
        return [zookeeper, *(replace(one, problem=why) for one, why in zip(brokers, problems, strict=True))]

    def members(self, layout: Layout) -> list[Member]:
        """The coordination service and the brokers as they are."""
        return [self._zookeeper(layout), *(self._broker(layout, number) for number in range(len(layout.ports)))]

    def stop(self, layout: Layout) -> list[Member]:
        """Stop the brokers one after the other, each handing over what it leads, then the service."""
        stopped = []
        for number in range(len(layout.ports)):
            folder = self._folder(number)
            running = folder.running()
            problem = None
            if running is not None:
                os.kill(running.pid, signal.SIGTERM)
                if not _wait_until(lambda folder=folder: not folder.is_locked(), STOP_TIMEOUT_S):  # type: ignore[misc]
                    problem = f"broker {number} (process {running.pid}) has not stopped in {STOP_TIMEOUT_S:.0f} s"
            elif folder.is_locked():
                problem = f"broker {number} is starting or stopping; try again"
            stopped.append(replace(self._broker(layout, number), problem=problem))
        problem = None
        if layout.zookeeper is None and not any(one.problem for one in stopped):
            problem = self._stop_zookeeper()
        return [replace(self._zookeeper(layout), problem=problem), *stopped]

    def _start_broker(self, layout: Layout, number: int, on_warning: Callable[[str], None]) -> str | None:
        """None, or why the broker does not run."""
        folder = self._folder(number)
        if folder.running() is not None:
            return None
        from kctl.server.process import Wanted, start_detached  # noqa: PLC0415 - the whole server, if need be

        wanted = Wanted(folder=folder, file_properties={}, overrides=layout.properties_of(number))
        try:
            start_detached(wanted, on_warning=on_warning)
        except KctlError as error:
            return f"broker {number}: {error}"
        return None

    def _start_zookeeper(self, port: int) -> None:
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return  # it runs
        try:
            command = [sys.executable, "-m", "kctl", "zookeeper", "start", "--port", str(port)]
            command += ["--data-dir", str(self.path / "zookeeper")]
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
            said = self._output_path.read_bytes()[start:].decode(errors="replace")
            words = [line.removeprefix("kctl: ") for line in said.splitlines() if line.startswith("kctl: ")]
            raise KctlError(f"zookeeper: {' '.join(words) or f'ended with status {process.returncode}'}")
        process.returncode = 0  # It lives on by itself; nothing here waits for it.
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
        """The process that holds the lock; None when nobody does."""
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
        """Free ports for those that are to have any."""
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
    """Ports on which nobody listens; all are held until the last is known, so that none comes twice."""
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
