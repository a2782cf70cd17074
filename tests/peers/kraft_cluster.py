"""A cluster of Apache Kafka 4 with three nodes, for tests that kill some of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.peers import apache_kafka, probe
from tests.peers.process import Process

COMBINED = dict.fromkeys((1, 2, 3), "broker,controller")
"""The roles of three nodes, each controller and broker."""
DEDICATED = {1: "broker", 2: "broker", 9: "controller"}
"""The roles of two brokers and a controller."""


class KraftCluster(NamedTuple):
    """The addresses of its brokers and controllers, and its processes, by node."""

    addresses: Mapping[int, str]
    controllers: Mapping[int, str]
    processes: Mapping[int, Process]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(self.addresses.values())


@contextlib.contextmanager
def kraft_cluster(
    version: str,
    folder: Path,
    properties: Mapping[str, str] | None = None,
    roles: Mapping[int, str] = COMBINED,
) -> Iterator[KraftCluster]:
    """Nodes with these roles (`process.roles`) and a static quorum, serving."""
    addresses = {node: f"127.0.0.1:{probe.free_port()}" for node in roles if "broker" in roles[node]}
    controllers = {node: f"127.0.0.1:{probe.free_port()}" for node in roles if "controller" in roles[node]}
    processes: dict[int, Process] = {}
    with contextlib.ExitStack() as stack:

        def start(node: int) -> None:
            data_dir = folder / f"node-{node}"
            data_dir.mkdir(parents=True)
            listeners = [("PLAINTEXT", addresses.get(node)), ("CONTROLLER", controllers.get(node))]
            more = {
                "node.id": str(node),
                "process.roles": roles[node],
                "listeners": ",".join(f"{name}://{address}" for name, address in listeners if address is not None),
                "controller.quorum.voters": ",".join(f"{voter}@{address}" for voter, address in controllers.items()),
                **(properties or {}),
            }
            processes[node] = stack.enter_context(apache_kafka.formatted_node(version, data_dir, more))

        with ThreadPoolExecutor(len(roles)) as pool:
            list(pool.map(start, roles))
        for node, address in addresses.items():
            processes[node].wait_until(
                lambda address=address: probe.has_controller(address),  # type: ignore[misc]
                timeout_s=apache_kafka.BROKER_START_TIMEOUT_S,
            )
        yield KraftCluster(addresses, controllers, processes)
