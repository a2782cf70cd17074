"""A broker whose certificate is wrong gets nothing from the others, and they send it nothing; each says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.config.properties import format_properties
from tests.peers.certificates import PASSWORD, CertificateAuthority, Identity
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.probe import accepts, free_port, wait_until
from tests.peers.process import KctlProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(200)]

TOPIC = "orders"
TIMEOUT_S = 60


def properties(number: int, zookeeper: str, plain: str, own: Identity, trusted: CertificateAuthority) -> dict[str, str]:
    """Mutual TLS between brokers, and plain text for the client of the test."""
    return {
        "broker.id": str(number),
        "zookeeper.connect": zookeeper,
        "listeners": f"PLAINTEXT://{plain},BROKERS://localhost:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.brokers.ssl.client.auth": "required",
        "ssl.keystore.location": str(own.pkcs12),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(trusted.pem),
        "replica.lag.time.max.ms": "1000",
        "auto.create.topics.enable": "false",
    }


@pytest.mark.parametrize(
    ("fault", "reason"), [("another host", "Hostname mismatch|another host name"), ("unknown authority", "not trusted")]
)
def test_a_broker_with_a_wrong_certificate_stays_outside(tmp_path: Path, fault: str, reason: str) -> None:
    authority = CertificateAuthority.create(tmp_path)
    other_authority = CertificateAuthority.create(tmp_path, "Other authority")
    issuer, hosts = (
        (other_authority, ["localhost"]) if fault == "unknown authority" else (authority, ["elsewhere.example"])
    )
    identities = [authority.issue("broker-0", hosts=["localhost"]), issuer.issue("broker-1", hosts=hosts)]
    plain = [f"127.0.0.1:{free_port()}" for _ in identities]
    started: list[KctlProcess] = []
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        try:
            for number, own in enumerate(identities):
                settings = tmp_path / f"broker-{number}.properties"
                settings.write_text(
                    format_properties(properties(number, zookeeper.connect, plain[number], own, authority))
                )
                words = ["broker", "start", "--config", str(settings), "--data-dir", str(tmp_path / f"{number}")]
                started.append(KctlProcess(f"broker {number}", words, log=tmp_path / f"broker-{number}.log"))
                started[-1].wait_until(lambda at=plain[number]: accepts(at), timeout_s=TIMEOUT_S)  # type: ignore[misc]
            controller, outside = started
            wait_until(
                lambda: re.search(reason, controller.log_text) is not None, what="the reason", timeout_s=TIMEOUT_S
            )
            wait_until(lambda: knows_both(asking(plain[0])), what="both", timeout_s=TIMEOUT_S)
            wait_until(lambda: is_created(asking(plain[0])), what="the topic", timeout_s=TIMEOUT_S)
            wait_until(lambda: in_sync(asking(plain[0])) == [0], what="an ISR without the other", timeout_s=TIMEOUT_S)
            assert not (tmp_path / "1" / "logs" / f"{TOPIC}-0").exists()
            assert "Traceback" not in controller.log_text + outside.log_text
        finally:
            for process in reversed(started):
                process.stop()


def asking(bootstrap: str) -> AdminClient:
    """A new client: one that knows both brokers may ask the broker outside, which knows none, again and again."""
    return AdminClient({"bootstrap.servers": bootstrap})


def knows_both(admin: AdminClient) -> bool:
    try:
        return len(admin.list_topics(timeout=5).brokers) == 2
    except KafkaException:  # The client has asked the broker outside, which knows no brokers.
        return False


def is_created(admin: AdminClient) -> bool:
    try:
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[0, 1]])], request_timeout=10)[TOPIC].result(20)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def in_sync(admin: AdminClient) -> list[int]:
    try:
        found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
    except KafkaException:
        return []
    return list(found[0].isrs) if found else []
