"""Three kctl brokers and Apache ZooKeeper, each a process in its own network namespace, for fault injection."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers import apache_zookeeper, namespaces
from tests.peers.apache_zookeeper import ZooKeeperServer
from tests.peers.kctl_broker import KctlBroker
from tests.peers.namespaces import Network
from tests.peers.probe import wait_until

BROKERS = range(3)
PORT = 9092
ZOOKEEPER = "zk"
ZOOKEEPER_PORT = 2181
SESSION_TIMEOUT_S = 4
PATIENCE_S = 180
"""A generous bound for every wait."""

NOT_YET = {
    KafkaError.NOT_CONTROLLER,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}
"""Errors of a topic creation before the controller has all brokers, or from one that is stopping."""

PROPERTIES = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000),
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "5000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "leader.imbalance.check.interval.seconds": "5",
    "log.segment.bytes": "200000",
}


def why_not() -> str | None:
    """The reason for a skipped test; None if this machine can run it."""
    return apache_zookeeper.why_not() or namespaces.why_not()


class Cluster:
    """`brokers` and `zookeeper` are running processes, which the caller may stop."""

    def __init__(self, folder: Path, network: Network, properties: Mapping[str, str]) -> None:
        self.network = network
        host = network.add(ZOOKEEPER)
        self.zookeeper = ZooKeeperServer(
            folder / "zookeeper",
            host=host,
            port=ZOOKEEPER_PORT,
            settings={"tickTime": "1000"},
            on=network.on(ZOOKEEPER),
        )
        self.brokers: dict[int, KctlBroker] = {}
        self._admins: dict[str, AdminClient] = {}
        self._folder = folder
        self._properties = {**PROPERTIES, **properties}
        for broker_id in BROKERS:
            network.add(self.host(broker_id))

    @staticmethod
    def host(broker_id: int) -> str:
        """The name of the broker's host in the network."""
        return f"b{broker_id}"

    def data_dir(self, broker_id: int) -> Path:
        return self._folder / f"broker-{broker_id}"

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{self.network.address(self.host(broker_id))}:{PORT}" for broker_id in BROKERS)

    def admin(self, bootstrap: str) -> AdminClient:
        """A client of these brokers, cached by their ids."""
        if bootstrap not in self._admins:
            settings: dict[str, str | int | float | bool] = {
                "bootstrap.servers": bootstrap,
                "socket.timeout.ms": 5000,
                "log_level": 0,
            }
            self._admins[bootstrap] = AdminClient(settings)
        return self._admins[bootstrap]

    def start(self) -> None:
        """Starts ZooKeeper, then all brokers at once."""
        self.zookeeper.start()
        with ThreadPoolExecutor(len(BROKERS)) as starters:
            list(starters.map(self._start_broker, BROKERS))

    def stop(self) -> None:
        """Stops one broker after the other, then ZooKeeper.  Raises AssertionError if a controlled shutdown fails."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.stop()
        self.zookeeper.stop()

    def kill(self) -> None:
        """Kills all processes in any state."""
        for broker in self.brokers.values():
            broker.kill9()
        self.zookeeper.kill9()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Returns when every partition has all its replicas."""
        wait_until(lambda: self._is_created(topic, partitions), what=f"a controller for {topic}", timeout_s=PATIENCE_S)
        wait_until(lambda: self.is_whole(topic, partitions), what=f"replicas of {topic}", timeout_s=PATIENCE_S)

    def _is_created(self, topic: str, partitions: int) -> bool:
        """Queries the current controller; librdkafka alone would continue to query the previous one."""
        admin = self.admin(self.bootstrap)
        self.controller()
        try:
            admin.create_topics([NewTopic(topic, partitions, len(BROKERS))])[topic].result(PATIENCE_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code not in NOT_YET | {KafkaError.TOPIC_ALREADY_EXISTS}:
                raise
            return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    def is_whole(self, topic: str, partitions: int) -> bool:
        """In the metadata of every broker, each partition has a leader and all replicas in sync."""
        for broker_id in BROKERS:
            states = self.states(topic, broker_id)
            if len(states) != partitions or any(leader < 0 or len(isr) < 3 for leader, isr in states.values()):
                return False
        return True

    def states(self, topic: str, broker_id: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Leader and in-sync replicas of each partition in one broker's metadata; empty if it does not respond."""
        address = f"{self.network.address(self.host(broker_id))}:{PORT}"
        try:
            metadata = self.admin(address).list_topics(topic, timeout=5)
        except KafkaException:
            return {}
        return {
            number: (partition.leader, tuple(partition.isrs))
            for number, partition in metadata.topics[topic].partitions.items()
        }

    def controller(self) -> int:
        """The controller's id in the brokers' metadata."""
        found = [-1]

        def is_known() -> bool:
            with contextlib.suppress(KafkaException):
                found.append(self.admin(self.bootstrap).list_topics(timeout=5).controller_id)
            return found[-1] >= 0

        wait_until(is_known, what="a controller", timeout_s=PATIENCE_S)
        return found[-1]

    def leader(self, topic: str, partition: int) -> int:
        """The partition's leader in the brokers' metadata."""
        found = [-1]

        def is_known() -> bool:
            with contextlib.suppress(KafkaException, KeyError):
                topics = self.admin(self.bootstrap).list_topics(topic, timeout=5).topics
                found.append(topics[topic].partitions[partition].leader)
            return found[-1] >= 0

        wait_until(is_known, what=f"a leader of {topic}-{partition}", timeout_s=PATIENCE_S)
        return found[-1]

    def halt(self, pid: int) -> None:
        """SIGSTOP: the process stands still, and its connections stay open."""
        os.kill(pid, signal.SIGSTOP)

    def resume(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)

    def _start_broker(self, broker_id: int) -> None:
        address = f"{self.network.address(self.host(broker_id))}:{PORT}"
        data_dir = self.data_dir(broker_id)
        words = ["broker", "start", "--data-dir", str(data_dir), "--zookeeper", self.zookeeper.connect]
        properties = {**self._properties, "broker.id": str(broker_id), "listeners": f"PLAINTEXT://{address}"}
        for name, value in properties.items():
            words += ["-o", f"{name}={value}"]
        network = self.network.file(self.host(broker_id))
        self.brokers[broker_id] = KctlBroker(words, address, data_dir, network=network)


@contextlib.contextmanager
def cluster(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A running cluster, which is removed after the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with namespaces.network() as network:
        made = Cluster(folder, network, properties or {})
        try:
            made.start()
            yield made
        finally:
            made.kill()
