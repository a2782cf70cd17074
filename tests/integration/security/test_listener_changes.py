"""Listeners that are added and removed while the broker runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.peers import probe
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.kctl_broker import KctlBroker, kctl_broker

TIMEOUT_S = 60
USER, USER_PASSWORD = "alice", "alice-secret-8461"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{USER_PASSWORD}" user_{USER}="{USER_PASSWORD}";'
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KctlBroker]:
    port = probe.free_port()
    properties = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "password.encoder.secret": "encoder-secret-8462"}
    with kctl_broker(tmp_path / "data", properties=properties, port=port) as one:
        yield one


def alter(broker: KctlBroker, properties: Mapping[str, str | None]) -> None:
    """Sets properties of the broker, or deletes those with None."""
    entries = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in properties.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [result] = admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values()
    result.result()


def produced(settings: Mapping[str, str]) -> bool:
    """Whether one record could be produced through a listener."""
    producer = Producer({"message.timeout.ms": "60000", "acks": "all", **settings})
    errors: list[object] = []
    producer.produce("through-listeners", b"value", on_delivery=lambda error, _: errors.append(error))
    return producer.flush(TIMEOUT_S) == 0 and errors == [None]


def test_a_tls_and_sasl_listener_opens_serves_survives_a_restart_and_closes(broker: KctlBroker, tmp_path: Path) -> None:
    authority = CertificateAuthority.create(tmp_path)
    server = authority.issue("server")
    port = probe.free_port()
    alter(
        broker,
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},EXTRA://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},EXTRA://localhost:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:SASL_SSL",
            "listener.name.extra.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.extra.plain.sasl.jaas.config": JAAS,
            "listener.name.extra.ssl.keystore.location": str(server.jks),
            "listener.name.extra.ssl.keystore.password": PASSWORD,
        },
    )
    settings = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(authority.pem),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": USER_PASSWORD,
    }
    assert produced(settings)
    broker.restart()
    assert produced(settings)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        alter(broker, {"listeners": None, "advertised.listeners": None, "listener.security.protocol.map": None})
        assert connection.recv(1) == b"", "its connections are closed"
    assert not probe.accepts(f"127.0.0.1:{port}")
    assert produced({"bootstrap.servers": broker.bootstrap})
    assert USER_PASSWORD not in broker.log_text


def test_a_port_can_move_to_a_listener_with_another_name(broker: KctlBroker) -> None:
    own, port = broker.bootstrap, probe.free_port()
    protocols = "PLAINTEXT:PLAINTEXT,FIRST:PLAINTEXT,SECOND:PLAINTEXT"
    for name in ("FIRST", "SECOND"):
        listeners = f"PLAINTEXT://{own},{name}://127.0.0.1:{port}"
        alter(broker, {"listener.security.protocol.map": protocols, "listeners": listeners})
        opened = f"opened listener listener={name}"
        probe.wait_until(lambda: opened in broker.log_text, what=opened, timeout_s=TIMEOUT_S)  # noqa: B023
        assert produced({"bootstrap.servers": f"127.0.0.1:{port}"})
    assert "closed listener listener=FIRST" in broker.log_text


def test_changes_that_cannot_be_used_are_refused_and_the_listeners_stay(broker: KctlBroker) -> None:
    own = broker.bootstrap
    protocols = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,SECURE:SSL,USERS:SASL_PLAINTEXT"
    }
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused: dict[str, Mapping[str, str | None]] = {
            "is in use": {**protocols, "listeners": f"PLAINTEXT://{own},EXTRA://127.0.0.1:{port}"},
            "has no security protocol": {"listeners": f"PLAINTEXT://{own},UNKNOWN://127.0.0.1:0"},
            "is not an address": {"listeners": "nonsense"},
            "not advertised": {**protocols, "listeners": "EXTRA://127.0.0.1:0"},
            "which listeners does not have": {"advertised.listeners": f"PLAINTEXT://{own},SSL://127.0.0.1:9"},
            "the address of listener PLAINTEXT cannot change": {"listeners": f"PLAINTEXT://127.0.0.1:{port}"},
            "the security protocol of listener PLAINTEXT cannot change": {
                "listener.security.protocol.map": "PLAINTEXT:SSL",
                "security.inter.broker.protocol": None,
            },
            "ssl.keystore": {**protocols, "listeners": f"PLAINTEXT://{own},SECURE://127.0.0.1:0"},
            "sasl": {**protocols, "listeners": f"PLAINTEXT://{own},USERS://127.0.0.1:0"},
        }
        for reason, properties in refused.items():
            changes = {name: value for name, value in properties.items() if value is not None}
            with pytest.raises(KafkaException) as raised:
                alter(broker, changes)
            assert reason in str(raised.value), (reason, str(raised.value))
    assert produced({"bootstrap.servers": own})
    broker.restart()
    assert produced({"bootstrap.servers": own})
