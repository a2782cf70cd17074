"""Cluster health and its reasons."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.admin.cluster.health import HealthProblem, Observation, PartitionProblem, Reason, health_reasons, problems_of
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
) -> list[Reason]:
    moving = {} if ongoing is None else {TP: ongoing}
    return health_reasons(Observation(metadata, unreachable or {}, {"orders": minimum}, moving))


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
