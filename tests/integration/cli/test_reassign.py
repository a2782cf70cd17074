"""Reassignments and their throttles on three brokers, compared with the output of Kafka's own tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import BROKERS, Kctl, ThreeBrokers
from tests.peers import apache_kafka, probe

RATE = "leader.replication.throttled.rate"
TOOLS = {
    apache_kafka.OLDEST_JUDGE: ("kafka.admin.ReassignPartitionsCommand", "kafka-2.8"),
    apache_kafka.LAST_WITH_ZOOKEEPER: ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "kafka-3"),
}
RECORD = b"x" * 1_000
TIMEOUT_S = 60


def filled(operate: Kctl, name: str, assignment: str, *, kilobytes: int) -> str:
    assert operate(f"topics create {name} --replica-assignment {assignment}").status == 0
    produced = operate(f"produce {name} --compression-codec none --partition 0", stdin=(RECORD + b"\n") * kilobytes)
    assert produced.status == 0, produced.err
    return name


def throttles(operate: Kctl, topic: str) -> dict[str, str]:
    """The throttle properties of brokers and the topic, by owner and property."""
    items = operate("configs describe broker --format json").document
    items += operate(f"configs describe topic {topic} --format json").document
    return {
        f"{item['name']} {config['property']}": config["value"]
        for item in items
        for config in item["configs"]
        if "throttled" in config["property"]
    }


def replicas(operate: Kctl, topic: str) -> list[int]:
    """The replicas of partition 0."""
    (item,) = operate(f"topics describe {topic} --format json").document
    found: list[int] = item["partitions"][0]["replicas"]
    return found


def holders(operate: Kctl) -> set[int]:
    """The brokers that have a replica of any partition."""
    topics = operate("topics describe --format json").document
    return {broker for topic in topics for partition in topic["partitions"] for broker in partition["replicas"]}


def test_throttled_move_restores_the_previous_settings(operate: Kctl) -> None:
    topic = filled(operate, "moved", "0:1,1:2", kilobytes=300)
    assert operate(f"configs alter broker 1 --set {RATE}=777777").status == 0
    assert operate(f"configs alter topic {topic} --set leader.replication.throttled.replicas=1:1").status == 0
    before = {f"1 {RATE}": "777777", f"{topic} leader.replication.throttled.replicas": "1:1"}
    probe.wait_until(lambda: throttles(operate, topic) == before, what="throttles of others", timeout_s=TIMEOUT_S)

    line = f"reassign execute {topic}:0=1,2 --throttle 1m --format json"
    (planned,) = operate(f"{line} --dry-run").document
    assert (planned["status"], planned["adding"], planned["removing"]) == ("would move", [2], [0])
    assert planned["bytes_to_move"] > 300_000
    ran = operate(f"{line} --wait")
    assert (ran.status, ran.document) == (0, [planned | {"status": "complete"}]), ran.err
    (item,) = operate(f"topics describe {topic} --format json").document
    assert (item["partitions"][0]["replicas"], item["partitions"][0]["leader"]) == ([1, 2], 1)
    probe.wait_until(lambda: throttles(operate, topic) == before, what="throttles as before", timeout_s=TIMEOUT_S)
    assert operate(f"reassign verify {topic}:0=1,2").status == 0
    assert operate(f"reassign verify {topic}:0=0,2").status == 1
    assert operate(f"configs alter broker 1 --delete-config {RATE}").status == 0


def test_throttle_of_a_move_without_wait_is_removed_by_verify(operate: Kctl) -> None:
    topic = filled(operate, "verified", "0:1", kilobytes=1)
    assert operate(f"reassign execute {topic}:0=2,1 --throttle 1m").status == 0
    assert throttles(operate, topic)[f"{topic} follower.replication.throttled.replicas"] == "0:2"
    probe.wait_until(
        lambda: operate(f"reassign verify {topic}:0=2,1").status == 0, what="the move complete", timeout_s=TIMEOUT_S
    )
    probe.wait_until(lambda: throttles(operate, topic) == {}, what="no throttles", timeout_s=TIMEOUT_S)


def test_replication_factor_is_raised_and_lowered_without_another_leader(operate: Kctl) -> None:
    topic = filled(operate, "replicated", "1,2", kilobytes=100)
    ran = operate(f"topics set-replication {topic} --factor 3 --throttle 10m --yes --format json")
    assert (ran.status, [row["status"] for row in ran.document]) == (0, ["complete"] * 2), ran.err
    assert sorted(replicas(operate, topic)) == [0, 1, 2]
    probe.wait_until(lambda: throttles(operate, topic) == {}, what="no throttles", timeout_s=TIMEOUT_S)
    assert operate(f"configs alter topic {topic} --set min.insync.replicas=2").status == 0
    refused = operate(f"topics set-replication {topic} --factor 1 --yes")
    assert (refused.status, "--set min.insync.replicas=1" in refused.err) == (5, True)
    ran = operate(f"topics set-replication {topic} --factor 2 --yes")
    (item,) = operate(f"topics describe {topic} --format json").document
    assert (ran.status, [(one["replicas"][0], one["leader"]) for one in item["partitions"]]) == (0, [(1, 1), (2, 2)])
    assert [len(one["replicas"]) for one in item["partitions"]] == [2, 2]


def test_broker_is_emptied_and_filled_again(operate: Kctl) -> None:
    """Also of what other tests have created: with two replicas at most, so that no topic needs all brokers."""
    filled(operate, "spread", "0:1:2,1:2:0,2:0:1", kilobytes=10)
    topics = operate("topics list --internal --format json").document
    names = [topic["topic"] for topic in topics if topic["replication_factor"] > 2]
    lowered = operate(f"topics set-replication {' '.join(names)} --factor 2 --yes")
    assert lowered.status == 0, lowered.err
    emptied = operate("cluster remove-broker 2 --yes --format json")
    assert (emptied.status, {row["status"] for row in emptied.document}) == (0, {"complete"}), emptied.err
    assert "broker 2 holds nothing: its process can be stopped" in emptied.err
    assert holders(operate) == {0, 1}
    (log_dir,) = operate("cluster log-dirs --broker 2 --format json").document
    assert log_dir["replicas"] == 0
    again = operate("cluster remove-broker 2 --yes")
    assert (again.status, again.out, "no partition has to move" in again.err) == (0, "", True), again.err
    added = operate("cluster add-broker 2 --yes --format json")
    assert (added.status, {tuple(row["adding"]) for row in added.document}) == (0, {(2,)}), added.err
    assert holders(operate) == {0, 1, 2}


def test_refused_moves_are_rows(operate: Kctl) -> None:
    topic = filled(operate, "refused", "0:1", kilobytes=1)
    ran = operate(f"reassign execute {topic}:0=1,9 {topic}:7=0,1 --format json")
    assert (ran.status, [row["error"] for row in ran.document]) == (
        1,
        ["INVALID_REPLICA_ASSIGNMENT", "UNKNOWN_TOPIC_OR_PARTITION"],
    )
    assert operate("reassign list --format json").document == []
    assert operate(f"reassign cancel {topic}:0").rows == [[topic, "0", "does not move", "-", "-"]]


@pytest.mark.parametrize("three_brokers", BROKERS[1:], indirect=True)
def test_running_move_is_printed_as_by_kafkas_tool(operate: Kctl, three_brokers: ThreeBrokers, tmp_path: Path) -> None:
    tool, compat = TOOLS[three_brokers.kind]
    topic = filled(operate, "slow", "0:1", kilobytes=2_000)
    file = tmp_path / "moves.json"
    move: dict[str, Any] = {"topic": topic, "partition": 0, "replicas": [2, 1]}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))

    def theirs(*args: str) -> str:
        return apache_kafka.run_java_tool(
            three_brokers.kind, tool, ["--bootstrap-server", three_brokers.bootstrap, *args]
        ).stdout

    given = f"--reassignment-json-file {file}"
    throttled = "--throttle 10000"
    started = theirs("--execute", *given.split(), *throttled.split())
    assert operate(f"reassign list --compat {compat}").out == theirs("--list")
    verified = operate(f"reassign verify {given} --compat {compat}")
    assert (verified.status, verified.out) == (3, theirs("--verify", *given.split()))
    # A cancelled move leaves its replicas in the order that they had during the move.
    assert operate(f"reassign cancel {given} --compat {compat}").out.startswith(
        f"Successfully cancelled partition reassignment for: {topic}-0\n"
    )
    probe.wait_until(
        lambda: replicas(operate, topic) == [1, 0], what="the new replicas in the metadata", timeout_s=TIMEOUT_S
    )
    ours = operate(f"reassign execute {given} {throttled} --compat {compat}").out
    assert ours == started.replace('"replicas":[0,1]', '"replicas":[1,0]')

    (row,) = operate("reassign status --format json").document
    assert row["bytes_moved"] < row["bytes_to_move"]
    assert operate(f"reassign cancel {given}").rows == [[topic, "0", "cancelled", "-", "-"]]
    assert operate(f"reassign status {given}").status == 1
    # Kafka's tool has set its throttle before; kctl leaves it unchanged.
    assert throttles(operate, topic)[f"{topic} follower.replication.throttled.replicas"] == "0:2"
    assert (
        operate(
            f"configs alter broker 0 1 2 --delete-config {RATE} --delete-config {RATE.replace('leader', 'follower')}"
        ).status
        == 0
    )


def test_drained_broker_is_empty_and_the_way_back_fills_it(operate: Kctl, tmp_path: Path) -> None:
    filled(operate, "drained", "0:1,1:2,2:0", kilobytes=50)
    plan = f"reassign plan drain 0 --topic drained --output {tmp_path}/drain.json --format json"
    planned = operate(plan)
    assert planned.status == 0, planned.err
    assert [(move["replicas"], move["target"]) for move in planned.document["moves"]] == [
        ([0, 1], [2, 1]),
        ([2, 0], [2, 1]),
    ]
    assert planned.document["bytes_to_move"] > 50_000
    assert operate(f"reassign execute {tmp_path}/drain.json --throttle 100m --wait").status == 0
    described = operate("topics describe drained --format json").document[0]["partitions"]
    assert [partition["replicas"] for partition in described] == [[2, 1], [1, 2], [2, 1]]
    assert operate("reassign plan drain 0 --topic drained --format json").document["moves"] == []
    assert operate(f"reassign execute {tmp_path}/drain-rollback.json --wait").status == 0
    described = operate("topics describe drained --format json").document[0]["partitions"]
    assert [partition["replicas"] for partition in described] == [[0, 1], [1, 2], [2, 0]]


def test_broker_in_maintenance_leads_nothing(operate: Kctl) -> None:
    assert operate("topics create serviced --replica-assignment 0:1,1:0,0:2").status == 0

    def leaders() -> list[int]:
        described = operate("topics describe serviced --format json").document[0]["partitions"]
        return [partition["leader"] for partition in described]

    # Topics of other tests may have partitions with one replica, which stay.
    moved = operate("cluster maintenance on 0 --yes --allow-unavailable")
    assert moved.status == 0, moved.err
    probe.wait_until(lambda: leaders() == [1, 1, 2], what="leaders on other brokers", timeout_s=TIMEOUT_S)
    assert operate("elect --preferred --topic serviced").status == 0
    probe.wait_until(lambda: leaders() == [1, 1, 2], what="leaders on other brokers", timeout_s=TIMEOUT_S)
    restored = operate("cluster maintenance off 0 --yes")
    assert restored.status == 0, restored.err
    probe.wait_until(lambda: leaders() == [0, 1, 0], what="leaders as before", timeout_s=TIMEOUT_S)
