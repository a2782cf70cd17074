"""Whole brokers, unchanged, on one virtual loop: simulated network, ZooKeeper and clocks around each of them.

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, folder)
        await cluster.start(3)
        async with cluster.client() as client:
            ...
        await cluster.kill(1)

Everything follows from the loop's seed, logs on disk included.

Owner: event loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from kctl.client.asyncio_transport import AsyncioTransport
from kctl.client.cluster import ClusterClient
from kctl.client.settings import ClientSettings
from kctl.server.broker import Broker
from kctl.server.world import World
from kctl.storage.files import Lock, RealFiles
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_listening import SimListening
from kctl.testing.sim_loop import SimLoop
from kctl.testing.sim_network import SimNetwork
from kctl.testing.sim_process import SimProcess
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper.operations import SessionState, WatchEvent

T = TypeVar("T")

PORT = 9092
ZOOKEEPER = "zookeeper:2181"


class SimCluster:
    """Brokers 0, 1, 2, ... on hosts broker-0, broker-1, ...; each keeps its logs in `folder` over restarts."""

    def __init__(
        self,
        loop: SimLoop,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        network: SimNetwork | None = None,
    ) -> None:
        self.network = network or SimNetwork(loop)
        self.zookeeper = SimZooKeeper(delay_s=partial(random.Random(f"{loop.seed} zookeeper").uniform, 0.0005, 0.002))
        self.brokers: dict[int, SimBroker] = {}
        self.starts = 0
        """How many brokers were started, those that came back among them."""
        self._loop = loop
        self._folder = folder
        self._properties = dict(properties or {})

    async def start(self, count: int) -> None:
        """Brokers 0 to count - 1, one after the other."""
        for broker_id in range(count):
            await self.start_broker(broker_id)

    async def start_broker(self, broker_id: int) -> SimBroker:
        """A new broker, or one that was killed or stopped; serves when this returns."""
        self.starts += 1
        broker = SimBroker(self, self._loop, broker_id, self._folder / str(broker_id), self._properties)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    async def stop(self) -> None:
        """Every broker that runs, cleanly."""
        for broker in list(self.brokers.values()):
            await broker.stop()

    def kill(self, broker_id: int) -> None:
        """SIGKILL.  ZooKeeper finds out when the session times out."""
        self.brokers[broker_id].kill()

    def client(self, *, timeout_ms: int = 60_000) -> ClusterClient:
        """A client on the host "client" that knows all brokers."""
        servers = tuple((f"broker-{broker_id}", PORT) for broker_id in self.brokers)
        return ClusterClient(ClientSettings(servers, timeout_ms=timeout_ms), AsyncioTransport())


class SimBroker:
    """One broker's life: from `start` to `stop` or `kill`."""

    def __init__(
        self, cluster: SimCluster, loop: SimLoop, broker_id: int, folder: Path, properties: Mapping[str, str]
    ) -> None:
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.clock = SimClock(loop.time)
        self.is_running = False
        self._cluster = cluster
        self._loop = loop
        self._process = SimProcess(self.host)
        self._sessions: list[SimZooKeeperSession] = []
        self._files = _FilesOfOneProcess()
        self._properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": str(folder),
            "zookeeper.connect": ZOOKEEPER,
            **properties,
        }
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Serves when this returns.  Raises KctlError."""
        self._cluster.network.address_of(self.host)
        with self._process.running():
            self.broker = Broker(self._world(), self._properties)
            self.is_running = True
            self.broker.bind()
            self.broker.open_logs()
            await self.broker.start(ZOOKEEPER)

    async def stop(self) -> None:
        """A clean shutdown; nothing when it does not run."""
        if self.is_running and self.broker is not None:
            self.is_running = False
            with self._process.running():
                await self.broker.stop()

    def kill(self) -> None:
        """Nothing of the broker runs from now on; what it wrote stays, its locks are free."""
        if self.is_running and self.broker is not None:
            self.is_running = False
            self._loop.freeze(self._process)
            self._cluster.network.kill(self.host)
            self.lose_zookeeper()
            self._files.release_locks()

    def lose_zookeeper(self) -> None:
        """The connection to ZooKeeper breaks and stays broken until `find_zookeeper`."""
        for session in self._sessions:
            session.break_connection()

    def find_zookeeper(self) -> None:
        """ZooKeeper can be reached again; the session may be over by now."""
        for session in self._sessions:
            session.heal()

    def _world(self) -> World:
        return World(
            clock=self.clock,
            # Of its own in every life: a broker that came back would give away the same member ids again.
            random=random.Random(f"{self._loop.seed} {self.host} {self._cluster.starts}"),
            files=self._files,
            transport=AsyncioTransport(),
            listen=partial(SimListening, self._cluster.network),
            open_session=self._open_session,
        )

    def _open_session(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        on_watch: Callable[[WatchEvent], None],
        on_state: Callable[[SessionState], None],
    ) -> SimZooKeeperSession:
        assert connect == ZOOKEEPER
        session = self._cluster.zookeeper.session(
            session_timeout_ms=session_timeout_ms,
            on_watch=lambda event: self._call(on_watch, event),
            on_state=lambda state: self._call(on_state, state),
        )
        self._sessions.append(session)
        return session

    def _call(self, callback: Callable[[T], None], argument: T) -> None:
        """What comes from outside arrives in no process's context."""
        if self._process.is_alive:
            with self._process.running():
                callback(argument)


class _FilesOfOneProcess(RealFiles):
    """The real disk, whose locks go with the process that has them."""

    def __init__(self) -> None:
        self._locks: list[Lock] = []

    def lock(self, path: str) -> Lock:
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def release_locks(self) -> None:
        for lock in self._locks:
            lock.release()
