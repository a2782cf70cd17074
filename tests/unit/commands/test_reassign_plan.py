"""kctl reassign plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kctl.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.rows import for_rows
from tests.unit.admin.moving_cluster import MovingCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_narrow_terminals import Terminal


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MovingCluster]:
    """Brokers 0 to 3 in racks a, a, b, b; partitions of `orders` have 1000 bytes, those of `logs` 10."""
    with MovingCluster(brokers=4) as started:
        started.racks = {0: "a", 1: "a", 2: "b", 3: "b"}
        started.place("orders", [0, 2], [2, 0], [0, 3], size=1000)
        started.place("logs", [0], [2], size=10)
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield started


def replicas_in(path: Path) -> dict[str, list[int]]:
    """The replicas by partition in a file of Kafka's format."""
    entries = json.loads(path.read_text())["partitions"]
    return {f"{entry['topic']}:{entry['partition']}": entry["replicas"] for entry in entries}


def test_drain_shows_each_broker_before_and_after(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("reassign plan drain 0 --throttle 100")
    assert ran.status == ExitStatus.DONE
    assert ran.rows == [
        ["0", "a", "3010", "0", "0", "4", "0", "3", "0", "-", "-", "-", "-"],
        ["1", "a", "0", "3000", "3000", "0", "3", "0", "2", "-", "-", "-", "-"],
        ["2", "b", "2010", "2010", "0", "3", "3", "2", "2", "-", "-", "-", "-"],
        ["3", "b", "1000", "1010", "10", "1", "2", "0", "1", "-", "-", "-", "-"],
    ]
    assert "4 partitions to change, 4 replicas to copy, 3,010 bytes, 1,010 of them across racks" in ran.err
    assert "about 30s with a throttle of 100 bytes/s" in ran.err
    assert not cluster.requested(AlterPartitionReassignmentsRequest)


def test_command_that_executes_a_plan_has_its_throttle(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    file = tmp_path / "drain.json"
    ran = kctl(f"reassign plan drain 0 --throttle 1m --output {file}")
    assert f"to execute: kctl reassign execute {file} --wait --throttle 1m" in ran.err
    assert f"to undo: kctl reassign execute {tmp_path / 'drain-rollback.json'} --wait --throttle 1m" in ran.err


def test_plan_and_the_way_back_are_written_and_can_be_executed(
    kctl: Kctl, cluster: MovingCluster, tmp_path: Path
) -> None:
    file = tmp_path / "drain.json"
    assert kctl(f"reassign plan drain 0 --output {file}").status == ExitStatus.DONE
    assert replicas_in(file) == {"logs:0": [3], "orders:0": [1, 2], "orders:1": [2, 1], "orders:2": [1, 3]}
    back = {"logs:0": [0], "orders:0": [0, 2], "orders:1": [2, 0], "orders:2": [0, 3]}
    assert replicas_in(tmp_path / "drain-rollback.json") == back
    cluster.looks_until_arrival = 1
    assert kctl(f"reassign execute --reassignment-json-file {file} --wait").status == ExitStatus.DONE
    assert cluster.replicas[TopicPartition("orders", 0)] == [1, 2]
    assert "nothing to move" in kctl("reassign plan drain 0").err


@pytest.mark.parametrize("existing", ["plan.json", "plan-rollback.json"])
def test_existing_files_are_not_overwritten(kctl: Kctl, cluster: MovingCluster, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    ran = kctl(f"reassign plan drain 0 --output {tmp_path}/plan.json")
    assert ran.status == ExitStatus.REFUSED
    assert {path.name: path.read_text() for path in tmp_path.glob("plan*")} == {existing: "mine"}


@pytest.mark.parametrize("option", ["--phases 2", "--max-moves 2"])
def test_phases_together_are_the_plan(kctl: Kctl, cluster: MovingCluster, tmp_path: Path, option: str) -> None:
    ran = kctl(f"reassign plan drain 0 {option} --output {tmp_path}/plan.json --format json")
    first, second = (replicas_in(tmp_path / f"plan-{number}.json") for number in (1, 2))
    assert (len(first), len(second)) == (2, 2)
    assert (first | second).keys() == replicas_in(tmp_path / "plan-rollback.json").keys()
    assert ran.document["files"] == [f"{tmp_path}/plan-1.json", f"{tmp_path}/plan-2.json"]
    assert sorted(move["phase"] for move in ran.document["moves"]) == [1, 1, 2, 2]


def test_file_that_cannot_be_written_leaves_no_other(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    ran = kctl(f"reassign plan drain 0 --output {tmp_path}/missing/plan.json")
    assert ran.status == ExitStatus.FAILED
    assert "missing/plan" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_brokers_without_space_receive_nothing(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.usable_bytes = {0: 50_000, 1: 500, 2: 50_000, 3: 50_000}
    document = kctl("reassign plan drain 0 --format json").document
    received = {
        broker["broker"]: (broker["bytes_received"], broker["free_bytes_after"]) for broker in document["brokers"]
    }
    assert received[1][0] <= 500
    assert received[3] == (2000, 48_000)


def test_plan_that_does_not_fit_is_not_written(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    cluster.usable_bytes = dict.fromkeys(range(4), 500)
    ran = kctl(f"reassign plan drain 0 --output {tmp_path}/plan.json --format json")
    assert ran.status == ExitStatus.FAILED
    assert "KAFKA_STORAGE_ERROR" in [broker["error"] for broker in ran.document["brokers"]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error_code", [0, 31])
def test_without_sizes_replicas_count(kctl: Kctl, cluster: MovingCluster, error_code: int) -> None:
    """Without authorization, brokers before DescribeLogDirs 3 return nothing, later ones an error."""
    denied = DescribeLogDirsResponse(error_code=error_code, results=[])
    cluster.intercept(DescribeLogDirsRequest, lambda _: denied)
    ran = kctl("reassign plan drain 0 --format json")
    assert "Cluster authorization failed" in ran.err or "this needs the operation Describe on the cluster" in ran.err
    assert "counts replicas instead of bytes" in ran.err
    assert (ran.document["bytes_to_move"], ran.document["replicas_to_copy"]) == (None, 4)


def test_added_broker_receives_its_share(kctl: Kctl, cluster: MovingCluster) -> None:
    document = kctl("reassign plan add 1 --format json").document
    after = {broker["broker"]: broker["bytes_after"] for broker in document["brokers"]}
    assert after == {0: 2000, 1: 1020, 2: 2000, 3: 1000}
    assert all(move["target"].count(1) for move in document["moves"])


def test_replication_factor_keeps_racks_apart(kctl: Kctl, cluster: MovingCluster) -> None:
    document = kctl("reassign plan replication-factor 2 --topic logs --format json").document
    assert [(move["replicas"], move["target"]) for move in document["moves"]] == [([0], [0, 3]), ([2], [2, 1])]
    document = kctl("reassign plan replication-factor 1 --topic orders --format json").document
    assert [(move["replicas"], move["target"]) for move in document["moves"]] == [
        ([0, 2], [0]),
        ([2, 0], [2]),
        ([0, 3], [0]),
    ]


def test_leaders_are_balanced_without_copying(kctl: Kctl, cluster: MovingCluster) -> None:
    document = kctl("reassign plan rebalance --leaders-only --format json").document
    assert (document["bytes_to_move"], document["replicas_to_copy"]) == (0, 0)
    assert [(move["topic"], move["replicas"], move["target"]) for move in document["moves"]] == [
        ("orders", [0, 3], [3, 0])
    ]


@pytest.mark.parametrize(
    ("line", "shown", "left_out"),
    [("rebalance --leaders-only", "LEADERS-AFTER", "BYTES-AFTER"), ("drain 0", "BYTES-AFTER", "LEADERS-AFTER")],
)
def test_narrow_terminal_shows_what_the_plan_is_about(
    cluster: MovingCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    shown: str,
    left_out: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert main(f"reassign plan {line} --no-color".split()) == ExitStatus.DONE
    title = terminal.getvalue().splitlines()[0].split()
    assert (shown in title, left_out in title) == (True, False)
    (note,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("not shown, ")]
    assert left_out in note


def test_only_named_topics_and_brokers_take_part(kctl: Kctl, cluster: MovingCluster) -> None:
    document = kctl("reassign plan drain 0 --topic orders --to-brokers 2,3 --format json").document
    assert {move["topic"] for move in document["moves"]} == {"orders"}
    assert [move["target"] for move in document["moves"]] == [[3, 2], [2, 3], [2, 3]]
    document = kctl("reassign plan drain 0 --exclude 1 --format json").document
    assert all(1 not in move["target"] for move in document["moves"])


def test_dead_broker_can_be_drained(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.away.add(2)
    document = kctl("reassign plan drain 2 --topic orders --format json").document
    assert [(move["replicas"], move["target"]) for move in document["moves"]] == [([0, 2], [0, 3]), ([2, 0], [3, 0])]


@for_rows(
    "line, text",
    [
        ("drain", "'drain' requires broker ids"),
        ("add 1 --exclude 1", "--exclude omits it"),
        ("add one", "the id of a broker"),
        ("rebalance 3", "takes no value"),
        ("drain 0 --leaders-only", "only to 'rebalance'"),
        ("drain 0 --phases 2 --max-moves 2", "not both"),
        ("rebalance --exclude 0,1,2,3", "no live broker is left"),
        ("replication-factor 0", "replication factor"),
        ("balance", "not one of drain, add"),
    ],
)
def test_wrong_usage_is_refused_with_the_reason(kctl: Kctl, cluster: MovingCluster, line: str, text: str) -> None:
    ran = kctl(f"reassign plan {line}")
    assert ran.status == ExitStatus.USAGE
    assert text in ran.err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("drain 9", "BROKER_NOT_AVAILABLE: broker 9 is not alive; the cluster has 0, 1, 2, 3"),
        ("add 9", "BROKER_NOT_AVAILABLE: broker 9 is not alive"),
        ("drain 0 --to-brokers 0,9", "BROKER_NOT_AVAILABLE: broker 9 is not alive"),
        ("rebalance --topic nope", "UNKNOWN_TOPIC_OR_PARTITION: topic 'nope' does not exist"),
    ],
)
def test_unknown_brokers_and_topics_are_failures(kctl: Kctl, cluster: MovingCluster, line: str, text: str) -> None:
    ran = kctl(f"reassign plan {line}")
    assert ran.status == ExitStatus.FAILED
    assert text in ran.err


def test_impossible_goal_names_the_partition(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("reassign plan drain 0 --to-brokers 2 --topic orders")
    assert ran.status == ExitStatus.FAILED
    assert "orders-0 cannot leave broker 0" in ran.err
    assert kctl("reassign plan replication-factor 5").status == ExitStatus.FAILED


def test_moves_in_progress_are_awaited(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("reassign execute orders:0=1,2")
    ran = kctl("reassign plan rebalance")
    assert ran.status == ExitStatus.REFUSED
    assert "orders-0" in ran.err
