"""kctl cluster maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kctl.protocol.apis.elect_leaders import ElectLeadersRequest
from kctl.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.admin.moving_cluster import MovingCluster
from tests.unit.commands.conftest import Kctl

TPS = [TopicPartition("orders", number) for number in range(4)]
REPLICAS = [[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MovingCluster]:
    """Three brokers; broker 0 leads orders-0 and orders-3, which prefer it."""
    with MovingCluster() as started:
        started.place("orders", *REPLICAS)
        started.looks_until_arrival = 0
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield started


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "state" / "kctl" / "reassign" / "fake-cluster" / "maintenance-0.json"


def test_leaders_move_away_and_back(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    cluster.leaders[TPS[1]] = 0
    ran = kctl("cluster maintenance on 0 --yes")
    assert ran.status == ExitStatus.DONE
    assert ran.rows == [
        ["orders", "0", "0,1,2", "1,2,0", "0", "1", "changed", "-", "-"],
        ["orders", "1", "1,0,2", "1,2,0", "0", "1", "changed", "-", "-"],
        ["orders", "3", "0,2,1", "2,1,0", "0", "2", "changed", "-", "-"],
    ]
    assert 0 not in cluster.leaders.values()
    assert record.exists()
    cluster.looks_until_arrival = 0
    ran = kctl("cluster maintenance off 0 --yes")
    assert ran.status == ExitStatus.DONE
    assert [cluster.replicas[tp] for tp in TPS] == REPLICAS
    assert [cluster.leaders[tp] for tp in TPS] == [0, 1, 2, 0]
    assert not record.exists()
    assert "no maintenance of broker 0 is recorded" in kctl("cluster maintenance off 0 --yes").err


def test_brokers_that_cannot_change_the_order_are_refused_before_anything_is_saved(
    kctl: Kctl, cluster: MovingCluster, record: Path
) -> None:
    del cluster.versions[46]  # ListPartitionReassignments
    for option in ("--dry-run", "--yes"):
        ran = kctl(f"cluster maintenance on 0 {option}")
        assert (ran.status, ran.out) == (ExitStatus.FAILED, "")
        assert ran.err.endswith("does not support ListPartitionReassignments, which needs Kafka 2.4 or newer\n")
        assert ran.err.count("\n") == 1
        assert not record.exists()


def test_new_leaders_are_shown_although_brokers_learn_of_them_late(kctl: Kctl, cluster: MovingCluster) -> None:
    stale = [metadata_of_earlier(cluster)]

    def late(_: object) -> object:
        return stale.pop() if stale and cluster.requested(ElectLeadersRequest) else None

    cluster.intercept(MetadataRequest, late)
    ran = kctl("cluster maintenance on 0 --yes")
    assert [row[5] for row in ran.rows] == ["1", "2"]
    assert not stale


def metadata_of_earlier(cluster: MovingCluster) -> object:
    return cluster._metadata(0, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]))


def test_dry_run_changes_nothing(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    ran = kctl("cluster maintenance on 0 --dry-run")
    assert [row[5:7] for row in ran.rows] == [["1", "would change"], ["2", "would change"]]
    assert not cluster.requested(AlterPartitionReassignmentsRequest)
    assert not cluster.requested(ElectLeadersRequest)
    assert not record.exists()


def test_without_confirmation_nothing_changes(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    assert kctl("cluster maintenance on 0").status == ExitStatus.REFUSED
    assert not cluster.requested(AlterPartitionReassignmentsRequest)
    assert not record.exists()


def test_partition_without_other_in_sync_replica_is_refused_by_name(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.isr[TPS[3]] = [0]
    ran = kctl("cluster maintenance on 0 --yes")
    assert ran.status == ExitStatus.REFUSED
    assert "orders-3" in ran.err
    assert not cluster.requested(AlterPartitionReassignmentsRequest)
    assert kctl("cluster maintenance on 0 --yes --allow-unavailable").status == ExitStatus.DONE
    assert [cluster.leaders[tp] for tp in TPS] == [1, 1, 2, 0]


def test_first_in_sync_replica_becomes_the_leader(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.isr[TPS[0]] = [0, 2]
    kctl("cluster maintenance on 0 --yes")
    assert cluster.replicas[TPS[0]] == [2, 1, 0]
    assert cluster.leaders[TPS[0]] == 2


def test_partitions_that_are_not_in_sync_stay_in_the_record(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    kctl("cluster maintenance on 0 --yes")
    cluster.isr[TPS[0]] = [1, 2]
    cluster.looks_until_arrival = 0
    ran = kctl("cluster maintenance off 0 --yes")
    assert ran.status == ExitStatus.FAILED
    assert [row[7] for row in ran.rows] == ["PREFERRED_LEADER_NOT_AVAILABLE", "-"]
    assert (cluster.leaders[TPS[0]], cluster.leaders[TPS[3]]) == (1, 0)
    cluster.isr[TPS[0]] = [1, 2, 0]
    cluster.looks_until_arrival = 0
    assert kctl("cluster maintenance off 0 --yes").status == ExitStatus.DONE
    assert cluster.replicas[TPS[0]] == REPLICAS[0]
    assert not record.exists()


def test_second_maintenance_keeps_the_original_order(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("cluster maintenance on 0 --yes")
    cluster.leaders[TPS[0]] = 0
    kctl("cluster maintenance on 0 --yes")
    assert cluster.leaders[TPS[0]] == 1
    cluster.looks_until_arrival = 0
    kctl("cluster maintenance off 0 --yes")
    assert [cluster.replicas[tp] for tp in TPS] == REPLICAS


def test_order_is_saved_before_the_first_change(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    """A refused change leaves a record, with which 'off' restores what has been changed."""
    seen = []

    def refuse(_: object) -> AlterPartitionReassignmentsResponse:
        seen.append(record.exists())
        return AlterPartitionReassignmentsResponse(error_code=31, error_message="no", responses=[])

    cluster.intercept(AlterPartitionReassignmentsRequest, refuse)
    assert kctl("cluster maintenance on 0 --yes").status == ExitStatus.FAILED
    assert seen == [True]


def test_moving_partitions_are_refused(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.looks_until_arrival = None
    kctl("reassign execute orders:0=0,1")
    ran = kctl("cluster maintenance on 0 --yes")
    assert ran.status == ExitStatus.REFUSED
    assert "orders-0" in ran.err


def test_user_who_may_not_describe_the_cluster_is_refused(kctl: Kctl, cluster: MovingCluster) -> None:
    """Topics may be hidden from this user: "nothing to change" would be wrong."""
    denied = ListPartitionReassignmentsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, topics=[]
    )
    cluster.intercept(ListPartitionReassignmentsRequest, lambda _: denied)
    ran = kctl("cluster maintenance on 0 --yes")
    assert (ran.status, ran.out) == (ExitStatus.FAILED, "")
    assert "CLUSTER_AUTHORIZATION_FAILED" in ran.err


def test_dead_broker_is_refused(kctl: Kctl, cluster: MovingCluster) -> None:
    for mode in ("on", "off"):
        assert kctl(f"cluster maintenance {mode} 9 --yes").status == ExitStatus.FAILED


def test_invalid_record_is_refused(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    ran = kctl("cluster maintenance off 0 --yes")
    assert ran.status == ExitStatus.FAILED
    assert str(record) in ran.err


def test_state_dir_that_is_a_file_is_refused_with_its_path_once(
    kctl: Kctl, cluster: MovingCluster, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    ran = kctl(f"cluster maintenance on 0 --yes --state-dir {file}")
    assert (ran.status, ran.err) == (
        ExitStatus.FAILED,
        f"kctl: {file}/fake-cluster/maintenance-0.json: Not a directory\n",
    )


@pytest.mark.long
def test_order_that_does_not_change_in_time_is_an_error_of_its_partition(
    kctl: Kctl, cluster: MovingCluster, record: Path
) -> None:
    cluster.looks_until_arrival = 1_000_000
    ran = kctl("cluster maintenance on 0 --yes --timeout 2s")
    assert ran.status == ExitStatus.FAILED
    assert {(row[0], row[1], row[7]) for row in ran.rows} == {
        ("orders", "0", "REQUEST_TIMED_OUT"),
        ("orders", "3", "REQUEST_TIMED_OUT"),
    }
    assert "to undo: kctl cluster maintenance off 0" in ran.err
    assert record.exists()
    cluster.looks_until_arrival = 0
    assert kctl("cluster maintenance on 0 --yes").status == ExitStatus.DONE
    assert 0 not in cluster.leaders.values()


@pytest.mark.long
def test_election_without_response_says_how_to_undo(kctl: Kctl, cluster: MovingCluster, record: Path) -> None:
    cluster.intercept(ElectLeadersRequest, lambda _: b"")
    ran = kctl("cluster maintenance on 0 --yes --timeout 2s")
    assert ran.status == ExitStatus.UNREACHABLE
    assert "to undo: kctl cluster maintenance off 0" in ran.err
    assert "there are responses to 1 AlterPartitionReassignments request (orders)" in ran.err
    assert record.exists()
