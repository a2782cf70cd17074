"""A broker on an ensemble of three Apache ZooKeeper servers: its session moves to another server when one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.peers.apache_zookeeper import ZooKeeperEnsemble, why_not
from tests.peers.kctl_broker import kctl_broker

TIMEOUT_S = 120
CHROOT = "/clusters/one"
REGISTRATION = f"{CHROOT}/brokers/ids/0"
SESSION_TIMEOUT_MS = 60_000
"""Longer than servers of a slow machine need to elect a leader: the session must never expire here."""


@pytest.fixture
def three_servers(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    ensemble = ZooKeeperEnsemble(tmp_path / "zookeeper")
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()


def registered_at(ensemble: ZooKeeperEnsemble) -> int:
    """The transaction that created the broker's registration: another one if its session has expired."""
    client = KazooClient(ensemble.connect)
    client.start(TIMEOUT_S)
    try:
        _, stat = client.get(REGISTRATION)
        return int(stat.czxid)
    finally:
        client.stop()
        client.close()


@pytest.mark.jvm
def test_a_session_outlives_the_leader_and_then_the_majority_of_the_ensemble(
    three_servers: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    properties = {"broker.id": "0", "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    zookeeper = three_servers.connect + CHROOT
    with kctl_broker(tmp_path / "broker", properties=properties, zookeeper=zookeeper) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})

        def create(topic: str) -> None:
            admin.create_topics([NewTopic(topic, 2, 1)], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)

        def produce(topic: str) -> None:
            producer.produce(topic, b"value")
            assert producer.flush(TIMEOUT_S) == 0

        create("first")
        registered = registered_at(three_servers)

        lost = three_servers.wait_until_led(followers=2)
        lost.kill9()
        leader = three_servers.wait_until_led(followers=1)
        create("second")
        produce("second")

        leader.kill9()
        produce("first")  # The broker still leads, and its session has not expired.
        lost.start()
        leader.start()
        create("third")
        produce("third")
        assert registered_at(three_servers) == registered
