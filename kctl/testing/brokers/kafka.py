"""Brokers and clusters for tests in any framework: context managers, with `with` and with `async with`.

    with KafkaBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    async with KafkaCluster(brokers=3) as cluster:
        cluster.brokers[1].kill()

Everything stops at the end of the block, and when the process that has started it ends, also if that is killed.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self, Unpack

from kctl.model import TopicPartition
from kctl.testing.brokers.broker_process import (
    START_TIMEOUT_S,
    BrokerOptions,
    BrokerProcess,
    ZooKeeperProcess,
    wait_until,
)
from kctl.testing.brokers.client_settings import ClientSettings
from kctl.testing.brokers.control import ControlFailed
from kctl.testing.brokers.faults import BrokerClock
from kctl.testing.brokers.relay import Relay
from kctl.testing.brokers.security import ListenerSecurity, listener_security
from kctl.testing.brokers.state import BrokerState
from kctl.testing.brokers.warm_process import WarmProcess

BROKERS_MAX = 100
STARTS_AT_ONCE_MAX = 4
CLUSTER_PROPERTIES: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
}
"""Properties that make tests faster: no rebalance delay, and the loss of a broker is noticed after 6 s, not 18."""


class _Block:
    """Makes a context manager of `start` and `close`, which wait for processes: with asyncio in a thread."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _folder(given: Path | str | None, temporary: tempfile.TemporaryDirectory[str] | None) -> Path:
    return Path(temporary.name if temporary is not None else given or ".")


class KafkaBroker(_Block, BrokerProcess):
    """A broker with an embedded ZooKeeper; its members are those of BrokerProcess (docs/pytest-plugin.md)."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        data_dir: Path | str | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        """`properties` are Kafka's, by name.  Without `data_dir` a temporary folder is used and removed at the end.

        Raises ValueError for options that contradict each other.
        """
        self._temporary = tempfile.TemporaryDirectory(prefix="kctl-broker-") if data_dir is None else None
        super().__init__(_folder(data_dir, self._temporary), properties, **options)

    @staticmethod
    def pool(
        size: int = 1, properties: Mapping[str, str] | None = None, **options: Unpack[BrokerOptions]
    ) -> BrokerPool:
        """Return a context manager that keeps `size` started brokers with these properties: see BrokerPool."""
        return BrokerPool(size, properties, **options)

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker and return when it serves.  Raises BrokerFailed."""
        BrokerProcess.start(self, timeout_s=timeout_s)

    def close(self) -> None:
        """Stop the broker and remove its temporary folder.  Raises BrokerFailed."""
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()


