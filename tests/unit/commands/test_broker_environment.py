"""Properties in environment variables, as compose files for Kafka's images set them."""

from __future__ import annotations

import pytest

from kctl.commands.broker.environment import properties_of_environment
from kctl.errors import ConfigError

KRAFT = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}


def test_names_become_those_of_properties() -> None:
    given = {
        "KAFKA_LOG_RETENTION_MS": "1000",
        "KAFKA_SSL_CLIENT_AUTH": "none",
        "KAFKA_CONFLUENT_A___B__C": "x",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "PATH": "/bin",
    }
    assert properties_of_environment(given) == (
        {"log.retention.ms": "1000", "ssl.client.auth": "none", "confluent.a-b_c": "x"},
        (),
    )


def test_a_single_kraft_node_becomes_a_broker() -> None:
    properties, notes = properties_of_environment(KRAFT)
    assert properties == {
        "broker.id": "1",
        "listeners": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://0.0.0.0:9092",
        "advertised.listeners": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "offsets.topic.replication.factor": "1",
    }
    (note,) = notes
    assert note.startswith("controller.listener.names, controller.quorum.voters, process.roles: without effect")


def test_listeners_are_those_that_are_advertised_unless_they_are_given() -> None:
    given = {"KAFKA_ADVERTISED_LISTENERS": "A://kafka:29092, B://[::1]:9092", "KAFKA_ZOOKEEPER_CONNECT": "zoo:2181"}
    assert properties_of_environment(given).properties["listeners"] == "A://0.0.0.0:29092,B://0.0.0.0:9092"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"KAFKA_PROCESS_ROLES": "controller"}, "leave this node out"),
        ({"KAFKA_PROCESS_ROLES": "broker"}, "set KAFKA_ZOOKEEPER_CONNECT"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:1,2@b:1"}, "set KAFKA_ZOOKEEPER_CONNECT"),
    ],
)
def test_what_cannot_be_a_broker_is_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        properties_of_environment(KRAFT | changed)
    if "ZOOKEEPER" in message:
        found = properties_of_environment(KRAFT | changed | {"KAFKA_ZOOKEEPER_CONNECT": "zoo:2181"}).properties
        assert found["zookeeper.connect"] == "zoo:2181"
