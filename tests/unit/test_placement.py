"""Replica assignment: the expected values are computed by hand from Kafka's formula, with the start and shift given."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ApiError, ErrorCode
from kctl.server.cluster.topics.placement import assign_added_partitions, assign_replicas, partitions_sharing_racks


class Chosen:
    """A random source with fixed results: the start, then the shift."""

    def __init__(self, *values: int) -> None:
        self._values = list(values)

    def randrange(self, start: int, stop: int) -> int:
        value = self._values.pop(0)
        assert start <= value < stop
        return value

    def getrandbits(self, k: int) -> int:
        raise NotImplementedError


def no_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


RACKS: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_five_brokers_ten_partitions_three_replicas_without_racks() -> None:
    """The table in the description of Kafka's AdminUtils."""
    assert assign_replicas(no_racks(0, 1, 2, 3, 4), 10, 3, Chosen(0, 0)) == {
        0: (0, 1, 2), 1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 0), 4: (4, 0, 1),
        5: (0, 2, 3), 6: (1, 3, 4), 7: (2, 4, 0), 8: (3, 0, 1), 9: (4, 1, 2),
    }  # fmt: skip


def test_start_and_shift_move_the_assignment() -> None:
    assert assign_replicas(no_racks(10, 20, 30), 3, 2, Chosen(1, 1)) == {0: (20, 10), 1: (30, 20), 2: (10, 30)}


def test_six_brokers_in_three_racks_get_one_replica_per_rack() -> None:
    """Brokers arranged as 0 (rack1), 3 (rack2), 1 (rack3), 5, 4, 2."""
    assert assign_replicas(RACKS, 7, 3, Chosen(0, 0)) == {
        0: (0, 3, 1), 1: (3, 1, 5), 2: (1, 5, 4), 3: (5, 4, 2), 4: (4, 2, 0), 5: (2, 0, 3), 6: (0, 4, 2),
    }  # fmt: skip


def test_more_replicas_than_racks_use_a_rack_twice_but_no_broker() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b"}
    for replicas in assign_replicas(racks, 6, 3, Chosen(0, 0)).values():
        assert sorted(replicas) == [0, 1, 2]
        assert {racks[replica] for replica in replicas[:2]} == {"a", "b"}


def test_one_broker_gets_all_replicas() -> None:
    assert assign_replicas(no_racks(7), 3, 1, Chosen(0, 0)) == {0: (7,), 1: (7,), 2: (7,)}


def test_added_partitions_continue_from_the_first_replica_of_partition_0() -> None:
    existing = assign_replicas(no_racks(0, 1, 2), 2, 2, Chosen(1, 1))
    assert existing[0] == (1, 0)
    assert assign_added_partitions(no_racks(0, 1, 2), existing, 2) == {2: (0, 2), 3: (1, 2)}


def test_partitions_are_added_to_a_topic_whose_first_broker_is_gone() -> None:
    assert assign_added_partitions(no_racks(0, 2), {0: (1,)}, 2) == {1: (0,), 2: (2,)}
    assert assign_added_partitions(no_racks(0, 2), {0: (9,)}, 1) == {1: (2,)}


@pytest.mark.parametrize(
    ("brokers", "partition_count", "replication_factor", "code"),
    [
        (no_racks(0), 0, 1, ErrorCode.INVALID_PARTITIONS),
        (no_racks(0), 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (no_racks(0), 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (no_racks(), 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({0: "a", 1: None}, 1, 1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_impossible_assignments_are_refused(
    brokers: dict[int, str | None], partition_count: int, replication_factor: int, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        assign_replicas(brokers, partition_count, replication_factor, Chosen(0, 0))
    assert caught.value.code is code


@given(data=st.data(), seed=st.integers(0, 1000), rack_count=st.integers(1, 4))
def test_replicas_are_distinct_spread_over_racks_and_leaders_even(
    data: st.DataObject, seed: int, rack_count: int
) -> None:
    per_rack = data.draw(st.integers(1, 3))
    brokers = [rack * 10 + number for rack in range(rack_count) for number in range(per_rack)]
    with_racks = data.draw(st.booleans())
    racks: dict[int, str | None] = {broker: f"r{broker // 10}" if with_racks else None for broker in brokers}
    replication_factor = data.draw(st.integers(1, len(brokers)))
    rounds = data.draw(st.integers(1, 3))
    assignment = assign_replicas(racks, len(brokers) * rounds, replication_factor, Random(seed))
    for replicas in assignment.values():
        assert len(set(replicas)) == replication_factor
        if with_racks:
            assert len({racks[replica] for replica in replicas}) == min(rack_count, replication_factor)
    assert set(Counter(replicas[0] for replicas in assignment.values()).values()) == {rounds}


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    replication_factor=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_racks_of_any_sizes_have_no_two_replicas_if_there_are_enough(
    sizes: list[int], replication_factor: int, seed: int
) -> None:
    """Machines with different numbers of brokers, for new topics and for added partitions."""
    racks: dict[int, str | None] = {
        rack * 100 + number: f"machine-{rack}" for rack, size in enumerate(sizes) for number in range(size)
    }
    replication_factor = min(replication_factor, len(racks))
    assignment = assign_replicas(racks, 2 * len(racks), replication_factor, Random(seed))
    added = assign_added_partitions(racks, assignment, len(racks))
    assert len(assignment) + len(added) == 3 * len(racks)
    for replicas in (assignment | added).values():
        assert len(set(replicas)) == replication_factor
        assert len({racks[replica] for replica in replicas}) == min(len(sizes), replication_factor)
    sharing = partitions_sharing_racks(assignment | added, racks)
    assert sharing == ([] if len(sizes) >= replication_factor else list(assignment | added))


def test_brokers_without_a_rack_share_none() -> None:
    racks = {0: None, 1: None, 2: "a", 3: "a"}
    assert partitions_sharing_racks({0: (0, 1), 1: (0, 2), 2: (2, 3), 3: (9, 8)}, racks) == [2]
