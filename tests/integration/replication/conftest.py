"""Three of kctl's brokers, each in its own rack, on the embedded ZooKeeper."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker
from tests.peers.probe import wait_until
from tests.peers.three_brokers import forked_cluster

RACKS = ("a", "b", "c")
ROOT = Path(__file__).parent.parent.parent.parent
TIMEOUT_S = 120
PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # A test that kills a leader waits for the end of its session.
    "zookeeper.session.timeout.ms": "9000",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    # With a limit of one byte per second, one response is enough to delay a throttled replica for hours.
    "replication.quota.window.size.seconds": "3600",
}


class Racks:
    """Brokers 0, 1 and 2 in racks a, b and c."""

    def __init__(self, brokers: list[KctlBroker], folder: Path) -> None:
        self.brokers = brokers
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._folder = folder

    def create(self, topic: str, *replicas: int, config: dict[str, str] | None = None) -> None:
        """A topic of one partition on these brokers, once it has a leader."""
        new = NewTopic(topic, 1, replica_assignment=[list(replicas)], config=config or {})
        self.admin.create_topics([new])[topic].result(TIMEOUT_S)
        self.until(f"broker {replicas[0]} leads {topic}", lambda: self.partition(topic)[0] == replicas[0])
        # The metadata may be that of a broker which was informed before the leader.
        self.until(f"broker {replicas[0]} serves {topic}", lambda: self._has_leader(topic))

    def partition(self, topic: str) -> tuple[int, list[int], set[int]]:
        """Leader, replicas and in-sync replicas of the topic's only partition."""
        found = self.admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions.get(0)
        return (found.leader, list(found.replicas), set(found.isrs)) if found else (-1, [], set())

    def _has_leader(self, topic: str) -> bool:
        """True if the leader of the topic's only partition responds to requests for it."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = self.admin.list_offsets({TopicPartition(topic, 0): latest}, request_timeout=TIMEOUT_S)
        return all(result.exception(TIMEOUT_S) is None for result in ends.values())

    def produce(self, topic: str, count: int, size: int = 10_000) -> None:
        """Writes so many records of that size, acknowledged by all in-sync replicas."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "compression.type": "none"})
        failures: list[object] = []
        for number in range(count):
            value = f"{number} ".encode().ljust(size, b"x")
            producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures

    def size(self, topic: str, broker: int) -> int:
        """Size in bytes of the broker's replica."""
        folder = self.brokers[broker].logs_dir / f"{topic}-0"
        return sum(path.stat().st_size for path in folder.glob("*.log"))

    def kctl(self, line: str, *, config: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a command on this cluster; `config` is the contents of --command-config."""
        file = self._folder / "client.properties"
        file.write_text(config)
        own = {"KCTL_BOOTSTRAP_SERVER": self.bootstrap, "XDG_STATE_HOME": str(self._folder / "state")}
        return run_kctl(*line.split(), "--command-config", file, environment=os.environ | own)

    def run(self, line: str, *, config: str = "") -> str:
        """Runs a command on this cluster, and fails unless it succeeds."""
        ran = self.kctl(line, config=config)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def until(self, what: str, claim: Callable[[], bool]) -> None:
        wait_until(claim, what=what, timeout_s=TIMEOUT_S, interval_s=0.1)


@pytest.fixture(scope="session")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    """Three running brokers in racks."""
    folder = tmp_path_factory.mktemp("racks")
    with forked_cluster(folder, lambda number: PROPERTIES | {"broker.rack": RACKS[number]}) as brokers:
        racks = Racks(brokers, folder)
        racks.until("three brokers", lambda: len(racks.admin.list_topics(timeout=TIMEOUT_S).brokers) == len(RACKS))
        yield racks
