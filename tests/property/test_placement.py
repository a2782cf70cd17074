"""Planned reassignments: valid, minimal, deterministic, balanced, and as many racks as before."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kctl.admin.placement.balance import TOLERANCE
from kctl.admin.placement.documents import Assignment
from kctl.admin.placement.goals import plan_add, plan_drain, plan_rebalance, plan_replication_factor
from kctl.admin.placement.state import Placement, PlacementState
from kctl.model import TopicPartition
from tests.property.examples import examples

KINDS = ("drain", "add", "rebalance", "leaders", "replication-factor")


class Case(NamedTuple):
    """A cluster and a goal."""

    state: PlacementState
    kind: str
    broker: int
    replication_factor: int

    def plan(self, state: PlacementState | None = None) -> Assignment:
        """The plan for the goal, from the state of the case or another."""
        state = state or self.state
        everything, brokers = list(state.replicas), sorted(state.racks)
        match self.kind:
            case "drain":
                return plan_drain(state, {self.broker}, everything, brokers)
            case "add":
                return plan_add(state, {self.broker}, everything, brokers)
            case "rebalance":
                return plan_rebalance(state, everything, brokers, brokers)
            case "leaders":
                return plan_rebalance(state, everything, brokers, brokers, leaders_only=True)
        return plan_replication_factor(state, self.replication_factor, everything, brokers)


@st.composite
def clusters(draw: st.DrawFn, kind: str) -> Case:
    """Five to eight brokers in up to four racks or none, with partitions of one to three replicas anywhere on them."""
    count = draw(st.integers(5, 8))
    brokers = list(range(count))
    racks: dict[int, str | None]
    racks = (
        dict.fromkeys(brokers) if draw(st.booleans()) else {broker: draw(st.sampled_from("abcd")) for broker in brokers}
    )
    holders = brokers[:-1] if kind == "add" else brokers
    replicas, sizes = {}, {}
    for number in range(draw(st.integers(1, 12))):
        tp = TopicPartition(draw(st.sampled_from(["orders", "payments"])), number)
        replicas[tp] = tuple(draw(st.lists(st.sampled_from(holders), min_size=1, max_size=3, unique=True)))
        size = draw(st.none() | st.integers(0, 20) | st.integers(10**6, 10**9))
        if size is not None:
            sizes[tp] = size
    leaders = {tp: draw(st.sampled_from(held)) for tp, held in replicas.items()}
    in_sync = {tp: {leaders[tp], *draw(st.sets(st.sampled_from(held)))} for tp, held in replicas.items()}
    # A broker that has died keeps its replicas; no broker of its rack is known.
    dead = draw(st.none() | st.sampled_from(brokers[:-1]))
    if dead is not None:
        racks.pop(dead)
    state = PlacementState(racks, replicas, sizes, {}, in_sync, leaders)
    return Case(state, kind, brokers[-1] if kind == "add" else draw(st.sampled_from(holders)), draw(st.integers(1, 3)))


def after(state: PlacementState, plan: Assignment) -> PlacementState:
    """The state when the plan has been executed."""
    return PlacementState(
        state.racks, {**state.replicas, **plan}, state.sizes, state.free_bytes, state.in_sync, state.leaders
    )


def spread(state: PlacementState) -> int:
    """The difference between the largest and the smallest load."""
    load = Placement(state).load
    return max(load.values()) - min(load.values())


def leader_spread(state: PlacementState) -> int:
    counts = [sum(held[0] == broker for held in state.replicas.values()) for broker in state.racks]
    return max(counts) - min(counts)


def copied(state: PlacementState, plan: Assignment) -> int:
    weights = state.weights()
    return sum(weights[tp] * len(set(target) - set(state.replicas[tp])) for tp, target in plan.items())


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(data=st.data())
def test_plan_is_valid_and_final_and_does_not_depend_on_the_order_of_the_metadata(
    kind: str, data: st.DataObject
) -> None:
    """Replicas are distinct, new ones are on live brokers, and their number changes only on request.

    When the plan has been executed, nothing is left to plan.
    """
    case = data.draw(clusters(kind))
    state, plan = case.state, case.plan()
    for tp, target in plan.items():
        before = state.replicas[tp]
        assert target != before
        assert len(set(target)) == len(target)
        assert set(target) - set(before) <= state.racks.keys()
        assert len(target) == (case.replication_factor if kind == "replication-factor" else len(before))
    assert case.plan(after(state, plan)) == {}
    reordered = PlacementState(
        dict(reversed(list(state.racks.items()))),
        dict(reversed(list(state.replicas.items()))),
        dict(reversed(list(state.sizes.items()))),
        {},
        state.in_sync,
        state.leaders,
    )
    assert list(plan.items()) == list(case.plan(reordered).items())


@pytest.mark.parametrize("kind", ["add", "rebalance", "leaders"])
@examples(40)
@given(data=st.data())
def test_replicas_stay_in_as_many_racks(kind: str, data: st.DataObject) -> None:
    case = data.draw(clusters(kind))
    for tp, target in case.plan().items():
        assert case.state.rack_count(target) >= case.state.rack_count(case.state.replicas[tp])


@pytest.mark.parametrize("kind", ["drain", "replication-factor"])
@examples(40)
@given(data=st.data())
def test_new_replicas_share_a_rack_only_if_no_other_rack_is_left(kind: str, data: st.DataObject) -> None:
    case = data.draw(clusters(kind))
    for tp, target in case.plan().items():
        added = set(target) - set(case.state.replicas[tp])
        allowed = case.state.racks.keys() - ({case.broker} if kind == "drain" else set())
        used = {case.state.rack_of(broker) for broker in target}
        unused = {case.state.rack_of(broker) for broker in allowed} - used
        if added and unused:
            assert case.state.rack_count(target) == case.state.rack_count(set(target) - added) + len(added)


@examples(40)
@given(clusters("drain"))
def test_drain_copies_the_replicas_of_the_drained_broker_and_nothing_else(case: Case) -> None:
    plan = case.plan()
    weights = case.state.weights()
    held = [tp for tp, replicas in case.state.replicas.items() if case.broker in replicas]
    assert all(case.broker not in replicas for replicas in after(case.state, plan).replicas.values())
    assert sorted(plan) == sorted(held)
    assert copied(case.state, plan) == sum(weights[tp] for tp in held)
    for tp, target in plan.items():
        changed = [old for old, new in zip(case.state.replicas[tp], target, strict=True) if old != new]
        assert changed == [case.broker]


@examples(40)
@given(clusters("rebalance"))
def test_rebalance_does_not_increase_the_spread(case: Case) -> None:
    plan = case.plan()
    assert spread(after(case.state, plan)) <= spread(case.state)
    if copied(case.state, plan):
        assert sum(load**2 for load in Placement(after(case.state, plan)).load.values()) < sum(
            load**2 for load in Placement(case.state).load.values()
        )


@examples(40)
@given(st.integers(2, 6), st.integers(1, 40), st.integers(1, 10**9))
def test_rebalance_of_equal_partitions_on_one_broker_is_even_and_copies_no_surplus(
    brokers: int, partitions: int, size: int
) -> None:
    tps = [TopicPartition("orders", number) for number in range(partitions)]
    state = PlacementState(dict.fromkeys(range(brokers)), dict.fromkeys(tps, (0,)), dict.fromkeys(tps, size))
    plan = plan_rebalance(state, tps, range(brokers), range(brokers))
    loads = Placement(after(state, plan)).load.values()
    mean = partitions * size / brokers
    assert max(loads) - min(loads) <= max(2 * size, 2 * TOLERANCE * mean)
    assert copied(state, plan) <= partitions * size - min(loads)


@pytest.mark.parametrize("kind", ["add", "rebalance"])
@examples(40)
@given(sizes=st.lists(st.integers(1, 100), min_size=300, max_size=300))
def test_small_partitions_are_balanced_by_copying_only_the_excess(kind: str, sizes: list[int]) -> None:
    """Brokers 0, 1 and 2 hold all partitions, twice each; 3 and 4 are empty."""
    tps = [TopicPartition("orders", number) for number in range(len(sizes))]
    replicas = {tp: (tp.partition % 3, (tp.partition + 1) % 3) for tp in tps}
    state = PlacementState(dict.fromkeys(range(5)), replicas, dict(zip(tps, sizes, strict=True)))
    plan = plan_add(state, {3, 4}, tps, range(5)) if kind == "add" else plan_rebalance(state, tps, range(5), range(5))
    mean = 2 * sum(sizes) / 5
    loads = Placement(after(state, plan)).load.values()
    assert all(abs(load - mean) <= mean * TOLERANCE for load in loads)
    assert copied(state, plan) <= sum(max(0, load - mean) for load in Placement(state).load.values())


@examples(40)
@given(clusters("leaders"))
def test_balancing_leaders_copies_nothing_and_does_not_increase_the_spread(case: Case) -> None:
    plan = case.plan()
    assert copied(case.state, plan) == 0
    assert all(sorted(target) == sorted(case.state.replicas[tp]) for tp, target in plan.items())
    assert leader_spread(after(case.state, plan)) <= leader_spread(case.state)


@examples(40)
@given(clusters("add"))
def test_only_added_brokers_receive(case: Case) -> None:
    for tp, target in case.plan().items():
        assert set(target) - set(case.state.replicas[tp]) <= {case.broker}


@examples(40)
@given(clusters("replication-factor"))
def test_removed_replicas_are_not_the_leader_and_not_the_only_live_ones(case: Case) -> None:
    for tp, target in case.plan().items():
        removed = set(case.state.replicas[tp]) - set(target)
        assert case.state.leaders[tp] not in removed
        if removed - (case.state.racks.keys() | {case.state.leaders[tp]}):
            continue
        kept_dead = [
            replica for replica in target if replica not in case.state.racks and replica != case.state.leaders[tp]
        ]
        assert not (removed and kept_dead), "a live replica was removed although a dead one stayed"


@examples(40)
@given(clusters("drain"), st.integers(0, 10**9))
def test_drain_uses_brokers_with_enough_space(case: Case, free: int) -> None:
    """If one broker has unlimited space, no broker receives more than it has free, racks or not."""
    assume(case.state.has_sizes)
    roomy = next(broker for broker in sorted(case.state.racks) if broker != case.broker)
    held = [tp for tp, replicas in case.state.replicas.items() if case.broker in replicas]
    assume(all(roomy not in case.state.replicas[tp] for tp in held))
    limits = {broker: free for broker in case.state.racks if broker != roomy}
    state = PlacementState(case.state.racks, case.state.replicas, case.state.sizes, limits)
    plan = plan_drain(state, {case.broker}, list(state.replicas), sorted(state.racks))
    weights = state.weights()
    for broker, limit in limits.items():
        incoming = sum(weights[tp] for tp, target in plan.items() if broker in set(target) - set(state.replicas[tp]))
        assert incoming <= limit
