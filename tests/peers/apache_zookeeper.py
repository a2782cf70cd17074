"""Apache ZooKeeper itself, alone on one port, from the jars inside the pyspark package: pip brings them anywhere.

A small heap and no second compiler stage: tests want a quick start, not throughput.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.peers import probe
from tests.peers.process import Process

JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
JARS = ("zookeeper", "slf4j-api", "netty-", "snappy-java", "metrics-core", "commons-cli", "commons-io", "audience-")
START_TIMEOUT_S = 60


def why_not() -> str | None:
    """Why Apache ZooKeeper cannot run on this machine, in words for a skipped test; None when it can."""
    if shutil.which("java") is None:
        return "java is not on the PATH: install a Java 17 runtime"
    if importlib.util.find_spec("pyspark") is None:
        return "ZooKeeper's jars come with pyspark: pip install 'kctl[spark]'"
    return None


@contextlib.contextmanager
def apache_zookeeper(
    data_dir: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """One server, serving; yields its connect string.  `settings` are lines of its zoo.cfg."""
    data_dir.mkdir(parents=True, exist_ok=True)
    connect = f"127.0.0.1:{port or probe.free_port()}"
    config = data_dir / "zoo.cfg"
    config.write_text(_config(data_dir, connect, settings or {}))
    with Process("Apache ZooKeeper", java_command(str(config)), log=data_dir / "zookeeper.log") as server:
        server.wait_until(lambda: _is_serving(connect), timeout_s=START_TIMEOUT_S)
        yield connect


def java_command(*args: str, main_class: str = "org.apache.zookeeper.server.ZooKeeperServerMain") -> list[str]:
    """The command line that runs one of ZooKeeper's classes."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    jars = [str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(JARS)]
    return ["java", *JVM_FLAGS, "-cp", ":".join(jars), main_class, *args]


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


def _is_serving(connect: str) -> bool:
    """It takes connections before it takes requests; its four-letter words tell the difference."""
    with contextlib.suppress(OSError), socket.create_connection(probe.address(connect), timeout=1) as connection:
        connection.sendall(b"srvr")
        return b"Mode: standalone" in b"".join(iter(lambda: connection.recv(4096), b""))
    return False
