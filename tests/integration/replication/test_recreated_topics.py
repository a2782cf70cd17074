"""Topics that are deleted and created again at once, as test suites do between two tests."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic

from tests.integration.replication.conftest import TIMEOUT_S, Racks

ROUNDS = 8


def test_a_deleted_topic_can_be_created_again_at_once(racks: Racks) -> None:
    """With other partitions and another configuration each time, which all brokers have afterwards."""
    for number in range(1, ROUNDS + 1):
        new = NewTopic("again", number, 1 + number % 3, config={"retention.ms": f"{number}00000"})
        racks.admin.create_topics([new])["again"].result(TIMEOUT_S)
        if number < ROUNDS:
            racks.admin.delete_topics(["again"])["again"].result(TIMEOUT_S)
    for broker in racks.brokers:
        command = f"topics describe again --format json -b {broker.bootstrap}"
        racks.until(
            f"{broker.bootstrap} has the last topic",
            lambda command=command: racks.kctl(command).stdout.count('"isr"') == ROUNDS,  # type: ignore[misc]
        )
    racks.produce("again", 10, size=100)
    assert f"{ROUNDS}00000" in racks.run("configs describe topic again --format json")
