"""A cluster of Apache Kafka 4 with three nodes, each controller and broker, for tests that kill some of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.peers import apache_kafka, probe
from tests.peers.process import Process

NODES = (1, 2, 3)


class KraftCluster(NamedTuple):
    """The addresses of its brokers, and its processes by node."""

    addresses: Mapping[int, str]
    processes: Mapping[int, Process]

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(self.addresses.values())


@contextlib.contextmanager
def kraft_cluster(version: str, folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[KraftCluster]:
    """Three combined nodes with a static quorum, serving."""
    addresses = {node: f"127.0.0.1:{probe.free_port()}" for node in NODES}
    controllers = {node: f"127.0.0.1:{probe.free_port()}" for node in NODES}
    processes: dict[int, Process] = {}
    with contextlib.ExitStack() as stack:

        def start(node: int) -> None:
            data_dir = folder / f"node-{node}"
            data_dir.mkdir(parents=True)
            more = {
                "node.id": str(node),
                "listeners": f"PLAINTEXT://{addresses[node]},CONTROLLER://{controllers[node]}",
                "controller.quorum.voters": ",".join(
                    f"{controller}@{address}" for controller, address in controllers.items()
                ),
                **(properties or {}),
            }
            processes[node] = stack.enter_context(apache_kafka.formatted_node(version, data_dir, more))

        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(start, NODES))
        for node in NODES:
            processes[node].wait_until(
                lambda node=node: probe.has_controller(addresses[node]),  # type: ignore[misc]
                timeout_s=apache_kafka.BROKER_START_TIMEOUT_S,
            )
        yield KraftCluster(addresses, processes)
