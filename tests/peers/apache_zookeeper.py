"""Apache ZooKeeper itself, one server or an ensemble, from the jars inside the pyspark package: pip brings them
anywhere.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.peers import java, probe
from tests.peers.process import Process

JARS = ("zookeeper", "slf4j-api", "netty-", "snappy-java", "metrics-core", "commons-cli", "commons-io", "audience-")
START_TIMEOUT_S = 60
STANDALONE, LEADER, FOLLOWER = "standalone", "leader", "follower"


def why_not() -> str | None:
    """The reason why Apache ZooKeeper cannot run on this machine, for a skipped test; None if it can."""
    if shutil.which("java") is None:
        return "java is not on the PATH: install a Java 17 runtime"
    if importlib.util.find_spec("pyspark") is None:
        return "ZooKeeper's jars come with pyspark: pip install 'kctl-kafka[spark]'"
    return None


class ZooKeeperServer:
    """The server: its address, and methods to stop and restart it with its data."""

    def __init__(
        self,
        data_dir: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        on: Sequence[str] = (),
    ) -> None:
        """Not started yet.  `settings` are lines of its zoo.cfg; `on` goes before the command that starts it."""
        data_dir.mkdir(parents=True, exist_ok=True)
        self.connect = f"{host}:{port or probe.free_port()}"
        self._log = data_dir / "zookeeper.log"
        config = data_dir / "zoo.cfg"
        config.write_text(_config(data_dir, self.connect, settings or {}))
        self._command = [*on, *java_command(str(config))]
        self._process: Process | None = None

    def start(self) -> None:
        """Starts the server; returns when it serves."""
        self.start_without_quorum()
        assert self._process is not None
        self._process.wait_until(lambda: self.mode is not None, timeout_s=START_TIMEOUT_S)

    def start_without_quorum(self) -> None:
        """Starts the server; returns before it serves, which one of an ensemble does when a majority runs."""
        self._process = Process("Apache ZooKeeper", self._command, log=self._log)

    @property
    def mode(self) -> str | None:
        """STANDALONE, LEADER or FOLLOWER; None while it serves no requests.

        The server accepts connections before requests; its four-letter words distinguish the two states.
        """
        with contextlib.suppress(OSError), socket.create_connection(probe.address(self.connect), timeout=1) as sock:
            sock.sendall(b"srvr")
            found = re.search(rb"^Mode: (\w+)$", b"".join(iter(lambda: sock.recv(4096), b"")), re.MULTILINE)
            return found[1].decode() if found else None
        return None

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """No effect if it was never started."""
        if self._process is not None:
            self._process.stop(signal_number)

    def kill9(self) -> None:
        self.stop(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


@contextlib.contextmanager
def apache_zookeeper(
    data_dir: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """One server, serving; yields its connect string.  `settings` are lines of its zoo.cfg."""
    server = ZooKeeperServer(data_dir, port=port, settings=settings)
    try:
        server.start()
        yield server.connect
    finally:
        server.stop()


class ZooKeeperEnsemble:
    """Three servers, of which any two are a majority."""

    def __init__(self, folder: Path) -> None:
        """Not started yet."""
        peers = {f"server.{number}": f"127.0.0.1:{probe.free_port()}:{probe.free_port()}" for number in (1, 2, 3)}
        timing = {"tickTime": "500", "initLimit": "60", "syncLimit": "20", "maxSessionTimeout": "60000"}
        self.servers = [ZooKeeperServer(folder / peer, settings={**peers, **timing}) for peer in peers]
        for number in range(len(peers)):
            data = folder / f"server.{number + 1}" / "data"
            data.mkdir()
            (data / "myid").write_text(f"{number + 1}")

    @property
    def connect(self) -> str:
        """The addresses of all servers."""
        return ",".join(server.connect for server in self.servers)

    def start(self) -> None:
        """Starts all servers; returns when they serve."""
        for server in self.servers:
            server.start_without_quorum()
        self.wait_until_led(followers=2)

    def wait_until_led(self, followers: int) -> ZooKeeperServer:
        """Waits for a leader with so many followers; returns the leader."""

        def modes() -> list[str]:
            return sorted(mode for server in self.servers if (mode := server.mode))

        probe.wait_until(
            lambda: modes() == [FOLLOWER] * followers + [LEADER], what="a leader", timeout_s=START_TIMEOUT_S
        )
        return next(server for server in self.servers if server.mode == LEADER)

    def stop(self) -> None:
        """Stops all servers, in any state."""
        for server in self.servers:
            server.kill9()


def java_command(*args: str, main_class: str = "org.apache.zookeeper.server.quorum.QuorumPeerMain") -> list[str]:
    """The command line that runs one of ZooKeeper's classes."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    jars = [str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(JARS)]
    return ["java", *java.JVM_FLAGS, "-cp", ":".join(jars), main_class, *args]


def _config(data_dir: Path, connect: str, settings: Mapping[str, str]) -> str:
    host, port = probe.address(connect)
    lines = {
        "dataDir": str(data_dir / "data"),
        "clientPort": str(port),
        "clientPortAddress": host,
        "tickTime": "2000",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        **settings,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
