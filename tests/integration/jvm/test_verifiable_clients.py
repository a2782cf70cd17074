"""Apache Kafka's VerifiableProducer and VerifiableConsumer, old and new, write and read back through our broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.clients.confluent import Confluent
from tests.peers.apache_kafka import NEWEST, OLDEST_JUDGE, run_java_tool
from tests.peers.kctl_broker import KctlBroker

pytestmark = pytest.mark.jvm

COUNT = 500
PARTITIONS = 3


@pytest.mark.parametrize(("writer", "reader"), [(OLDEST_JUDGE, NEWEST), (NEWEST, OLDEST_JUDGE)])
def test_java_clients_read_records_of_java_clients(broker: KctlBroker, writer: str, reader: str) -> None:
    topic = f"written-by-{writer}-read-by-{reader}"
    Confluent(broker.bootstrap).create_topic(topic, PARTITIONS)
    count = str(COUNT)

    written = _run(writer, "VerifiableProducer", broker, topic, "--max-messages", count, "--acks", "-1")
    sent = {
        (event["partition"], event["offset"], event["value"])
        for event in written
        if event["name"] == "producer_send_success"
    }
    assert len(sent) == COUNT

    options = ("--max-messages", count, "--group-id", topic, "--reset-policy", "earliest", "--verbose")
    events = _run(reader, "VerifiableConsumer", broker, topic, *options)
    read = [(event["partition"], event["offset"], event["value"]) for event in _named(events, "record_data")]
    assert sorted(read) == sorted(sent)
    assert all(event["success"] for event in _named(events, "offsets_committed"))
    committed = {
        offset["partition"]: offset["offset"]
        for event in _named(events, "offsets_committed")
        for offset in event["offsets"]
    }
    assert sum(committed.values()) == COUNT


def _run(version: str, tool: str, broker: KctlBroker, topic: str, *options: str) -> list[dict[str, Any]]:
    finished = run_java_tool(
        version,
        f"org.apache.kafka.tools.{tool}",
        ["--bootstrap-server", broker.bootstrap, "--topic", topic, *options],
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]


def _named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]
