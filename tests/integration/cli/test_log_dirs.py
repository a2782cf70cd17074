"""Moves between log directories of kctl and Apache Kafka brokers, and their view in Kafka's tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.settings import ClientSettings
from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import kctl_broker
from tests.rows import for_rows

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
KINDS = ["kctl", pytest.param(apache_kafka.OLDEST_JUDGE, marks=[pytest.mark.jvm, pytest.mark.matrix])]
TIMEOUT_S = 180
RECORDS = 3_000


class TwoDirs(NamedTuple):
    """A broker with two log directories."""

    bootstrap: str
    dirs: tuple[str, str]
    run: Kctl

    def other(self, path: str) -> str:
        return self.dirs[1 - self.dirs.index(path)]

    def places(self, topic: str) -> dict[int, str]:
        """The directory of each partition; unfinished copies do not count."""
        rows = self.run(f"cluster log-dirs --topic {topic} --format json").document
        return {row["partition"]: row["log_dir"] for row in rows if not row["moving"]}

    def plan(self, file: Path, topic: str, paths: dict[int, str]) -> str:
        """Writes the reassignment of partitions to directories; returns the option that names the file."""
        partitions = [
            {"topic": topic, "partition": index, "replicas": [0], "log_dirs": [path]} for index, path in paths.items()
        ]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return f"--reassignment-json-file {file}"


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDirs]:
    folder = tmp_path_factory.mktemp("two-dirs")
    dirs = str(folder / "one"), str(folder / "two")
    properties = {"log.dirs": ",".join(dirs), "broker.id": "0", **apache_kafka.PATIENT_QUOTAS}
    if request.param == "kctl":
        with kctl_broker(folder / "data", properties=properties) as ours:
            yield _two_dirs(ours.bootstrap, dirs, folder)
    elif reason := apache_kafka.why_not():
        pytest.skip(reason)
    else:
        with apache_kafka.apache_kafka(request.param, folder / "kafka", properties=properties) as bootstrap:
            yield _two_dirs(bootstrap, dirs, folder)


def _two_dirs(bootstrap: str, dirs: tuple[str, str], folder: Path) -> TwoDirs:
    run = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap, "XDG_STATE_HOME": str(folder / "state")})
    return TwoDirs(bootstrap, dirs, run)


def filled(broker: TwoDirs, topic: str) -> str:
    assert broker.run(f"topics create {topic} --partitions 2").status == 0
    for index in range(2):
        values = b"".join(b"%06d %s\n" % (number, b"x" * 1000) for number in range(RECORDS))
        assert broker.run(f"produce {topic} --compression-codec none --partition {index}", stdin=values).status == 0
    return topic


def is_moving(broker: TwoDirs, topic: str) -> bool:
    return any(row["moving"] for row in broker.run(f"cluster log-dirs --topic {topic} --format json").document)


def tool(command: str, broker: TwoDirs, *words: str) -> str:
    """The output of a tool of Apache Kafka 2.8."""
    ran = apache_kafka.run_java_tool(
        apache_kafka.OLDEST_JUDGE, f"kafka.admin.{command}", ["--bootstrap-server", broker.bootstrap, *words]
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def without_constant_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("Clearing")]


def test_replicas_move_to_the_requested_directories_and_back(broker: TwoDirs, tmp_path: Path) -> None:
    topic = filled(broker, "moved")
    before = broker.places(topic)
    assert len(set(before.values())) == 2, "new partitions go where the fewest are"
    option = broker.plan(tmp_path / "plan.json", topic, {index: broker.other(path) for index, path in before.items()})
    planned = broker.run(f"reassign execute {option} --dry-run --format json")
    assert [(row["status"], row["bytes_to_move"] > RECORDS * 1000) for row in planned.document] == [
        ("would move", True),
        ("would move", True),
    ]
    assert broker.places(topic) == before
    back = tmp_path / "back.json"
    ran = broker.run(f"reassign execute {option} --wait --rollback-file {back} --format json")
    assert (ran.status, [row["status"] for row in ran.document]) == (0, ["complete", "complete"]), ran.err
    assert broker.places(topic) == {index: broker.other(path) for index, path in before.items()}
    assert broker.run(f"reassign verify {option}").status == 0
    there = broker.run(f"reassign verify --reassignment-json-file {back} --format json")
    assert (there.status, {row["error"] for row in there.document}) == (1, {"NO_REASSIGNMENT_IN_PROGRESS"})
    assert broker.run(f"reassign execute --reassignment-json-file {back} --wait").status == 0
    assert broker.places(topic) == before
    for index in range(2):
        read = broker.run(f"consume {topic} --partition {index} --from start --format jsonl")
        values = [json.loads(line)["value"] for line in read.out.splitlines()]
        assert [value[:6] for value in values] == [f"{number:06d}" for number in range(RECORDS)], read.err


def test_a_running_move_is_described_and_ends_in_the_requested_directory(broker: TwoDirs, tmp_path: Path) -> None:
    topic = filled(broker, "slow")
    assert broker.run(f"configs alter broker 0 --set {THROTTLE}=1000").status == 0
    probe.wait_until(
        lambda: any(THROTTLE in row and "1000" in row for row in broker.run("configs describe broker 0").rows),
        what="throttle",
        timeout_s=TIMEOUT_S,
    )
    before = broker.places(topic)
    target = {0: broker.other(before[0])}
    option = broker.plan(tmp_path / "plan.json", topic, target)
    assert broker.run(f"reassign execute {option}").status == 0
    moving = broker.run(f"reassign status {option} --format json")
    (row,) = moving.document
    assert (moving.status, row["status"], row["log_dirs"]) == (3, "in progress", [target[0]]), moving.err
    assert row["bytes_moved"] < row["bytes_to_move"]

    rows = broker.run(f"cluster log-dirs --topic {topic} --format json").document
    (copy,) = [row for row in rows if row["moving"]]
    assert (copy["partition"], copy["log_dir"]) == (0, target[0])
    assert 0 < copy["lag"] <= RECORDS
    seen = json.loads(tool("LogDirsCommand", broker, "--describe", "--topic-list", topic).splitlines()[-1])
    assert {
        (log_dir["logDir"], partition["partition"], partition["isFuture"])
        for log_dir in seen["brokers"][0]["logDirs"]
        for partition in log_dir["partitions"]
    } == {(row["log_dir"], f"{topic}-{row['partition']}", row["moving"]) for row in rows}

    kafka = tool("ReassignPartitionsCommand", broker, *option.split(), "--verify", "--preserve-throttles")
    ours = broker.run(f"reassign verify {option} --compat kafka-2.8")
    assert (ours.status, without_constant_lines(ours.out)) == (3, without_constant_lines(kafka))

    assert broker.run(f"reassign cancel {option} --dry-run").rows == [[topic, "0", "would be cancelled", "-", "-"]]
    assert is_moving(broker, topic)
    kafka = tool("ReassignPartitionsCommand", broker, *option.split(), "--cancel", "--preserve-throttles")
    probe.wait_until(lambda: not is_moving(broker, topic), what="cancelled by Kafka's tool", timeout_s=TIMEOUT_S)
    assert broker.run(f"reassign execute {option}").status == 0
    ours = broker.run(f"reassign cancel {option} --compat kafka-2.8")
    assert (ours.status, without_constant_lines(ours.out)) == (0, without_constant_lines(kafka))
    probe.wait_until(lambda: not is_moving(broker, topic), what="cancelled", timeout_s=TIMEOUT_S)
    assert broker.run(f"reassign cancel {option}").rows == [[topic, "0", "does not move", "-", "-"]]
    assert broker.places(topic) == before

    assert broker.run(f"reassign execute {option}").status == 0
    assert broker.run(f"configs alter broker 0 --delete-config {THROTTLE}").status == 0
    probe.wait_until(lambda: broker.run(f"reassign verify {option}").status == 0, what="moved", timeout_s=TIMEOUT_S)
    assert broker.places(topic) == before | target
    kafka = tool("ReassignPartitionsCommand", broker, *option.split(), "--verify", "--preserve-throttles")
    ours = broker.run(f"reassign verify {option} --compat kafka-2.8")
    assert (ours.status, without_constant_lines(ours.out)) == (0, without_constant_lines(kafka))


def test_directory_is_emptied_and_filled_again_by_planned_moves(broker: TwoDirs, tmp_path: Path) -> None:
    assert broker.run("topics delete --topic-regex .* --yes").status in {0, 2}  # 2: there are none
    probe.wait_until(
        lambda: broker.run("cluster log-dirs --replicas --format json").document == [],
        what="deletion of all replicas",
        timeout_s=TIMEOUT_S,
    )
    topic = filled(broker, "planned")
    first, second = broker.dirs
    option = broker.plan(tmp_path / "start.json", topic, {0: first, 1: second})
    assert broker.run(f"reassign execute {option} --wait").status == 0
    file, balanced = tmp_path / "drain.json", tmp_path / "balanced.json"
    plan = f"reassign plan-disks --drain 0:{first} --topic {topic} --output {file} --format json"
    ran = broker.run(plan)
    assert (ran.status, [row["log_dir"] for row in ran.document["disks"]]) == (0, [first, second]), ran.err
    (move,) = ran.document["moves"]
    assert (move["log_dir"], move["target"], move["bytes_to_move"] > RECORDS * 1000) == (first, second, True)
    assert broker.run(plan).status == 5, "files are never overwritten"
    assert broker.run(f"reassign execute {file} --wait").status == 0
    assert set(broker.places(topic).values()) == {second}
    assert broker.run(f"reassign plan-disks --drain 0:{first} --topic {topic} --format json").document["moves"] == []

    assert broker.run(f"reassign plan-disks 0 --topic {topic} --output {balanced}").status == 0
    assert broker.run(f"reassign execute {balanced} --wait").status == 0
    assert set(broker.places(topic).values()) == {first, second}
    assert broker.run(f"reassign execute {tmp_path / 'balanced-rollback.json'} --wait").status == 0
    assert set(broker.places(topic).values()) == {second}


@for_rows(
    "options, status, why",
    [
        ("--drain 0:/nowhere", 1, "broker 0 has no log directory /nowhere; it has "),
        ("--drain /nowhere", 2, "write BROKER:DIR"),
        ("7", 1, "broker 7 is not alive; the cluster has 0"),
        ("x", 2, "the id of a broker"),
        ("--topic no-such-topic", 1, "topic 'no-such-topic' does not exist"),
    ],
)
def test_unusable_options_of_a_disk_plan_are_named(broker: TwoDirs, options: str, status: int, why: str) -> None:
    ran = broker.run(f"reassign plan-disks {options}")
    assert (ran.status, why in ran.err) == (status, True), ran.err


def test_an_unknown_directory_is_refused_before_anything_moves(broker: TwoDirs, tmp_path: Path) -> None:
    assert broker.run("topics create refused --partitions 2").status == 0
    before = broker.places("refused")
    option = broker.plan(tmp_path / "plan.json", "refused", {0: broker.other(before[0]), 1: "/nowhere"})
    ran = broker.run(f"reassign execute {option} --format json")
    assert (ran.status, [row["error"] for row in ran.document]) == (1, [None, "LOG_DIR_NOT_FOUND"])
    assert broker.places("refused") == before


def test_log_dir_responses_equal_those_of_apache_kafka(broker: TwoDirs) -> None:
    assert broker.run("topics create answers --partitions 1").status == 0
    here = broker.places("answers")[0]
    there = broker.other(here)
    assert asyncio.run(_codes(broker.bootstrap, here, [("answers", 0), ("no-such-topic", 0), ("answers", 7)])) == {
        ("answers", 0): ErrorCode.NONE,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("answers", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    requested = [("answers", 0), ("no-such-topic", 0)]
    nowhere = dict.fromkeys(requested, ErrorCode.LOG_DIR_NOT_FOUND)
    assert asyncio.run(_codes(broker.bootstrap, "/nowhere", requested)) == nowhere
    assert asyncio.run(_codes(broker.bootstrap, there + "/", requested)) == nowhere
    long_name = ("t" * 220, 0)
    too_long = {long_name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert asyncio.run(_codes(broker.bootstrap, there, [long_name])) == too_long


async def _codes(bootstrap: str, path: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index]) for topic, index in partitions]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    async with ClusterClient(ClientSettings((probe.address(bootstrap),)), AsyncioTransport()) as client:
        connection = await client.broker(0)
        response = await connection.send(request, AlterReplicaLogDirsResponse)
    return {
        (topic.topic_name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.results
        for partition in topic.partitions
    }


def test_directories_are_listed_with_their_replicas(broker: TwoDirs) -> None:
    rows: list[dict[str, Any]] = broker.run("cluster log-dirs --broker 0 --format json").document
    assert {row["log_dir"] for row in rows} == set(broker.dirs)
    assert all(row["error"] is None for row in rows)
    assert broker.run("cluster log-dirs --broker 7").status == 1


def test_kafkas_tool_moves_replicas_of_this_broker(broker: TwoDirs, tmp_path: Path) -> None:
    assert broker.run("topics create by-tool --partitions 2").status == 0
    before = broker.places("by-tool")
    after = {index: broker.other(path) for index, path in before.items()}
    option = broker.plan(tmp_path / "plan.json", "by-tool", after)
    output = tool("ReassignPartitionsCommand", broker, *option.split(), "--execute")
    assert "Successfully started log directory moves for: by-tool-0-0,by-tool-1-0" in output
    probe.wait_until(lambda: broker.places("by-tool") == after, what="moved", timeout_s=TIMEOUT_S)
