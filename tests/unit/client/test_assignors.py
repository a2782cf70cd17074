"""The assignors that every Kafka client has: the examples of Kafka's documentation, and invariants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kctl.client.consuming.membership.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_ranges,
    assign_round_robin,
    is_cooperative,
)
from kctl.model import TopicPartition


def reader(member_id: str, *topics: str, instance: str | None = None) -> Subscriber:
    return Subscriber(member_id, instance, frozenset(topics))


def reported(assignment: Assignment) -> dict[str, list[str]]:
    """`t0-1` of every member."""
    return {member: [str(tp) for tp in tps] for member, tps in assignment.items()}


def test_range_assigns_each_topic_independently() -> None:
    members = [reader("C1", "t0", "t1"), reader("C0", "t0", "t1")]
    assert reported(assign_ranges(members, {"t0": 3, "t1": 3})) == {
        "C0": ["t0-0", "t0-1", "t1-0", "t1-1"],
        "C1": ["t0-2", "t1-2"],
    }


def test_round_robin_continues_across_topics() -> None:
    members = [reader("C1", "t0", "t1"), reader("C0", "t0", "t1")]
    assert reported(assign_round_robin(members, {"t0": 3, "t1": 3})) == {
        "C0": ["t0-0", "t0-2", "t1-1"],
        "C1": ["t0-1", "t1-0", "t1-2"],
    }


def test_round_robin_skips_members_without_the_subscription() -> None:
    members = [reader("C0", "t0"), reader("C1", "t0", "t1"), reader("C2", "t0", "t1", "t2")]
    assert reported(assign_round_robin(members, {"t0": 1, "t1": 2, "t2": 3})) == {
        "C0": ["t0-0"],
        "C1": ["t1-0"],
        "C2": ["t1-1", "t2-0", "t2-1", "t2-2"],
    }


def test_static_members_come_first_in_the_order_of_their_own_ids() -> None:
    members = [reader("a", "t"), reader("z", "t", instance="1"), reader("y", "t", instance="2")]
    for assign in ASSIGNORS.values():
        assert reported(assign(members, {"t": 3})) == {"z": ["t-0"], "y": ["t-1"], "a": ["t-2"]}


def test_members_without_partitions_get_an_empty_assignment() -> None:
    for assign in ASSIGNORS.values():
        assert reported(assign([reader("a", "t"), reader("b", "t"), reader("c", "gone")], {"t": 1})) == {
            "a": ["t-0"],
            "b": [],
            "c": [],
        }


TOPICS = st.sets(st.sampled_from("tuvw"), min_size=1)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), TOPICS, min_size=1, max_size=7),
    st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 9)),
)
def test_every_subscribed_partition_is_assigned_once(expected: dict[str, set[str]], counts: dict[str, int]) -> None:
    members = [reader(member, *topics) for member, topics in expected.items()]
    for assign in ASSIGNORS.values():
        assignment = assign(members, counts)
        given_out = [tp for tps in assignment.values() for tp in tps]
        readable = set[str]().union(*expected.values()) & counts.keys()
        assert sorted(given_out) == [
            TopicPartition(topic, n) for topic in sorted(readable) for n in range(counts[topic])
        ]
        assert all(tp.topic in expected[member] for member, tps in assignment.items() for tp in tps)
        assert assign(list(reversed(members)), dict(reversed(counts.items()))) == assignment


def test_member_is_cooperative_only_if_all_its_assignors_allow_it() -> None:
    assert is_cooperative(["cooperative-sticky"])
    assert not is_cooperative(["range", "cooperative-sticky"])
    assert not is_cooperative(["sticky"])


@given(st.integers(1, 7), st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 9)))
def test_round_robin_is_even_for_equal_subscriptions(count: int, counts: dict[str, int]) -> None:
    sizes = [len(tps) for tps in assign_round_robin([reader(f"m{n}", *"tuvw") for n in range(count)], counts).values()]
    assert max(sizes) - min(sizes) <= 1
