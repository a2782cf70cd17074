"""A Spark cluster on this machine: a standalone master and workers, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from kctl.tables.engines.session import JVM_FLAGS
from tests.peers.probe import free_port
from tests.peers.process import Process

START_TIMEOUT_S = 120


@dataclass(frozen=True)
class SparkCluster:
    """A started cluster, whose executors have one core each."""

    master: str
    leader: Process
    """The master's process."""
    workers: list[Process]
    folder: Path
    """Logs of the processes, and the working folders of the executors."""


@contextlib.contextmanager
def spark_cluster(folder: Path, *, workers: int) -> Iterator[SparkCluster]:
    """A cluster with `workers` registered workers."""
    port, page = free_port(), free_port()
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": f"{JVM_FLAGS} -Dspark.master.rest.enabled=false",
    }
    environment.pop("PYTHONPATH", None)
    command = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    master = f"spark://127.0.0.1:{port}"

    def start(name: str, *arguments: str) -> Process:
        words = [command[0], f"{command[1]}.{name}", "--host", "127.0.0.1", *arguments]
        log = folder / f"{name}-{len(list(folder.glob('*.log')))}.log"
        return stack.enter_context(Process(f"Spark's {name}", words, log=log, environment=environment))

    with contextlib.ExitStack() as stack:
        started = start("master.Master", "--port", str(port), "--webui-port", str(page))
        # A worker repeats its registration until the master accepts it.
        others = [
            start("worker.Worker", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder / f"work{n}"), master)
            for n in range(workers)
        ]
        started.wait_until(lambda: _registered(page) == workers, timeout_s=START_TIMEOUT_S)
        yield SparkCluster(master, started, others, folder)


def _registered(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=10) as response:
            return int(json.load(response)["aliveworkers"])
    except (OSError, ValueError):  # the page answers in HTML until the master has added its answers in JSON
        return 0
