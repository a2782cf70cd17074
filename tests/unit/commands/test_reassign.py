"""kctl reassign."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.admin.placement import execution
from kctl.admin.placement.throttles import FOLLOWER_REPLICAS, RATES
from kctl.client.connections import asyncio_transport
from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from kctl.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.peers.probe import wait_until
from tests.rows import for_rows
from tests.unit.admin.moving_cluster import BROKER, TOPIC, MovingCluster
from tests.unit.client.transports_without_pauses import NoPauseAsyncioTransport
from tests.unit.commands.conftest import Kctl

TP = TopicPartition("orders", 0)
START_TIMEOUT_S = 60


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MovingCluster]:
    """Brokers 0, 1 and 2; `orders` has two partitions of 1000 bytes on 0 and 1.

    The pauses of commands in this process take no real time.
    """
    with MovingCluster() as started:
        started.place("orders", [0, 1], [1, 0], size=1000)
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(asyncio_transport, "AsyncioTransport", NoPauseAsyncioTransport)
        yield started


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "moves.json"
    path.write_text('{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}')
    return path


def throttles(cluster: MovingCluster) -> dict[object, object]:
    """All properties of topics and brokers."""
    return {key: value for key, value in cluster.overrides.items() if value}


def state_files(tmp_path: Path, pattern: str) -> list[Path]:
    return list((tmp_path / "state" / "kctl" / "reassign" / "fake-cluster").glob(pattern))


@pytest.mark.parametrize("verb", ["execute", "verify", "cancel"])
def test_file_among_the_moves_is_refused_with_the_option_that_takes_it(
    kctl: Kctl, cluster: MovingCluster, file: Path, verb: str
) -> None:
    ran = kctl("reassign", verb, "orders:1=1,2" if verb != "cancel" else "orders:1", str(file))
    assert ran.status == ExitStatus.USAGE
    assert f"--reassignment-json-file {file}" in ran.err


def test_single_argument_may_name_the_file(kctl: Kctl, cluster: MovingCluster, file: Path) -> None:
    assert kctl("reassign", "execute", str(file)).status == ExitStatus.DONE
    assert cluster.moving == {TP: ([1, 2], [0, 1])}
    assert kctl("reassign", "status", str(file)).status == ExitStatus.UNMET
    assert kctl("reassign", "cancel", str(file)).status == ExitStatus.DONE
    assert cluster.moving == {}
    assert kctl("reassign", "verify", str(file)).status == ExitStatus.FAILED


def test_dry_run_shows_the_plan_and_does_nothing(
    kctl: Kctl, cluster: MovingCluster, file: Path, tmp_path: Path
) -> None:
    ran = kctl(f"reassign execute --reassignment-json-file {file} --throttle 100 --dry-run")
    assert ran.status == ExitStatus.DONE
    assert ran.rows == [["orders", "0", "0,1", "1,2", "2", "0", "0", "1", "1000", "would move", "any,any", "-", "-"]]
    assert ran.err == "1 replica to copy, 1,000 bytes, about 10s with this throttle\n"
    assert (cluster.moving, throttles(cluster)) == ({}, {})
    assert state_files(tmp_path, "*") == []


def test_execute_starts_and_writes_the_way_back(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    rows = kctl("reassign execute orders:0=1,2 orders:1=1,0").rows
    assert [row[9] for row in rows] == ["started", "nothing to do"]
    assert cluster.moving == {TP: ([1, 2], [0, 1])}
    (rollback,) = state_files(tmp_path, "rollback-*.json")
    assert json.loads(rollback.read_text())["partitions"][0]["replicas"] == [0, 1]
    cluster.arrive()
    assert kctl(f"reassign execute --reassignment-json-file {rollback}").status == ExitStatus.DONE
    assert cluster.moving == {TP: ([0, 1], [1, 2])}


def test_rollback_is_written_to_the_given_file(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    kctl(f"reassign execute orders:0=1,2 --rollback-file {tmp_path}/back.json")
    assert cluster.moving
    assert (tmp_path / "back.json").exists()


def test_wait_ends_with_the_move_and_leaves_no_throttle(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    cluster.overrides[BROKER, "2"] = {RATES[0]: "777"}
    cluster.looks_until_arrival = 2
    ran = kctl("reassign execute orders:0=1,2 --throttle 1k --wait --format json")
    assert (ran.status, ran.document[0]["status"]) == (0, "complete")
    assert throttles(cluster) == {(BROKER, "2"): {RATES[0]: "777"}}
    assert state_files(tmp_path, "throttle-*") == []
    assert "broker 2: leader.replication.throttled.rate set back to 777" in ran.err


def test_throttle_stays_until_verify_finds_the_move_complete(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("reassign execute orders:0=1,2 --throttle 1k")
    assert "kctl reassign verify" in ran.err
    assert cluster.set_for(TOPIC, "orders", FOLLOWER_REPLICAS) == "0:2"
    verified = kctl("reassign verify orders:0=1,2")
    assert (verified.status, verified.rows[0][2]) == (ExitStatus.UNMET, "in progress")
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1024"
    cluster.arrive()
    verified = kctl("reassign verify orders:0=1,2")
    assert (verified.status, verified.rows[0][2]) == (ExitStatus.DONE, "complete")
    assert throttles(cluster) == {}


def test_wait_warns_of_a_move_that_never_ends(
    kctl: Kctl, cluster: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers append 900 bytes between two looks and 300 are copied; the verdict needs no minimum time here."""
    monkeypatch.setattr(execution, "VERDICT_AFTER_MS", 0)
    cluster.looks_until_arrival = 4
    cluster.sizes[0, TP] = cluster.sizes[1, TP] = 1_000_000

    def grow(_: object) -> None:
        for broker, size in ((0, 900), (1, 900), (2, 300)):
            cluster.sizes[broker, TP] = cluster.sizes.get((broker, TP), 0) + size

    cluster.intercept(ListPartitionReassignmentsRequest, grow)
    ran = kctl("reassign execute orders:0=1,2 --throttle 1k --wait")
    assert ran.status == ExitStatus.DONE
    assert ran.err.count("so the move does not end with a throttle of 1,024 bytes/s") == 1


