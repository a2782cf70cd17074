"""Leaders and controllers of Apache Kafka 2.8 and ours agree on in-sync replicas through AlterIsr.  KIP-497.

With the default inter.broker.protocol.version of 2.8 a leader has no other way to change them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers import apache_kafka
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(400)]

OURS, FOLLOWER, THEIRS = 1, 2, 10
TIMEOUT_S = 120
RESPONSE_S = 3
PROPERTIES = {
    "inter.broker.protocol.version": "2.8",
    "replica.lag.time.max.ms": "3000",
    "controlled.shutdown.enable": "false",
    "auto.leader.rebalance.enable": "false",
    # A stopped process keeps its session, so its leaders remove it from the ISR.
    "zookeeper.session.timeout.ms": "40000",
}
LED = {"led-by-ours": OURS, "led-by-theirs": THEIRS}


class Mixed:
    """Two brokers of kctl and one of Apache Kafka; `follower` is one of kctl that leads nothing."""

    def __init__(self, bootstrap: str, follower: KctlBroker) -> None:
        self.bootstrap = bootstrap
        self.follower = follower
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        # Drops its connection to the stopped broker, which it would otherwise use for a minute.
        self._watching = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": RESPONSE_S * 1000})

    def create(self) -> None:
        topics = [NewTopic(topic, 1, replica_assignment=[[leader, FOLLOWER]]) for topic, leader in LED.items()]
        for created in self.admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        self.until_isr("all replicas are in sync", {topic: {leader, FOLLOWER} for topic, leader in LED.items()})

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "1"})
        for topic in LED:
            producer.produce(topic, b"which the follower has not")
        assert producer.flush(TIMEOUT_S) == 0

    def isr(self) -> dict[str, set[int]]:
        """The ISR in the metadata of any broker; one may not have the topic yet or may be stopped."""
        try:
            known = self._watching.list_topics(timeout=RESPONSE_S).topics
        except KafkaException:
            return {}
        return {topic: set(known[topic].partitions[0].isrs) for topic in LED if topic in known}

    def until_isr(self, what: str, expected: dict[str, set[int]]) -> None:
        wait_until(lambda: self.isr() == expected, what=what, timeout_s=TIMEOUT_S, interval_s=0.2)


@contextlib.contextmanager
def mixed(folder: Path, controller: int) -> Iterator[Mixed]:
    """`controller` starts first and so becomes the controller."""
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(embedded_zookeeper(folder / "zookeeper"))

        def theirs() -> str:
            return stack.enter_context(
                apache_kafka.apache_kafka(
                    apache_kafka.OLDEST_JUDGE,
                    folder / "theirs",
                    zookeeper=zookeeper.connect,
                    properties=PROPERTIES | {"broker.id": str(THEIRS)},
                )
            )

        def ours(number: int) -> KctlBroker:
            properties = PROPERTIES | {"broker.id": str(number)}
            return stack.enter_context(
                kctl_broker(folder / f"broker-{number}", zookeeper=zookeeper.connect, properties=properties)
            )

        addresses = [theirs(), ours(OURS).bootstrap] if controller == THEIRS else [ours(OURS).bootstrap, theirs()]
        cluster = Mixed(",".join(addresses), ours(FOLLOWER))
        wait_until(
            lambda: cluster.admin.list_topics(timeout=TIMEOUT_S).controller_id == controller,
            what="the first broker is known as the controller",
            timeout_s=TIMEOUT_S,
            interval_s=0.2,
        )
        yield cluster


@pytest.mark.parametrize("controller", [OURS, THEIRS])
def test_leaders_shrink_and_expand_in_sync_replicas_through_the_controller(controller: int, tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with mixed(tmp_path, controller) as cluster:
        cluster.create()
        os.kill(cluster.follower.pid, signal.SIGSTOP)
        try:
            cluster.produce()
            cluster.until_isr("the leaders are alone", {topic: {leader} for topic, leader in LED.items()})
        finally:
            os.kill(cluster.follower.pid, signal.SIGCONT)
        cluster.until_isr(
            "all replicas are in sync again", {topic: {leader, FOLLOWER} for topic, leader in LED.items()}
        )