class BrokerPool(_Block):
    """Keeps brokers that have started already, so that a test does not wait for one.

        with KafkaBroker.pool(2) as pool:
            with pool.broker() as broker:
                producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Each broker is new and empty, is used once, and is replaced in the background when it is taken.
    """

    def __init__(
        self,
        size: int = 1,
        properties: Mapping[str, str] | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        """`properties` are Kafka's, by name, for all brokers.  Raises ValueError for a size out of range and a port."""
        if not 1 <= size <= BROKERS_MAX:
            raise ValueError(f"the size of a pool must be 1 to {BROKERS_MAX}, not {size}")
        self.size = size
        if options.get("port") is not None or "warm" in options:
            raise ValueError("the brokers of a pool have free ports, and a process of their own")
        self.properties = dict(properties or {})
        self._warm = WarmProcess()
        self.options: BrokerOptions = {**options, "warm": self._warm}
        self._starters = ThreadPoolExecutor(STARTS_AT_ONCE_MAX)
        self._waiting: deque[Future[KafkaBroker]] = deque()
        self._open: set[KafkaBroker] = set()

    def start(self) -> None:
        """Start the first brokers, in the background."""
        for _ in range(self.size):
            self._waiting.append(self._starters.submit(self._start_one))

    def broker(self) -> KafkaBroker:
        """Return a broker that serves; `with` stops it and removes its folder.  Raises BrokerFailed."""
        self._waiting.append(self._starters.submit(self._start_one))
        return self._waiting.popleft().result()

    def close(self) -> None:
        """Stop all brokers, also those in use, and remove their folders."""
        self._starters.shutdown(cancel_futures=True)
        for broker in list(self._open):
            broker.kill()
            broker.close()
        self._warm.close()

    def _start_one(self) -> KafkaBroker:
        broker = _PooledBroker(self)
        self._open.add(broker)
        broker.start()
        return broker

    def forget(self, broker: KafkaBroker) -> None:
        """Take note that a broker of the pool has been closed."""
        self._open.discard(broker)


class _PooledBroker(KafkaBroker):
    """A broker of a pool, which has started when it is given to a test."""

    def __init__(self, pool: BrokerPool) -> None:
        super().__init__(pool.properties, **pool.options)
        self._on_close = pool.forget

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        super().close()
        self._on_close(self)


class ClusterClock:
    """The clocks of all brokers of a cluster."""

    def __init__(self, clocks: Sequence[BrokerClock]) -> None:
        self._clocks = clocks

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Set all clocks forward; see BrokerClock.advance."""
        for clock in self._clocks:
            clock.advance(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)


class KafkaCluster(_Block, ClientSettings, BrokerState):
    """Several brokers with one ZooKeeper, each a process: stop, kill, pause and restart any of `brokers`.

    Topics have by default as many replicas as there are brokers, at most 3, so that they survive the loss of one.
    """

    def __init__(
        self,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        data_dir: Path | str | None = None,
        control: bool = False,
        security: str | None = None,
        plaintext: bool = True,
    ) -> None:
        """`properties` are Kafka's, by name, for all brokers.  The id of a broker is its index in `brokers`.

        With `control`, each broker has the methods of BrokerFaults, and brokers can be cut off.  With `security`, all
        brokers have the same secured listener; see BrokerOptions.  Raises ValueError for properties that differ between
        brokers.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers must be 1 to {BROKERS_MAX}, not {brokers}")
        for name in ("broker.id", "listeners", "advertised.listeners", "zookeeper.connect", "log.dir", "log.dirs"):
            if properties is not None and name in properties:
                raise ValueError(f"{name} is set by the cluster for each broker")
        self._temporary = tempfile.TemporaryDirectory(prefix="kctl-cluster-") if data_dir is None else None
        folder = _folder(data_dir, self._temporary)
        self._warm = WarmProcess()
        self.zookeeper = ZooKeeperProcess(folder / "zookeeper", warm=self._warm)
        from kctl.server.process.dev_cluster import defaults_for  # noqa: PLC0415 - clusters only

        shared = {**defaults_for(brokers), **CLUSTER_PROPERTIES, **(properties or {})}
        options: BrokerOptions = {"warm": self._warm, "control": control}
        self._security: ListenerSecurity | None = None
        if security is not None:
            options |= {"security": security, "plaintext": plaintext}
            self._security = listener_security(security, folder.absolute() / "security", has_plaintext=plaintext)
        self.brokers = tuple(
            BrokerProcess(folder / f"broker-{number}", {**shared, "broker.id": str(number)}, **options)
            for number in range(brokers)
        )
        self.clock = ClusterClock([broker.clock for broker in self.brokers])
        self._relays = tuple(Relay() for _ in self.brokers) if control else ()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of all brokers, separated by commas, for clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def secure_bootstrap_servers(self) -> str:
        """HOST:PORT of the secured listeners of all brokers."""
        return ",".join(broker.secure_bootstrap_servers for broker in self.brokers)

    @property
    def listener_security(self) -> ListenerSecurity | None:
        """The secured listener of each broker; None without one."""
        return self._security

    def start(self) -> None:
        """Start the ZooKeeper and all brokers that do not run; return when they serve.  Raises BrokerFailed."""
        if not self.zookeeper.is_running:
            self.zookeeper.start()
        stopped = [broker for broker in self.brokers if not broker.is_running]
        if self._security is not None:
            self._security.prepare()
            for broker in stopped:
                # All have the same authority, user and keys.
                shutil.copytree(self._security.folder, broker.data_dir / "security", dirs_exist_ok=True)
        for broker in stopped:
            broker.properties["zookeeper.connect"] = self.zookeeper.address
        for broker, relay in zip(self.brokers, self._relays, strict=False):
            relay.start(self.zookeeper.port)
            broker.properties["zookeeper.connect"] = relay.address
        with ThreadPoolExecutor(len(self.brokers)) as starters:
            for started in [starters.submit(broker.start) for broker in stopped]:
                started.result()

    def stop(self) -> None:
        """Stop the brokers cleanly, one after the other, and then the ZooKeeper.  Raises BrokerFailed."""
        with ExitStack() as stops:
            stops.callback(self.zookeeper.stop)
            for broker in reversed(self.brokers):
                stops.callback(broker.stop)

    def close(self) -> None:
        """Stop the cluster and remove its temporary folder.  Raises BrokerFailed."""
        try:
            self.stop()
        finally:
            self._warm.close()
            for relay in self._relays:
                relay.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    def partition(self, broker: int, other: int | Literal["zookeeper"]) -> None:
        """Let all packets between two brokers, or a broker and the ZooKeeper, be lost until `heal`.

        Clients reach all brokers, and other brokers reach both.  Needs `control=True`: ControlFailed without it.
        """
        if other == "zookeeper":
            if not self._relays:
                raise ControlFailed("partition: the cluster needs control=True")
            self._relays[broker].cut()
            return
        if broker == other:
            raise ValueError(f"broker {broker} cannot be cut off from itself")
        for sender, receiver in ((broker, other), (other, broker)):
            self.brokers[sender].ask("cut", addresses=list(self.brokers[receiver].listeners.values()))

    def heal(self) -> None:
        """End all partitions of the network."""
        for relay in self._relays:
            relay.heal()
        for broker in self.brokers:
            if broker.is_running:
                broker.ask("heal")

    def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition, -1 if there is none.  Raises ApiError."""
        with self._admin() as admin:
            return admin.describe_topics([topic]).require()[topic].partitions[partition].leader

    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Make another replica the leader of a partition, and return when it is.

        Raises ValueError if the broker has no replica of it, ApiError for a topic that does not exist, and
        TimeoutError.
        """
        name = TopicPartition(topic, partition)
        with self._admin() as admin:
            replicas = admin.describe_topics([topic]).require()[topic].partitions[partition].replicas
            if to not in replicas:
                raise ValueError(f"broker {to} has no replica of {name}; its replicas are {list(replicas)}")
            # The preferred leader is the first replica.
            order = [to, *(replica for replica in replicas if replica != to)]
            admin.alter_reassignments({name: order}).require()

            def has_moved() -> bool:
                if not admin.list_reassignments([name]):
                    admin.elect_leaders([name])
                return admin.describe_topics([topic]).require()[topic].partitions[partition].leader == to

            if not wait_until(has_moved, START_TIMEOUT_S):
                raise TimeoutError(f"broker {to} has not become the leader of {name} in {START_TIMEOUT_S:.0f} s")
