"""Throttled replicas wait while others are copied, and continue when the throttle is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.replication.conftest import Racks
from tests.peers import apache_kafka

pytestmark = pytest.mark.timeout(400)

SIDES = {"leader": 0, "follower": 1}
"""The throttled side of the move from broker 0 to 1."""
TOOL = "kafka.admin.ReassignPartitionsCommand"


def throttle(racks: Racks, topic: str, *sides: str) -> None:
    """Sets one byte per second; returns when the brokers have applied it.

    They apply changes in order, so a broker with the rate has the list that was set before it.
    """
    for side in sides:
        racks.run(f"configs alter topic {topic} --set {side}.replication.throttled.replicas=*")
    for side in sides:
        racks.run(f"configs alter broker {SIDES[side]} --set {rate(side)}=1")
    racks.until("the throttle", lambda: rates(racks) == {rate(side): "1" for side in sides})


def rate(side: str) -> str:
    return f"{side}.replication.throttled.rate"


def rates(racks: Racks) -> dict[str, str]:
    """The leader's rate of broker 0 and the follower's rate of broker 1, as these brokers describe them."""
    brokers = json.loads(racks.run("configs describe broker 0 1 --format json"))
    return {
        config["property"]: config["value"]
        for broker in brokers
        for config in broker["configs"]
        if config["property"].endswith("throttled.rate")
    }


def assert_is_held_back(racks: Racks, topic: str, other: str) -> None:
    """While the move is delayed, another partition is copied by the same fetcher."""
    racks.until("broker 1 has a replica", (racks.brokers[1].logs_dir / f"{topic}-0").is_dir)
    racks.produce(other, 300)  # acknowledged by broker 1 too
    racks.until("the other topic is equal", lambda: racks.size(other, 1) == racks.size(other, 0))
    racks.until("the metadata has the new replicas", lambda: set(racks.partition(topic)[1]) == {0, 1})
    assert racks.size(topic, 1) < racks.size(topic, 0)
    assert racks.partition(topic)[2] == {0}


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_move_waits_and_completes_without_the_throttle(racks: Racks, side: str) -> None:
    topic, other = f"moved-{side}", f"other-{side}"
    racks.create(topic, 0)
    racks.create(other, 0, 1)
    racks.produce(topic, 500)
    throttle(racks, topic, side)

    racks.run(f"reassign execute {topic}:0=1")
    assert_is_held_back(racks, topic, other)

    racks.run(f"configs alter broker {SIDES[side]} --delete-config {rate(side)}")
    racks.until("the move is complete", lambda: racks.partition(topic) == (1, [1], {1}))
    racks.until("no throttle", lambda: rates(racks) == {})


def test_kctl_sets_an_effective_throttle_and_raises_it(racks: Racks) -> None:
    racks.create("moved-ours", 0)
    racks.create("other-ours", 0, 1)
    racks.produce("moved-ours", 500)
    throttle(racks, "moved-ours", *SIDES)

    move = "moved-ours:0=1"
    racks.run(f"reassign execute {move} --throttle 2")
    assert_is_held_back(racks, "moved-ours", "other-ours")

    racks.run(f"reassign execute {move} --throttle 1g")
    racks.until("the move is complete", lambda: racks.partition("moved-ours") == (1, [1], {1}))
    racks.run(f"reassign verify {move}")
    racks.until("the throttle of before", lambda: rates(racks) == {rate(side): "1" for side in SIDES})
    for side, broker in SIDES.items():
        racks.run(f"configs alter broker {broker} --delete-config {rate(side)}")
    racks.until("no throttle", lambda: rates(racks) == {})


@pytest.mark.jvm
def test_kafkas_command_sets_an_effective_throttle_and_raises_it(racks: Racks, tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    racks.create("moved-theirs", 0)
    racks.create("other-theirs", 0, 1)
    racks.produce("moved-theirs", 500)
    throttle(racks, "moved-theirs", *SIDES)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "moved-theirs", "partition": 0, "replicas": [1]}]})
    )

    def reassign(*words: str) -> str:
        given = ["--bootstrap-server", racks.bootstrap, "--reassignment-json-file", str(plan), *words]
        ran = apache_kafka.run_java_tool(apache_kafka.OLDEST_JUDGE, TOOL, given, timeout_s=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert "Successfully started partition reassignment" in reassign("--execute", "--throttle", "2")
    assert_is_held_back(racks, "moved-theirs", "other-theirs")
    assert "is still in progress" in reassign("--verify")

    reassign("--execute", "--additional", "--throttle", "1000000000")
    racks.until("the move is complete", lambda: racks.partition("moved-theirs") == (1, [1], {1}))
    assert "is complete" in reassign("--verify")
    racks.until("no throttle", lambda: rates(racks) == {})
