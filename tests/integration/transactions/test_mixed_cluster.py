"""One cluster of our broker and Apache Kafka's: either coordinates transactions, writes markers for the other's, and
takes over what the other has begun or decided."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.model import partition_for_key
from tests.integration.transactions.writing import (
    TIMEOUT_S,
    offset_of,
    producer,
    read,
    reader_of,
    transact,
    write,
)
from tests.peers import apache_kafka, apache_zookeeper
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.probe import free_port, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

OURS, THEIRS = 1, 10
SHARED = {
    # The newest of ours; the other mixed cluster uses an older one, where leaders write to ZooKeeper by themselves.
    "inter.broker.protocol.version": "2.8",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
TOPIC = "mixed"
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"


class Cluster:
    """Both brokers, either of which may be stopped."""

    def __init__(self, broker: KctlBroker, their_port: int, start_theirs: Callable[[], contextlib.ExitStack]) -> None:
        self.ours = broker
        self.bootstrap = f"{broker.bootstrap},127.0.0.1:{their_port}"
        self.kept: list[bytes] = []
        self._start_theirs = start_theirs
        self._theirs = start_theirs()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def create_topics(self) -> None:
        """Each broker leads one partition of each topic, and the other follows."""
        replicas = [[OURS, THEIRS], [THEIRS, OURS]]
        topics = [NewTopic(name, 2, replica_assignment=replicas) for name in (TOPIC, STATE, OFFSETS)]
        for created in self._admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        self.wait_for_leaders({0: OURS, 1: THEIRS})

    def stop_ours(self) -> None:
        self.ours.stop()
        self.wait_for_leaders({0: THEIRS, 1: THEIRS})

    def start_ours(self) -> None:
        self.ours.start()
        self._wait_for_in_sync()

    def stop_theirs(self) -> None:
        self._theirs.close()
        self.wait_for_leaders({0: OURS, 1: OURS})

    def start_theirs(self) -> None:
        self._theirs = self._start_theirs()
        self._wait_for_in_sync()

    def close(self) -> None:
        self._theirs.close()

    def wait_for_leaders(self, expected: dict[int, int]) -> None:
        names = (TOPIC, STATE, OFFSETS)
        wait_until(
            lambda: all(self._partitions(name, lambda partition: partition.leader) == expected for name in names),
            what=f"the leaders {expected}",
            timeout_s=2 * TIMEOUT_S,
        )

    def transact(self, made: Producer, values: list[bytes]) -> None:
        transact(made, TOPIC, values)
        self.kept += values

    def check(self) -> None:
        """All records are read, once, and no others, when the markers of the last decision are written."""
        seen: list[bytes] = []

        def has_all() -> bool:
            seen[:] = read(self.bootstrap, TOPIC)
            return len(seen) >= len(self.kept)

        wait_until(has_all, what=f"{len(self.kept)} records", timeout_s=TIMEOUT_S)
        assert seen == sorted(self.kept)

    def _wait_for_in_sync(self) -> None:
        names = (TOPIC, STATE, OFFSETS)
        wait_until(
            lambda: all(
                set(self._partitions(name, lambda partition: len(partition.isrs)).values()) == {2} for name in names
            ),
            what="all replicas in sync",
            timeout_s=2 * TIMEOUT_S,
        )

    def _partitions(self, topic: str, look: Callable[..., int]) -> dict[int, int]:
        found = self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return {index: look(partition) for index, partition in found.items()}


def id_of(state_partition: int, tag: str) -> str:
    """A transactional id in this partition of the state topic."""
    return next(
        name for name in (f"{tag}-{number}" for number in range(100)) if partition_for_key(name, 2) == state_partition
    )


def values(tag: str) -> list[bytes]:
    return [b"%s-%02d" % (tag.encode(), number) for number in range(20)]


@pytest.mark.parametrize("version", [OLDEST_JUDGE, pytest.param(LAST_WITH_ZOOKEEPER, marks=pytest.mark.matrix)])
def test_transactions_survive_coordinator_changes_in_a_mixed_cluster(version: str, tmp_path: Path) -> None:
    if reason := apache_kafka.why_not() or apache_zookeeper.why_not():
        pytest.skip(reason)
    their_port = free_port()
    settings = {"broker.id": str(THEIRS), **SHARED}
    with apache_zookeeper.apache_zookeeper(tmp_path / "zookeeper") as connect:

        def start_theirs() -> contextlib.ExitStack:
            theirs = contextlib.ExitStack()
            theirs.enter_context(
                apache_kafka.apache_kafka(
                    version, tmp_path / "theirs", zookeeper=connect, port=their_port, properties=settings
                )
            )
            return theirs

        properties = {**SHARED, "broker.id": str(OURS)}
        with kctl_broker(tmp_path / "ours", zookeeper=connect, properties=properties) as broker:
            cluster = Cluster(broker, their_port, start_theirs)
            try:
                cluster.create_topics()
                each_coordinates_and_both_write_markers(cluster)
                offsets_are_committed_with_either_coordinator(cluster)
                the_other_takes_over(cluster, cluster.stop_ours, cluster.start_ours, "from-ours")
                the_other_takes_over(cluster, cluster.stop_theirs, cluster.start_theirs, "from-theirs")
            finally:
                cluster.close()


def each_coordinates_and_both_write_markers(cluster: Cluster) -> None:
    for state_partition in (0, 1):
        made = producer(cluster.bootstrap, id_of(state_partition, "markers"))
        cluster.transact(made, values(f"committed-{state_partition}"))
        made.begin_transaction()
        write(made, TOPIC, values(f"aborted-{state_partition}"))
        made.abort_transaction(TIMEOUT_S)
        cluster.check()


def offsets_are_committed_with_either_coordinator(cluster: Cluster) -> None:
    for state_partition in (0, 1):
        for group_partition in (0, 1):
            group = id_of(group_partition, f"group-{state_partition}")
            consumer = reader_of(cluster.bootstrap, group, TOPIC, len(cluster.kept))
            made = producer(cluster.bootstrap, id_of(state_partition, "offsets"))
            made.begin_transaction()
            _send_offset(made, consumer, 7)
            made.abort_transaction(TIMEOUT_S)
            assert offset_of(cluster.bootstrap, group, TOPIC) < 0
            made.begin_transaction()
            _send_offset(made, consumer, 9)
            made.commit_transaction(TIMEOUT_S)
            assert offset_of(cluster.bootstrap, group, TOPIC) == 9
            consumer.close()


def _send_offset(made: Producer, consumer: Consumer, offset: int) -> None:
    made.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S)


def the_other_takes_over(cluster: Cluster, go: Callable[[], None], come_back: Callable[[], None], tag: str) -> None:
    """Open transactions and pending group offsets move to the other coordinator, which completes them."""
    ids = [id_of(state_partition, tag) for state_partition in (0, 1)]
    consumer = reader_of(cluster.bootstrap, tag, TOPIC, len(cluster.kept))
    producers = [producer(cluster.bootstrap, id_) for id_ in ids]
    for number, made in enumerate(producers):
        cluster.transact(made, values(f"{tag}-before-{number}"))
    for number, made in enumerate(producers):
        made.begin_transaction()
        write(made, TOPIC, values(f"{tag}-during-{number}"))
    _send_offset(producers[0], consumer, 11)
    go()
    cluster.check()
    producers[0].commit_transaction(TIMEOUT_S)
    cluster.kept += values(f"{tag}-during-0")
    producers[1].abort_transaction(TIMEOUT_S)
    cluster.check()
    assert offset_of(cluster.bootstrap, tag, TOPIC) == 11
    # A producer of both coordinators is fenced by the next instance.
    for number, made in enumerate(producers):
        cluster.transact(made, values(f"{tag}-after-{number}"))
        cluster.transact(producer(cluster.bootstrap, ids[number]), values(f"{tag}-next-{number}"))
    come_back()
    cluster.check()
    consumer.close()
