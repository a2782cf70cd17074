"""Prediction of the elected leader."""

from __future__ import annotations

import pytest

from kctl.admin.placement.election import ElectionType, expected_leader, predict_elections
from kctl.client.metadata import Partition
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from tests.unit.admin.clusters import cluster, partition


@pytest.mark.parametrize(
    ("one", "live", "expected"),
    [
        (partition(0, (0, 1, 2)), {0, 1, 2}, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(0, (0, 1, 2), leader=1), {0, 1, 2}, 0),
        (partition(0, (0, 1, 2), leader=-1, isr=(0,)), {0, 1, 2}, 0),
        (partition(0, (0, 1, 2), leader=1, isr=(1, 2)), {0, 1, 2}, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(0, (0, 1, 2), leader=1), {1, 2}, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ],
)
def test_preferred_replica_leads_if_it_is_live_and_in_sync(
    one: Partition, live: set[int], expected: int | ErrorCode
) -> None:
    assert expected_leader(ElectionType.PREFERRED, one, live) == expected


@pytest.mark.parametrize(
    ("one", "live", "expected"),
    [
        (partition(0, (0, 1, 2)), {0, 1, 2}, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(0, (0, 1, 2), leader=-1, isr=(0,)), {1, 2}, 1),
        (partition(0, (0, 1, 2), leader=-1, isr=(0, 2)), {1, 2}, 2),
        (partition(0, (0, 1, 2), leader=0, isr=(0,)), {2}, 2),
        (partition(0, (0, 1, 2), leader=-1, isr=(0,)), set[int](), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_unclean_election_prefers_in_sync_replicas_and_takes_any_live_one(
    one: Partition, live: set[int], expected: int | ErrorCode
) -> None:
    assert expected_leader(ElectionType.UNCLEAN, one, live) == expected


def test_only_partitions_that_need_an_election_are_predicted() -> None:
    now = cluster(partition(0, (0, 1)), partition(1, (0, 1), leader=1))
    assert [election.tp.partition for election in predict_elections(ElectionType.PREFERRED, now, None)] == [1]
    named = predict_elections(ElectionType.PREFERRED, now, [TopicPartition("orders", 0), TopicPartition("orders", 9)])
    assert [transaction.outcome.error for transaction in named] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
