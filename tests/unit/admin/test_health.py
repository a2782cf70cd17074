"""Cluster health and its reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kctl.admin.cluster.health import HealthProblem, Observation, PartitionProblem, Reason, health_reasons, problems_of
from kctl.admin.cluster.quorum import MetadataQuorum, QuorumReading, QuorumReplica
from kctl.admin.placement.log_dirs import FileSystem
from kctl.admin.placement.reassignment import Ongoing
from kctl.client.metadata import ClusterMetadata
from kctl.model import TopicPartition
from tests.unit.admin.clusters import cluster, partition

TP = TopicPartition("orders", 0)


def judged(
    metadata: ClusterMetadata,
    *,
    unreachable: Mapping[int, str] | None = None,
    minimum: int = 1,
    ongoing: Ongoing | None = None,
    quorum: QuorumReading | None = None,
    file_systems: Sequence[FileSystem] = (),
) -> list[Reason]:
    moving = {} if ongoing is None else {TP: ongoing}
    return health_reasons(
        Observation(metadata, unreachable or {}, {"orders": minimum}, moving, quorum=quorum, file_systems=file_systems)
    )


def test_healthy_cluster_has_no_reasons() -> None:
    assert judged(cluster(partition(0, (0, 1, 2))), minimum=2) == []


def test_cluster_without_controller_is_not_healthy() -> None:
    assert [reason.problem for reason in judged(cluster(controller=-1))] == [HealthProblem.NO_CONTROLLER]
    assert [reason.problem for reason in judged(cluster(controller=9))] == [HealthProblem.NO_CONTROLLER]


def test_unresponsive_broker_is_named_with_its_error() -> None:
    (reason,) = judged(cluster(), unreachable={2: "connection refused"})
    assert (reason.problem, reason.broker_id, reason.message) == (
        HealthProblem.BROKER_UNREACHABLE,
        2,
        "connection refused",
    )


def test_missing_broker_counts_once_and_its_replicas_are_under_replicated() -> None:
    now = cluster(partition(0, (0, 2), isr=(0,)), partition(1, (1, 2), isr=(1,)), brokers=(0, 1))
    reasons = judged(now)
    assert [(reason.problem, reason.broker_id or reason.tp) for reason in reasons] == [
        (HealthProblem.BROKER_MISSING, 2),
        (HealthProblem.UNDER_REPLICATED, TP),
        (HealthProblem.UNDER_REPLICATED, TopicPartition("orders", 1)),
    ]
    assert reasons[0].message == "not alive, has 2 replicas"


def test_partition_without_leader_is_offline_and_nothing_else() -> None:
    (reason,) = judged(cluster(partition(0, (0, 1), isr=(0,), leader=-1)), minimum=2)
    assert (reason.problem, reason.tp) == (HealthProblem.OFFLINE_PARTITION, TP)
    assert reason.message == "no live leader, in sync 0, replicas 0,1"


def test_partition_under_min_isr_reports_the_minimum() -> None:
    reasons = judged(cluster(partition(0, (0, 1, 2), isr=(0,))), minimum=2)
    assert [reason.problem for reason in reasons] == [HealthProblem.UNDER_MIN_ISR, HealthProblem.UNDER_REPLICATED]
    assert reasons[0].message == "min.insync.replicas is 2, in sync 0, replicas 0,1,2"


def test_replicas_being_added_do_not_count_as_under_replicated() -> None:
    moving = partition(0, (1, 2, 0), isr=(0, 1), leader=0)
    assert judged(cluster(moving), ongoing=Ongoing((1, 2, 0), adding=(2,), removing=(0,))) == []
    assert [reason.problem for reason in judged(cluster(moving))] == [HealthProblem.UNDER_REPLICATED]


def test_completed_move_no_longer_excuses_missing_replicas() -> None:
    moved = partition(0, (1, 2), isr=(1,))
    ongoing = Ongoing((1, 2, 0), adding=(3,), removing=(0,))
    assert problems_of(moved, {1, 2}, ongoing=ongoing) == [PartitionProblem.UNDER_REPLICATED]


def test_offline_leader_makes_a_partition_unavailable() -> None:
    assert problems_of(partition(0, (0, 1)), {1})[0] is PartitionProblem.UNAVAILABLE


def test_without_a_quorum_leader_brokers_that_do_not_respond_lead_nothing() -> None:
    """The list of brokers is frozen then; elsewhere a broker that this machine does not reach may well lead."""
    seen = cluster(partition(0, (1, 0)), partition(1, (0, 1)), controller=9)
    lost = QuorumReading(is_kraft=True, asked_ms=0, lost="no controller responded within 4 s")
    reasons = judged(seen, unreachable={1: "connection refused"}, quorum=lost)
    assert [(one.problem, one.broker_id or one.tp) for one in reasons] == [
        (HealthProblem.NO_QUORUM, None),
        (HealthProblem.BROKER_UNREACHABLE, 1),
        (HealthProblem.OFFLINE_PARTITION, TP),
    ]
    assert reasons[0].message == (
        "no quorum leader: metadata is frozen since 1970-01-01T00:00:00Z or earlier"
        " (no controller responded within 4 s)"
    )
    (reason,) = judged(cluster(partition(0, (1, 0))), unreachable={1: "connection refused"})
    assert reason.problem is HealthProblem.BROKER_UNREACHABLE


def test_a_voter_that_does_not_follow_and_a_disk_that_fills_are_reasons() -> None:
    replicas = [
        QuorumReplica(number, None, role, 9, 0, fetched_ms, fetched_ms)
        for number, role, fetched_ms in ((1, "Leader", 60_000), (2, "Follower", 59_000), (3, "Follower", 40_000))
    ]
    reading = QuorumReading(is_kraft=True, asked_ms=0, quorum=MetadataQuorum(1, 7, 9, tuple(replicas)))
    disks = [FileSystem(0, (f"/{share}",), 100 - share, 100) for share in (79, 89, 90)]
    assert [
        (one.problem, one.broker_id, one.message) for one in judged(cluster(), quorum=reading, file_systems=disks)
    ] == [
        (
            HealthProblem.CONTROLLER_AWAY,
            3,
            "does not follow controller 1, the leader of the metadata quorum",
        ),
        (HealthProblem.DISK_FILLS, 0, "/90: 90 % of the disk is full, 10 B of 100 B are free"),
    ]
