"""Runs unchanged brokers on one virtual loop, with simulated network, ZooKeeper, clocks and disks.

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop)
        await cluster.start(3)
        async with cluster.client() as client:
            ...
        await cluster.kill(1)

Deterministic for the loop's seed.  Disks are in memory, and can lose power or become slow.

Owner: event loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.settings import ClientSettings
from kctl.server.broker.broker import Broker
from kctl.server.network.world import World
from kctl.testing.sim_clock import START_MS, SimClock
from kctl.testing.sim_files import SimFiles
from kctl.testing.sim_listening import SimListening
from kctl.testing.sim_loop import SimLoop
from kctl.testing.sim_network import SimNetwork
from kctl.testing.sim_process import EXECUTOR_DELAY_S, SimProcess
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper.operations import SessionState, WatchEvent
from kctl.zookeeper.security import ZooKeeperSecurity

T = TypeVar("T")

PORT = 9092
ZOOKEEPER = "zookeeper:2181"
LOGS = "/logs"


class SimCluster:
    """Brokers 0, 1, 2, ... on hosts broker-0, broker-1, ..., which keep their disks over restarts."""

    def __init__(
        self,
        loop: SimLoop,
        *,
        properties: Mapping[str, str] | None = None,
        network: SimNetwork | None = None,
    ) -> None:
        self.network = network or SimNetwork(loop)
        self._power = random.Random(f"{loop.seed} power")
        self.zookeeper = SimZooKeeper(delay_s=partial(random.Random(f"{loop.seed} zookeeper").uniform, 0.0005, 0.002))
        self.brokers: dict[int, SimBroker] = {}
        self.starts = 0
        """Number of starts of brokers, including restarts."""
        self.disks: dict[int, SimFiles] = {}
        self._loop = loop
        self._properties = dict(properties or {})

    async def start(self, count: int) -> None:
        """Start brokers 0 to count - 1, one after the other."""
        for broker_id in range(count):
            await self.start_broker(broker_id)

    async def start_broker(self, broker_id: int) -> SimBroker:
        """Start a new, killed or stopped broker, and return when it serves."""
        self.starts += 1
        disk = self.disks.setdefault(broker_id, SimDisk(self._loop.time))
        broker = SimBroker(self, self._loop, broker_id, disk, self._properties)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    async def stop(self) -> None:
        """Stop all running brokers cleanly."""
        for broker in list(self.brokers.values()):
            await broker.stop()

    def kill(self, broker_id: int) -> None:
        """Kill a broker, as by SIGKILL.  Its ZooKeeper session ends by its timeout."""
        self.brokers[broker_id].kill()

    def lose_power(self, broker_id: int) -> None:
        """Like `kill`, but only a random part of the unsynced data survives on the disk."""
        self.brokers[broker_id].kill()
        self.disks[broker_id].crash(self._power)

    def client(self, *, timeout_ms: int = 60_000) -> ClusterClient:
        """Return a client on the host "client", with all brokers as bootstrap servers."""
        servers = tuple((f"broker-{broker_id}", PORT) for broker_id in self.brokers)
        return ClusterClient(ClientSettings(servers, timeout_ms=timeout_ms), AsyncioTransport())


class SimDisk(SimFiles):
    """A disk whose modification times are the loop's time."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        super().__init__()
        self._time_s = time_s

    def step(self, operation: str, path: str) -> None:
        """Set the modification time of what follows to the loop's time, then count the operation."""
        self.now_ms = START_MS + int(self._time_s() * 1000)
        super().step(operation, path)


class SimBroker:
    """One run of a broker, from `start` to `stop` or `kill`."""

    def __init__(
        self, cluster: SimCluster, loop: SimLoop, broker_id: int, disk: SimFiles, properties: Mapping[str, str]
    ) -> None:
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.clock = SimClock(loop.time)
        self.is_running = False
        self._cluster = cluster
        self._loop = loop
        self._process = SimProcess(self.host)
        self._sessions: list[SimZooKeeperSession] = []
        self._files = disk
        self._properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": LOGS,
            "zookeeper.connect": ZOOKEEPER,
            **properties,
        }
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Start the broker and return when it serves.  Raises KctlError."""
        self._cluster.network.address_of(self.host)
        with self._process.running():
            self.broker = Broker(self._world(), self._properties)
            self.is_running = True
            self.broker.bind()
            self.broker.open_logs()
            await self.broker.start(ZOOKEEPER)

    async def stop(self) -> None:
        """Shut down cleanly, if it is running."""
        if self.is_running and self.broker is not None:
            self.is_running = False
            with self._process.running():
                await self.broker.stop()

    def kill(self) -> None:
        """Freezes the broker; its written data stays, and its locks are released."""
        if self.is_running and self.broker is not None:
            self.is_running = False
            self._loop.freeze(self._process)
            self._cluster.network.kill(self.host)
            self.lose_zookeeper()
            self._files.kill()

    def slow_down_disk(self, factor: float) -> None:
        """Multiplies the duration of executor work, mainly syncs; 1 restores it."""
        self._process.executor_delay_s = EXECUTOR_DELAY_S * factor

    def expire_session(self) -> None:
        """Expire the ZooKeeper session of the running broker."""
        for session in self._sessions:
            session.expire()

    def lose_zookeeper(self) -> None:
        """Break the connection to ZooKeeper until `find_zookeeper`."""
        for session in self._sessions:
            session.break_connection()

    def find_zookeeper(self) -> None:
        """Restore the connection to ZooKeeper; the session may have expired."""
        for session in self._sessions:
            session.heal()

    def _world(self) -> World:
        return World(
            clock=self.clock,
            # Different in each run: a restarted broker would generate the same member ids again.
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
        security: ZooKeeperSecurity | None,
    ) -> SimZooKeeperSession:
        assert connect == ZOOKEEPER
        assert security is None
        session = self._cluster.zookeeper.session(
            session_timeout_ms=session_timeout_ms,
            on_watch=lambda event: self._call(on_watch, event),
            on_state=lambda state: self._call(on_state, state),
        )
        self._sessions.append(session)
        return session

    def _call(self, callback: Callable[[T], None], argument: T) -> None:
        """Run a call from outside in a context without a process."""
        if self._process.is_alive:
            with self._process.running():
                callback(argument)
