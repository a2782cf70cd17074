"""One cluster of kctl and Apache Kafka brokers: each may be controller, leader and follower, replicas end up equal."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, apache_kafka, run_java_tool, why_not
from tests.peers.apache_zookeeper import apache_zookeeper
from tests.peers.apache_zookeeper import why_not as why_no_zookeeper
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.probe import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

OURS, THEIRS = 1, 10
SHARED = {
    "inter.broker.protocol.version": "2.6",
    "offsets.topic.replication.factor": "2",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
TOPIC = "mixed"
MOVED_TOOLS = {
    "kafka.admin.TopicCommand": "org.apache.kafka.tools.TopicCommand",
    "kafka.admin.LeaderElectionCommand": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka.admin.ReassignPartitionsCommand": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
"""The names of the 2.8 tools in 3.x."""
RECORDS = 3_000
DEADLINE_S = 60
POLL_S = 0.2


def eventually(what: str, is_true: Callable[[], bool]) -> None:
    """Waits for the condition; names it in the error."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, f"in {DEADLINE_S} s it did not happen that {what}"
        Event().wait(POLL_S)


class Cluster:
    """The cluster as a client and an administrator see it."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.sent = 0

    @property
    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=DEADLINE_S).controller_id)

    def partitions(self) -> dict[int, tuple[int, list[int], set[int]]]:
        """Leader, replicas and in-sync replicas."""
        found = self.admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions
        return {index: (p.leader, list(p.replicas), set(p.isrs)) for index, p in found.items()}

    def leaders(self) -> dict[int, int]:
        return {index: leader for index, (leader, _, _) in self.partitions().items()}

    def produce(self) -> None:
        """Writes more records, all of them acknowledged by all in-sync replicas."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})
        failures: list[object] = []
        for number in range(self.sent, self.sent + RECORDS):
            producer.produce(
                TOPIC, f"value {number}", f"key {number}", on_delivery=lambda e, _: failures.append(e) if e else None
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures
        self.sent += RECORDS

    def consume(self) -> list[str]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "x", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in self.partitions()])
        values: list[str] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < self.sent and time.monotonic() < deadline:
            values += [
                (message.value() or b"").decode() for message in consumer.consume(1000, 1) if message.error() is None
            ]
        consumer.close()
        return values

    def tool(self, main_class: str, *args: str) -> str:
        if self.version != OLDEST_JUDGE:
            main_class = MOVED_TOOLS.get(main_class, main_class)
        done = run_java_tool(self.version, main_class, ["--bootstrap-server", self.bootstrap, *args])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def segment(folder: Path, partition: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / f"{TOPIC}-{partition}").glob("*.log")))


def are_equal(ours: Path, theirs: Path) -> bool:
    return all(segment(ours, index) == segment(theirs, index) for index in (0, 1))


