"""`kctl doctor` beside real brokers: ours and Apache Kafka's in states that were made on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.cli.conftest import Kctl, ThreeBrokers, command_line
from tests.peers.probe import wait_until

TIMEOUT_S = 60


def findings(kctl: Kctl, rule: str, about: str, line: str = "doctor") -> list[dict[str, Any]]:
    """The findings of a rule whose subject or cause has this text; other tests use the same brokers."""
    ran = kctl(f"{line} --format json")
    assert ran.status in {0, 3}, ran.err
    return [
        finding
        for finding in json.loads(ran.out)["findings"]
        if finding["rule"] == rule and about in f"{finding['subject']} {finding['cause']}"
    ]


def test_a_group_that_an_open_transaction_blocks(kctl: Kctl, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(TIMEOUT_S)
    settings = {"bootstrap.servers": bootstrap, "group.id": f"group-{topic}", "enable.auto.commit": False}
    reader = Consumer(settings)
    reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    try:
        (found,) = findings(kctl, "groups", f"group-{topic} waits at offset 0")
        assert found["severity"] == "error"
        assert "1 unread record" in found["evidence"]
        if kctl("transactions list").status == 0:  # Before Kafka 3.0 nobody says whose the transaction is.
            assert f"tx-{topic}" in found["cause"]
            assert f"transactional.id=tx-{topic}" in found["repair"]
            # The command of the finding shows the transaction.
            assert topic in kctl(found["look"].removeprefix("kctl ")).out
        producer.commit_transaction(TIMEOUT_S)
        wait_until(
            lambda: not findings(kctl, "groups", f"group-{topic} waits"),
            what="the end of the wait",
            timeout_s=TIMEOUT_S,
        )
        (found,) = findings(kctl, "groups", f"group-{topic} has stopped")
        assert found["severity"] == "warning"
    finally:
        reader.close()


def test_a_snapshot_is_diagnosed_later_as_now(kctl: Kctl, topic: str, tmp_path: Path) -> None:
    saved = kctl("doctor --snapshot")
    assert saved.status == 0
    file = tmp_path / "cluster.json"
    file.write_text(saved.out)
    nobody = command_line({"KCTL_BOOTSTRAP_SERVER": "127.0.0.1:1"})
    ran = nobody(f"doctor --from {file} --format json")
    assert ran.status in {0, 3}, ran.err
    assert topic in {topic["name"] for topic in json.loads(saved.out)["topics"]}
    assert json.loads(ran.out)["topics"] == len(json.loads(saved.out)["topics"])
    assert nobody("doctor --from /dev/null").status == 2
    assert nobody("doctor").status == 4
    assert kctl("doctor --silence durable").status == 2
    assert kctl("doctor --fail-on never").status == 2


@pytest.mark.parametrize("three_brokers", ["kctl"], indirect=True)
def test_brokers_that_are_well(operate: Kctl, three_brokers: ThreeBrokers) -> None:
    name = f"well-{three_brokers.kind}"
    assert operate(f"topics create {name} --partitions 3 --replication-factor 1").status == 0
    ran = operate("doctor --format json --fail-on critical")
    assert ran.status == 0, ran.out
    document = json.loads(ran.out)
    assert document["brokers"] == 3
    assert not document["unseen"]
    assert findings(operate, "durability", "with one replica")