def test_throttle_of_a_move_under_way_can_be_changed(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("reassign execute orders:0=1,2 --throttle 1000")
    assert kctl("reassign execute orders:0=1,2 --throttle 2000").status == ExitStatus.DONE
    assert cluster.set_for(BROKER, "1", RATES[0]) == "2000"
    cluster.arrive()
    assert kctl("reassign verify").status == ExitStatus.DONE
    assert throttles(cluster) == {}


def test_nothing_is_done_unless_all_can_be(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("reassign execute orders:0=1,2 orders:1=9,0 nope:0=1 --throttle 1k --format json")
    assert ran.status == ExitStatus.FAILED
    assert [row["error"] for row in ran.document] == ["UNKNOWN_TOPIC_OR_PARTITION", None, "INVALID_REPLICA_ASSIGNMENT"]
    assert (cluster.moving, throttles(cluster)) == ({}, {})


def test_refused_move_gives_its_throttle_back(kctl: Kctl, cluster: MovingCluster) -> None:
    refused = ReassignableTopicResponse(
        name="orders", partitions=[ReassignablePartitionResponse(partition_index=0, error_code=39, error_message="no")]
    )
    response = AlterPartitionReassignmentsResponse(error_code=0, responses=[refused])
    cluster.intercept(AlterPartitionReassignmentsRequest, lambda _: response)
    ran = kctl("reassign execute orders:0=1,2 --throttle 1k --wait")
    assert (ran.status, ran.rows[0][9:]) == (ExitStatus.FAILED, ["-", "any,any", "INVALID_REPLICA_ASSIGNMENT", "no"])
    assert cluster.requested(IncrementalAlterConfigsRequest)
    assert throttles(cluster) == {}


def test_failure_of_the_whole_request_gives_the_throttle_back(kctl: Kctl, cluster: MovingCluster) -> None:
    response = AlterPartitionReassignmentsResponse(error_code=31, error_message="not you", responses=[])
    cluster.intercept(AlterPartitionReassignmentsRequest, lambda _: response)
    ran = kctl("reassign execute orders:0=1,2 --throttle 1k --format json")
    assert (ran.status, ran.document["error"]["code"]) == (ExitStatus.FAILED, "CLUSTER_AUTHORIZATION_FAILED")
    assert cluster.requested(IncrementalAlterConfigsRequest)
    assert throttles(cluster) == {}


def test_move_beside_others_requires_an_option(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("reassign execute orders:0=1,2")
    assert kctl("reassign execute orders:1=2,0").status == ExitStatus.REFUSED
    assert list(cluster.moving) == [TP]
    assert kctl("reassign execute orders:1=2,0 --additional").status == ExitStatus.DONE
    assert len(cluster.moving) == 2


def test_partition_that_is_elsewhere_and_not_moving_is_a_failure(kctl: Kctl, cluster: MovingCluster) -> None:
    for verb in ("status", "verify"):
        ran = kctl(f"reassign {verb} orders:0=1,2")
        assert (ran.status, ran.rows[0][2], ran.rows[0][8]) == (1, "different", "NO_REASSIGNMENT_IN_PROGRESS")


def test_status_shows_bytes_and_changes_nothing(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("reassign execute orders:0=1,2 --throttle 1k")
    cluster.sizes[2, TP] = 250
    ran = kctl("reassign status")
    assert ran.status == ExitStatus.UNMET
    assert ran.rows == [["orders", "0", "in progress", "1,2,0", "1,2", "250", "1000", "any,any", "-", "-"]]
    cluster.arrive()
    ran = kctl("reassign status --format json")
    assert (ran.status, ran.document) == (ExitStatus.DONE, [])
    assert "its throttle is still set" in ran.err
    assert throttles(cluster)


def test_list_shows_all_moves(kctl: Kctl, cluster: MovingCluster) -> None:
    assert kctl("reassign list --format json").document == []
    cluster.moving[TP] = ([1, 2], [0, 1])
    assert kctl("reassign list").rows == [["orders", "0", "1,2,0", "2", "0"]]


def test_cancel_takes_a_move_and_its_throttle_back(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("reassign execute orders:0=1,2 --throttle 1k")
    assert kctl("reassign cancel orders:0 --dry-run").rows == [["orders", "0", "would be cancelled", "-", "-"]]
    assert cluster.moving
    ran = kctl("reassign cancel orders:0 orders:1")
    assert ran.status == ExitStatus.DONE
    assert [row[2] for row in ran.rows] == ["cancelled", "does not move"]
    assert (cluster.moving, throttles(cluster)) == ({}, {})


def test_cancel_shows_what_it_cancels(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.moving[TP] = ([1, 2], [0, 1])
    assert kctl("reassign cancel").status == ExitStatus.USAGE
    assert kctl("reassign cancel orders:0 --all").status == ExitStatus.USAGE
    assert cluster.moving
    assert kctl("reassign cancel --all").rows[0][2] == "cancelled"
    assert not cluster.moving


@pytest.mark.parametrize("dry_run", ["", "--dry-run"])
def test_cancel_names_partitions_that_do_not_exist_and_fails(kctl: Kctl, cluster: MovingCluster, dry_run: str) -> None:
    cluster.moving[TP] = ([1, 2], [0, 1])
    ran = kctl(f"reassign cancel nosuch:3 orders:0 orders:7 {dry_run}")
    assert ran.status == ExitStatus.FAILED
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert ran.rows == [
        ["nosuch", "3", "-", unknown, "there is no partition nosuch-3"],
        ["orders", "0", "would be cancelled" if dry_run else "cancelled", "-", "-"],
        ["orders", "7", "-", unknown, "there is no partition orders-7"],
    ]
    assert bool(cluster.moving) is bool(dry_run)


def test_cancel_as_kafka_names_unknown_partitions_on_stderr(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("reassign cancel orders:7 --compat kafka-2.8")
    assert ran.status == ExitStatus.FAILED
    assert ran.out == (
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n"
    )
    assert ran.err == "kctl: warning: there is no partition orders-7\n"


def test_file_that_does_not_exist_is_not_taken_for_a_partition(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("reassign execute drain.json")
    assert ran.status == ExitStatus.USAGE
    assert "'drain.json' is neither a file nor TOPIC:PARTITION=BROKER,BROKER" in ran.err


@for_rows(
    "line",
    [
        "reassign execute",
        "reassign execute orders:0",
        "reassign execute orders:0=1,1",
        "reassign execute orders:0=1,2 --throttle fast",
        "reassign execute orders:0=1,2 --throttle 0",
        "reassign execute orders:0=1,2 --reassignment-json-file x.json",
        "reassign execute --reassignment-json-file /no/such/file",
        "reassign list --compat kafka-1",
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, cluster: MovingCluster, line: str) -> None:
    assert kctl(line).status == ExitStatus.USAGE
    assert cluster.requests == []


def test_compat_prints_what_kafkas_tool_prints(kctl: Kctl, cluster: MovingCluster, file: Path) -> None:
    """The texts of kafka.admin.ReassignPartitionsCommand 2.8.2; tests/integration compares with the tool itself."""
    given = f"--reassignment-json-file {file} --compat kafka-2.8"
    assert kctl(f"reassign execute {given} --throttle 1000").out == (
        "Current partition replica assignment\n\n"
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[0,1],"log_dirs":["any","any"]}]}\n\n'
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed.\n"
        "The inter-broker throttle limit was set to 1000 B/s\n"
        "Successfully started partition reassignment for orders-0\n"
    )
    assert kctl("reassign list --compat kafka-2.8").out == (
        "Current partition reassignments:\norders-0: replicas: 1,2,0. adding: 2. removing: 0.\n"
    )
    assert kctl(f"reassign verify {given}").out == (
        "Status of partition reassignment:\nReassignment of partition orders-0 is still in progress.\n\n"
    )
    cluster.arrive()
    ran = kctl(f"reassign verify --reassignment-json-file {file} --compat kafka-3")
    assert ran.status == ExitStatus.DONE
    assert ran.out == (
        "Status of partition reassignment:\nReassignment of partition orders-0 is completed.\n\n"
        "Clearing broker-level throttles on brokers 0,1,2\nClearing topic-level throttles on topic orders\n"
    )
    assert kctl(f"reassign cancel {given}").out == (
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n"
    )
    assert kctl("reassign list --compat kafka-4").out == "No partition reassignments found.\n"


def waiting_process(cluster: MovingCluster) -> subprocess.Popen[bytes]:
    """`execute --throttle --wait` of a move that does not end, once the command waits."""
    cluster.overrides[BROKER, "1"] = {RATES[0]: "777"}
    cluster.looks_until_arrival = 1_000_000
    line = "reassign execute orders:0=1,2 --throttle 1k --wait"
    process = subprocess.Popen(
        [sys.executable, "-m", "kctl", *line.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    wait_until(lambda: (cluster.looks_until_arrival or 0) < 999_998, what="a wait", timeout_s=START_TIMEOUT_S)
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1024"
    return process


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_wait_keeps_the_throttle_and_shows_how_to_remove_it(
    kctl: Kctl, cluster: MovingCluster, number: signal.Signals, status: int
) -> None:
    with waiting_process(cluster) as process:
        process.send_signal(number)
        _, output = process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode == status
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1024"
    assert "the brokers continue to move orders-0" in output.decode()
    assert "remove it with: kctl reassign verify\n" in output.decode()
    cluster.looks_until_arrival = None
    cluster.arrive()
    assert kctl("reassign verify").status == ExitStatus.DONE
    assert throttles(cluster) == {(BROKER, "1"): {RATES[0]: "777"}}


@pytest.mark.long
def test_cluster_that_is_lost_while_waiting_keeps_the_throttle(cluster: MovingCluster) -> None:
    with waiting_process(cluster) as process:
        for broker in range(len(cluster.ports)):
            cluster.kill(broker)
        cluster.drop_connections()
        _, output = process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode in {ExitStatus.FAILED, ExitStatus.UNREACHABLE}
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1024"
    assert "remove it with: kctl reassign verify\n" in output.decode()


@pytest.mark.long
def test_deadline_while_starting_keeps_the_throttle(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    cluster.intercept(AlterPartitionReassignmentsRequest, lambda _: b"")
    server = cluster.bootstrap
    ran = kctl(f"reassign execute orders:0=1,2 --throttle 1k --timeout 2s --bootstrap-server {server}")
    assert ran.status == ExitStatus.UNREACHABLE
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1024"
    assert f"remove it with: kctl reassign verify --bootstrap-server {server}\n" in ran.err


def test_rollback_files_are_never_overwritten(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    for replicas in ("1,2", "2,0", "0,1"):
        assert kctl(f"reassign execute orders:0={replicas}").status == ExitStatus.DONE
        cluster.arrive()
    reported = [
        json.loads(path.read_text())["partitions"][0]["replicas"] for path in state_files(tmp_path, "rollback-*")
    ]
    assert sorted(reported) == [[0, 1], [1, 2], [2, 0]]
    file = tmp_path / "back.json"
    file.write_text("mine")
    ran = kctl(f"reassign execute orders:0=1,2 --rollback-file {file}")
    assert (ran.status, file.read_text(), cluster.moving) == (ExitStatus.REFUSED, "mine", {})


def test_move_that_is_executed_again_keeps_its_way_back(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    kctl("reassign execute orders:0=2,0 --throttle 1k")
    kctl("reassign execute orders:0=2,0 --throttle 2k")
    (rollback,) = state_files(tmp_path, "rollback-*")
    assert json.loads(rollback.read_text())["partitions"][0]["replicas"] == [0, 1]


@pytest.mark.parametrize("target", ["2,1,0", "1,2", "1,0"])
def test_cancel_restores_the_order_of_the_replicas(kctl: Kctl, cluster: MovingCluster, target: str) -> None:
    """Without it the controller would put the kept replicas first: 1,0."""
    kctl(f"reassign execute orders:0={target}")
    assert kctl("reassign cancel orders:0").rows[0][2] == "cancelled"
    assert (cluster.replicas[TP], cluster.moving) == ([0, 1], {})


@pytest.mark.long
def test_verify_restores_after_kill_9(kctl: Kctl, cluster: MovingCluster) -> None:
    with waiting_process(cluster) as process:
        process.kill()
    cluster.looks_until_arrival = None
    assert kctl("reassign verify").status == ExitStatus.UNMET
    assert cluster.set_for(BROKER, "1", RATES[0]) == "1024"
    cluster.arrive()
    assert kctl("reassign verify").status == ExitStatus.DONE
    assert throttles(cluster) == {(BROKER, "1"): {RATES[0]: "777"}}


def moves_of(cluster: MovingCluster) -> list[list[TopicPartition]]:
    """The partitions of each request that starts moves."""
    return [
        [
            TopicPartition(topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        for _, request in cluster.requested(AlterPartitionReassignmentsRequest)
    ]


def test_each_phase_starts_when_the_one_before_has_ended(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.place("payments", [0, 1])
    cluster.looks_until_arrival = 2
    line = "reassign execute orders:0=1,2 orders:1=1,0 payments:0=2,1 --throttle 1k --max-moves 1 --wait"
    ran = kctl(line)
    assert [row[9] for row in ran.rows] == ["complete", "nothing to do", "complete"]
    assert moves_of(cluster) == [[TP], [TopicPartition("payments", 0)]]
    assert [text for text in ran.err.splitlines() if text.startswith("phase")] == [
        "phase 1 of 2: 1 partition",
        "phase 2 of 2: 1 partition",
    ]
    assert throttles(cluster) == {}


def test_phases_after_a_failure_are_not_started(kctl: Kctl, cluster: MovingCluster) -> None:
    def refuse(_: object) -> AlterPartitionReassignmentsResponse:
        partition = ReassignablePartitionResponse(partition_index=0, error_code=39, error_message="no")
        topic = ReassignableTopicResponse(name="orders", partitions=[partition])
        return AlterPartitionReassignmentsResponse(error_code=0, error_message=None, responses=[topic])

    cluster.intercept(AlterPartitionReassignmentsRequest, refuse)
    ran = kctl("reassign execute orders:0=1,2 orders:1=2,0 --max-moves 1 --wait --throttle 1k")
    assert (ran.status, [row[9] for row in ran.rows]) == (ExitStatus.FAILED, ["-", "not started"])
    assert "not started in later phases: 1 partition; the same command continues" in ran.err
    assert throttles(cluster) == {}


def test_phases_require_waiting(kctl: Kctl, cluster: MovingCluster) -> None:
    assert kctl("reassign execute orders:0=1,2 --max-moves 1").status == ExitStatus.USAGE