def secured(authority: CertificateAuthority, name: str, port: int) -> dict[str, str]:
    """Properties of a broker with TLS and SASL between brokers, and plain text for clients."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},BROKERS://localhost:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.brokers.plain.sasl.jaas.config": (
            f'{module} username="kafka" password="broker-secret" user_kafka="broker-secret";'
        ),
        "listener.name.brokers.ssl.client.auth": "required",
        "listener.name.brokers.ssl.keystore.type": "PKCS12",
        "listener.name.brokers.ssl.keystore.location": str(authority.issue(name, hosts=("localhost",)).pkcs12),
        "listener.name.brokers.ssl.keystore.password": PASSWORD,
        "listener.name.brokers.ssl.truststore.type": "PKCS12",
        "listener.name.brokers.ssl.truststore.location": str(authority.pkcs12),
        "listener.name.brokers.ssl.truststore.password": PASSWORD,
    }


@pytest.mark.parametrize(
    ("version", "is_secured"),
    [(OLDEST_JUDGE, True), pytest.param(LAST_WITH_ZOOKEEPER, False, marks=pytest.mark.matrix)],
    ids=["2.8-sasl-ssl", "3.9-plaintext"],
)
def test_kctl_and_apache_kafka_brokers_form_one_cluster(version: str, is_secured: bool, tmp_path: Path) -> None:
    if reason := why_not() or why_no_zookeeper():
        pytest.skip(reason)
    their_folder, our_folder = tmp_path / "theirs", tmp_path / "ours"
    their_port, our_port = free_port(), free_port()
    settings, ours = {"broker.id": str(THEIRS), **SHARED}, {"broker.id": str(OURS), **SHARED}
    if is_secured:
        authority = CertificateAuthority.create(tmp_path)
        settings |= secured(authority, "theirs", their_port)
        ours |= secured(authority, "ours", our_port)

    with apache_zookeeper(tmp_path / "zookeeper") as connect, contextlib.ExitStack() as theirs:

        def start_theirs() -> None:
            theirs.enter_context(
                apache_kafka(version, their_folder, zookeeper=connect, port=their_port, properties=settings)
            )

        start_theirs()
        with kctl_broker(our_folder, zookeeper=connect, port=our_port, properties=ours) as broker:
            cluster = Cluster(version, f"{broker.bootstrap},127.0.0.1:{their_port}")
            their_controller_drives_both(cluster, broker, their_folder / "logs")
            theirs.close()
            ours_takes_over_and_theirs_comes_back(cluster, broker, start_theirs, their_folder / "logs")
            our_controller_obeys_their_tools(cluster, broker, tmp_path, their_folder / "logs")
            theirs_takes_over_when_ours_restarts(cluster, broker, their_folder / "logs")


def their_controller_drives_both(cluster: Cluster, broker: KctlBroker, their_logs: Path) -> None:
    assert cluster.controller == THEIRS
    created = cluster.admin.create_topics([NewTopic(TOPIC, 2, replica_assignment=[[OURS, THEIRS], [THEIRS, OURS]])])
    created[TOPIC].result(30)
    eventually("both lead one partition", lambda: cluster.leaders() == {0: OURS, 1: THEIRS})
    cluster.produce()
    eventually("the replicas are equal", lambda: are_equal(broker.logs_dir, their_logs))
    assert len(set(cluster.consume())) == cluster.sent


def ours_takes_over_and_theirs_comes_back(
    cluster: Cluster, broker: KctlBroker, start_theirs: Callable[[], None], their_logs: Path
) -> None:
    eventually("ours leads all", lambda: cluster.leaders() == {0: OURS, 1: OURS})
    eventually("ours controls", lambda: cluster.controller == OURS)
    cluster.produce()
    start_theirs()
    eventually(
        "theirs is in sync again", lambda: all(isr == {OURS, THEIRS} for _, _, isr in cluster.partitions().values())
    )
    cluster.produce()
    eventually("the replicas are equal", lambda: are_equal(broker.logs_dir, their_logs))


def our_controller_obeys_their_tools(cluster: Cluster, broker: KctlBroker, tmp_path: Path, their_logs: Path) -> None:
    assert cluster.controller == OURS
    described = cluster.tool("kafka.admin.TopicCommand", "--describe", "--topic", TOPIC)
    assert f"Topic: {TOPIC}\tPartition: 1\tLeader: {OURS}\tReplicas: {THEIRS},{OURS}" in described

    elected = cluster.tool(
        "kafka.admin.LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"
    )
    assert f"{TOPIC}-1" in elected
    eventually("both lead one partition again", lambda: cluster.leaders() == {0: OURS, 1: THEIRS})

    altered = ("--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", "retention.ms=99999999")
    cluster.tool("kafka.admin.ConfigCommand", *altered)
    describe = ("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", TOPIC)
    eventually("the tool shows what it has altered", lambda: "retention.ms=99999999" in cluster.tool(*describe))

    for replicas in ([THEIRS], [OURS], [OURS, THEIRS]):
        plan = tmp_path / "plan.json"
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": replicas}]})
        )
        reassign = "kafka.admin.ReassignPartitionsCommand"
        cluster.tool(reassign, "--reassignment-json-file", str(plan), "--execute")
        eventually(f"partition 0 is on {replicas}", lambda: cluster.partitions()[0][1:] == (replicas, set(replicas)))  # noqa: B023
        cluster.produce()
    eventually("the replicas are equal", lambda: are_equal(broker.logs_dir, their_logs))
    assert len(set(cluster.consume())) == cluster.sent


def theirs_takes_over_when_ours_restarts(cluster: Cluster, broker: KctlBroker, their_logs: Path) -> None:
    broker.stop()
    eventually("theirs controls", lambda: cluster.controller == THEIRS)
    eventually("theirs leads all", lambda: cluster.leaders() == {0: THEIRS, 1: THEIRS})
    cluster.produce()
    broker.start()
    eventually(
        "ours is in sync again", lambda: all(isr == {OURS, THEIRS} for _, _, isr in cluster.partitions().values())
    )
    eventually("the replicas are equal", lambda: are_equal(broker.logs_dir, their_logs))
    assert len(set(cluster.consume())) == cluster.sent
