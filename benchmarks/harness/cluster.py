"""Three brokers that are measured together while one of them goes: ours, or Apache Kafka's on the JVM.

Time is taken outside of the brokers: from what their clients see (`Observer`), and from the moment at which ZooKeeper
ends a session, so that figures can be reported without the session timeout.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from benchmarks.harness.subject import Subject
from kctl.admin.topics.topics import NewTopic, create_topics
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.transport import ConnectionLost
from kctl.client.metadata import ClusterMetadata, Partition
from kctl.client.settings import ClientSettings, parse_servers
from kctl.errors import ApiError, KctlError
from kctl.server.process.dev_cluster import DevCluster
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, WatchEventType
from kctl.zookeeper.session import ZooKeeperSession
from tests.peers import apache_zookeeper, probe
from tests.peers.apache_kafka import BROKER_START_TIMEOUT_S, java_command
from tests.peers.process import Process

BROKERS = range(3)
TIMEOUT_S = 300
POLL_S = 0.005
PARTITIONS_PER_TOPIC = 100

PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class Cluster(Protocol):
    """Three processes on one ZooKeeper."""

    zookeeper: str

    def broker(self, broker_id: int) -> Subject:
        """The running broker of that id."""
        ...

    def start(self) -> None:
        """Starts the brokers that do not run; returns when all serve."""
        ...


class KctlCluster:
    """Ours, by `kctl cluster start`."""

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        self._folder = folder
        self._properties = [word for name, value in properties.items() for word in ("-o", f"{name}={value}")]
        self.start()
        layout = DevCluster(folder).layout()
        assert layout is not None
        self.zookeeper = layout.connect

    def broker(self, broker_id: int) -> Subject:
        cluster = DevCluster(self._folder)
        layout = cluster.layout()
        assert layout is not None
        member = cluster.members(layout)[1 + broker_id]
        assert member.address is not None
        assert member.pid is not None, f"{member.name} is {member.state}"
        return Subject(member.address, member.pid)

    def start(self) -> None:
        known = ("--port", "0") if not (self._folder / "cluster.json").exists() else ()
        self._kctl("start", *known, *self._properties)

    def stop(self) -> None:
        self._kctl("stop")

    def _kctl(self, verb: str, *options: str) -> None:
        command = [sys.executable, "-m", "kctl", "cluster", verb, "--data-dir", str(self._folder), *options]
        finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
        if finished.returncode != 0:
            raise SystemExit(
                f"kctl cluster {verb} ended with {finished.returncode}:\n{finished.stdout}{finished.stderr}"
            )


class ApacheCluster:
    """Apache Kafka's brokers of one version, on an Apache ZooKeeper that runs already."""

    def __init__(self, version: str, folder: Path, zookeeper: str, properties: Mapping[str, str]) -> None:
        self.zookeeper = zookeeper
        self._version = version
        self._folder = folder
        self._properties = properties
        self._addresses = {number: f"127.0.0.1:{probe.free_port()}" for number in BROKERS}
        self._processes: dict[int, Process] = {}
        self.start()

    def broker(self, broker_id: int) -> Subject:
        return Subject(self._addresses[broker_id], self._processes[broker_id].pid)

    def start(self) -> None:
        started = [number for number in BROKERS if not self._is_running(number)]
        for number in started:
            folder = self._folder / f"broker-{number}"
            folder.mkdir(exist_ok=True)
            settings = folder / "server.properties"
            lines = {
                **self._properties,
                "broker.id": str(number),
                "listeners": f"PLAINTEXT://{self._addresses[number]}",
                "zookeeper.connect": self.zookeeper,
                "log.dirs": str(folder / "logs"),
            }
            settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            command = java_command(self._version, "kafka.Kafka", [settings], log_level="INFO")
            self._processes[number] = Process(f"broker {number}", command, log=folder / "kafka.log")
        for number in started:
            self._processes[number].wait_until(
                lambda number=number: probe.has_controller(self._addresses[number]),  # type: ignore[misc]
                timeout_s=BROKER_START_TIMEOUT_S,
            )

    def stop(self) -> None:
        for process in self._processes.values():
            process.stop(signal.SIGKILL)

    def _is_running(self, number: int) -> bool:
        return number in self._processes and self._processes[number].is_running


def parser(description: str | None, *, runs: int) -> argparse.ArgumentParser:
    """Options that every benchmark of three brokers has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=runs, help="runs of each measurement; medians are reported")
    options.add_argument("--apache", metavar="VERSION", help="measure Apache Kafka of this version instead of ours")
    options.add_argument("--session-timeout-ms", type=int, default=6000, help="zookeeper.session.timeout.ms")
    return options


@contextlib.contextmanager
def cluster(options: argparse.Namespace, more: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Three brokers, freshly started, with `more` properties; stopped at the end."""
    properties = PROPERTIES | {"zookeeper.session.timeout.ms": str(options.session_timeout_ms)} | dict(more or {})
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-", ignore_cleanup_errors=True))
        )
        found: KctlCluster | ApacheCluster
        if options.apache:
            zookeeper = stack.enter_context(apache_zookeeper.apache_zookeeper(folder / "zookeeper"))
            found = ApacheCluster(options.apache, folder, zookeeper, properties)
        else:
            found = KctlCluster(folder / "cluster", properties)
        stack.callback(found.stop)
        yield found


