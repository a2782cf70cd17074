"""Three brokers move from plain text to TLS and SCRAM, one restart at a time, while producers write."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kctl.config.properties import format_properties
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.peers.probe import accepts, free_port
from tests.peers.process import KctlProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(280)]

BROKERS = range(3)
USER, SECRET = "broker", "rolling-secret-5521"
TOPIC = "orders"
DEADLINE_S = 60
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class Cluster:
    """Three brokers whose properties can be changed between restarts."""

    def __init__(self, folder: Path, authority: CertificateAuthority) -> None:
        self.folder = folder
        self.authority = authority
        self.zookeeper = EmbeddedZooKeeperProcess(folder / "zookeeper")
        self.plain = [f"127.0.0.1:{free_port()}" for _ in BROKERS]
        self.secure = [f"localhost:{free_port()}" for _ in BROKERS]
        self.processes: dict[int, KctlProcess] = {}

    def properties(self, number: int, listeners: str, inter_broker: str) -> dict[str, str]:
        addresses = {"PLAINTEXT": self.plain[number], "SASL_SSL": self.secure[number]}
        return {
            "broker.id": str(number),
            "zookeeper.connect": self.zookeeper.connect,
            "listeners": ",".join(f"{name}://{addresses[name]}" for name in listeners.split()),
            "security.inter.broker.protocol": inter_broker,
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                f'{SCRAM} username="{USER}" password="{SECRET}";'
            ),
            "ssl.keystore.location": str(self.authority.issue(f"broker-{number}", hosts=("localhost",)).pkcs12),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": str(self.authority.pem),
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.retry.backoff.ms": "200",
            "replica.lag.time.max.ms": "5000",
        }

    def start(self, number: int, listeners: str, inter_broker: str) -> None:
        settings = self.folder / f"broker-{number}.properties"
        settings.write_text(format_properties(self.properties(number, listeners, inter_broker)))
        settings.chmod(0o600)
        data = self.folder / f"broker-{number}"
        words = ["broker", "start", "--config", str(settings), "--data-dir", str(data)]
        process = KctlProcess(f"broker {number}", words, log=self.folder / f"broker-{number}.log")
        self.processes[number] = process
        address = self.plain[number] if "PLAINTEXT" in listeners else self.secure[number]
        process.wait_until(lambda: accepts(address), timeout_s=DEADLINE_S)

    def roll(self, listeners: str, inter_broker: str, admin: AdminClient) -> None:
        """Restarts one broker after the other; each is in sync again before the next one stops."""
        for number in BROKERS:
            assert self.processes[number].stop() == 0, self.processes[number].log_text
            self.start(number, listeners, inter_broker)
            eventually(f"broker {number} is in sync", lambda: in_sync(admin))

    def client(self, *, secure: bool) -> dict[str, Any]:
        if not secure:
            return {"bootstrap.servers": ",".join(self.plain)}
        return {
            "bootstrap.servers": ",".join(self.secure),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": SECRET,
            "ssl.ca.location": str(self.authority.pem),
        }


def eventually(what: str, is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, f"in {DEADLINE_S} s it did not happen that {what}"
        threading.Event().wait(0.05)


def in_sync(admin: AdminClient) -> bool:
    with contextlib.suppress(Exception):
        found = admin.list_topics(TOPIC, timeout=5)
        partitions = found.topics[TOPIC].partitions.values()
        return len(found.brokers) == 3 and all(
            len(partition.isrs) == 3 and partition.leader >= 0 for partition in partitions
        )
    return False


@contextlib.contextmanager
def producing(settings: Mapping[str, Any], name: str, acknowledged: set[str]) -> Iterator[None]:
    """A producer that writes numbered records in a thread until the end of the block."""
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    stop = threading.Event()
    problems: list[object] = []

    def delivered(error: object, message: Any) -> None:
        if error:
            problems.append(error)
        else:
            acknowledged.add(message.value().decode())

    def produce() -> None:
        number = 0
        while not stop.wait(0.005):
            producer.produce(TOPIC, f"{name}-{number}", on_delivery=delivered)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert producer.flush(DEADLINE_S) == 0
        assert not problems


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path, CertificateAuthority.create(tmp_path))
    started.zookeeper.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda number: started.start(number, "PLAINTEXT", "PLAINTEXT"), BROKERS))
        yield started
    finally:
        for process in started.processes.values():
            process.stop()
        started.zookeeper.kill9()


def test_no_acknowledged_record_is_lost(cluster: Cluster) -> None:
    plain, secure = cluster.client(secure=False), cluster.client(secure=True)
    admin = AdminClient(plain)
    eventually("all brokers are known", lambda: len(admin.list_topics(timeout=5).brokers) == 3)
    admin.create_topics([NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, SECRET.encode())])[USER].result(30)
    acknowledged: set[str] = set()

    with producing(plain, "plain", acknowledged):
        cluster.roll("PLAINTEXT SASL_SSL", "PLAINTEXT", admin)
        cluster.roll("PLAINTEXT SASL_SSL", "SASL_SSL", admin)
    secure_admin = AdminClient(secure)
    with producing(secure, "secure", acknowledged):
        cluster.roll("SASL_SSL", "SASL_SSL", secure_admin)

    consumer = Consumer({**secure, "group.id": "all", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: set[str] = set()

    def has_read_all() -> bool:
        values = (message.value() for message in consumer.consume(1_000, 0.5) if not message.error())
        found.update(value.decode() for value in values if value is not None)
        return found >= acknowledged

    eventually("all acknowledged records are read", has_read_all)
    consumer.close()
    assert any(value.startswith("plain") for value in acknowledged)
    assert any(value.startswith("secure") for value in acknowledged)
    assert not any(accepts(address) for address in cluster.plain)
    assert SECRET not in "".join(process.log_text for process in cluster.processes.values())
