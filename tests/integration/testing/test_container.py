"""The class that stands for testcontainers' KafkaContainer."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from kctl.testing import KafkaContainer
from tests.integration.testing.applications import TIMEOUT_S


def test_a_test_of_testcontainers_changes_one_import() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "3")
    with container.with_env("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://kafka:9092") as kafka:
        host, _, port = kafka.get_bootstrap_server().rpartition(":")
        assert (kafka.get_container_host_ip(), kafka.get_exposed_port(9093)) == (host, int(port))
        admin = AdminClient({"bootstrap.servers": kafka.get_bootstrap_server(), "allow.auto.create.topics": True})
        assert admin.list_topics(timeout=TIMEOUT_S).brokers
        assert kafka.broker is not None
        assert kafka.broker.properties["num.partitions"] == "3"
        assert b"broker serving on" in kafka.get_logs()[0]
        with pytest.raises(ValueError, match="port 1 is not exposed, only 9093"):
            kafka.get_exposed_port(1)
    with pytest.raises(RuntimeError, match="has not been started"):
        container.get_bootstrap_server()