def kill(subject: Subject, signal_number: int = signal.SIGKILL) -> float:
    """Sends the signal; returns when, on the clock of time.perf_counter."""
    now = time.perf_counter()
    os.kill(subject.pid, signal_number)
    return now


class Observer:
    """What clients and ZooKeeper say about the cluster.  Use as an async context manager; owner: event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clients: dict[int, ClusterClient] = {}
        self._session = ZooKeeperSession(cluster.zookeeper, on_watch=self._fired)
        self._gone: dict[str, asyncio.Future[float]] = {}

    async def __aenter__(self) -> Self:
        await self._session.start(10_000)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()
        await self._session.close()

    async def disconnect(self) -> None:
        """Closes the connections to brokers; new ones are made as needed."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    def client(self, broker_id: int) -> ClusterClient:
        """A client that connects to this broker first."""
        client = self._clients.get(broker_id)
        if client is None:
            servers = parse_servers(self._cluster.broker(broker_id).bootstrap)
            client = ClusterClient(ClientSettings(servers, timeout_ms=120_000), AsyncioTransport())
            self._clients[broker_id] = client
        return client

    async def metadata(self, broker_id: int, topics: Sequence[str]) -> ClusterMetadata | None:
        """The topics in this broker's metadata; None if it does not respond."""
        try:
            return await self.client(broker_id).metadata(topics)
        except (ConnectionLost, ApiError, KctlError):
            return None

    async def create(self, partitions: int) -> list[str]:
        """Topics of three replicas and so many partitions together, at most 100 each; the names."""
        counts = [min(PARTITIONS_PER_TOPIC, partitions - at) for at in range(0, partitions, PARTITIONS_PER_TOPIC)]
        topics = [NewTopic(f"bench-{index}", count, len(BROKERS)) for index, count in enumerate(counts)]
        for created in await create_topics(self.client(0), topics):
            assert created.outcome.is_done, created.outcome
        names = [topic.name for topic in topics]
        await self.until_all(names, is_in_sync)
        return names

    async def controller(self) -> int:
        """The broker that is the controller."""
        data, _ = await self._session.get(paths.CONTROLLER)
        return znodes.decode_controller(paths.CONTROLLER, data).broker_id

    async def watch_broker(self, broker_id: int) -> asyncio.Future[float]:
        """Done when ZooKeeper ends the broker's session, with the time."""
        path = paths.broker(broker_id)
        self._gone[path] = asyncio.get_running_loop().create_future()
        await self._session.get(path, watch=True)
        return self._gone[path]

    async def until_all(
        self,
        topics: Sequence[str],
        claim: Callable[[Partition, ClusterMetadata], bool],
        *,
        brokers: Sequence[int] = BROKERS,
    ) -> float:
        """Waits until the claim holds for every partition in the metadata of each broker; returns when that was.

        A topic that is as it should be is not requested again, so that the requests cost the brokers little.
        """
        for broker_id in brokers:
            for topic in topics:
                await self._until(broker_id, topic, claim)
        return time.perf_counter()

    async def _until(self, broker_id: int, topic: str, claim: Callable[[Partition, ClusterMetadata], bool]) -> None:
        async def holds() -> bool:
            metadata = await self.metadata(broker_id, [topic])
            if metadata is None or broker_id not in metadata.brokers:
                return False
            partitions = metadata.topics[topic].partitions
            return bool(partitions) and all(claim(partition, metadata) for partition in partitions)

        await poll(holds, what=f"topic {topic} in the metadata of broker {broker_id}")

    def _fired(self, event: WatchEvent) -> None:
        gone = self._gone.get(event.path)
        if gone is not None and event.type is WatchEventType.DELETED and not gone.done():
            gone.set_result(time.perf_counter())


async def poll(claim: Callable[[], Awaitable[bool]], *, what: str) -> float:
    """Polls until the claim holds; returns when that was, on the clock of time.perf_counter."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if await claim():
            return time.perf_counter()
        await asyncio.sleep(POLL_S)
    raise SystemExit(f"{what}: not as it should be after {TIMEOUT_S} s")


def is_led(partition: Partition, metadata: ClusterMetadata) -> bool:
    """A live broker leads it."""
    return partition.leader in metadata.brokers


def is_in_sync(partition: Partition, metadata: ClusterMetadata) -> bool:
    """A live broker leads it and every replica is in sync."""
    return is_led(partition, metadata) and sorted(partition.isr) == sorted(partition.replicas)
