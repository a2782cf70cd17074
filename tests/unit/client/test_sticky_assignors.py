"""The sticky assignors: the examples of Kafka's documentation, and invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kctl.client.consuming.assignors import Assignment, Subscriber, assign_cooperatively, assign_sticky
from kctl.model import TopicPartition

Members = list[Subscriber]
Counts = dict[str, int]


def reader(member_id: str, *topics: str, claims: tuple[TopicPartition, ...] = (), generation: int = -1) -> Subscriber:
    return Subscriber(member_id, None, frozenset(topics), frozenset(claims), generation)


def reported(assignment: Assignment) -> dict[str, str]:
    """`t0-1` of every member."""
    return {member: " ".join(map(str, tps)) for member, tps in assignment.items()}


def after(members: Members, assignment: Assignment, generation: int = 1) -> Members:
    """The same members, with their assignments as claims."""
    return [
        replace(member, claims=frozenset(assignment[member.member_id]), generation=generation) for member in members
    ]


def expected(members: Members, counts: Counts) -> set[TopicPartition]:
    topics = frozenset[str]().union(*(member.topics for member in members))
    return {TopicPartition(topic, number) for topic in topics & counts.keys() for number in range(counts[topic])}


def unevenness(assignment: Mapping[str, object]) -> int:
    """The sum of the squares of the counts; the minimum is the most even assignment."""
    return sum(len(tps) ** 2 for tps in assignment.values() if isinstance(tps, list))


def moved(before: Members, assignment: Assignment) -> int:
    """The number of claimed partitions that another member got."""
    return sum(len(member.claims - set(assignment[member.member_id])) for member in before)


def test_unassigned_partitions_are_distributed() -> None:
    members = [reader(name, "t0", "t1", "t2", "t3") for name in ("C0", "C1", "C2")]
    counts = {f"t{number}": 2 for number in range(4)}
    first = assign_sticky(members, counts)
    assert reported(first) == {"C0": "t0-0 t1-1 t3-0", "C1": "t0-1 t2-0 t3-1", "C2": "t1-0 t2-1"}
    left = [member for member in after(members, first) if member.member_id != "C1"]
    assert reported(assign_sticky(left, counts)) == {"C0": "t0-0 t1-1 t2-0 t3-0", "C2": "t0-1 t1-0 t2-1 t3-1"}


def test_members_with_fewer_subscriptions_get_more_of_them() -> None:
    members = [reader("C0", "t0"), reader("C1", "t0", "t1"), reader("C2", "t0", "t1", "t2")]
    counts = {"t0": 1, "t1": 2, "t2": 3}
    first = assign_sticky(members, counts)
    assert reported(first) == {"C0": "t0-0", "C1": "t1-0 t1-1", "C2": "t2-0 t2-1 t2-2"}
    assert reported(assign_sticky(after(members, first)[1:], counts)) == {
        "C1": "t0-0 t1-0 t1-1",
        "C2": "t2-0 t2-1 t2-2",
    }


def test_chain_of_moves_balances_what_no_single_move_can() -> None:
    t, u = (TopicPartition("t", 0), TopicPartition("t", 1)), (TopicPartition("u", 0),)
    members = [
        reader("a", "t", claims=t, generation=1),
        reader("b", "t", "u", claims=u, generation=1),
        reader("c", "u"),
    ]
    assert reported(assign_sticky(members, {"t": 2, "u": 1})) == {"a": "t-0", "b": "t-1", "c": "u-0"}


def test_claim_of_the_latest_generation_wins() -> None:
    tps = tuple(TopicPartition("t", number) for number in range(4))
    old = reader("a", "t", claims=tps, generation=3)
    new = reader("b", "t", claims=tps[:2], generation=4)
    assert reported(assign_sticky([old, new], {"t": 4})) == {"a": "t-2 t-3", "b": "t-0 t-1"}
    assert reported(assign_cooperatively([old, new], {"t": 4})) == {"a": "t-2 t-3", "b": "t-0 t-1"}


def test_partition_claimed_twice_is_unassigned_until_both_revoke_it() -> None:
    tps = (TopicPartition("t", 0),)
    members = [reader(name, "t", claims=tps, generation=3) for name in ("a", "b")]
    assert reported(assign_cooperatively(members, {"t": 1})) == {"a": "", "b": ""}
    assert len(assign_sticky(members, {"t": 1})["a"]) == 1


def test_moved_partition_is_unassigned_for_one_round() -> None:
    tps = tuple(TopicPartition("t", number) for number in range(4))
    members = [reader("a", "t", claims=tps, generation=1), reader("b", "t")]
    first = assign_cooperatively(members, {"t": 4})
    assert [len(tps) for tps in first.values()] == [2, 0]
    second = assign_cooperatively(after(members, first, 2), {"t": 4})
    assert [len(tps) for tps in second.values()] == [2, 2]
    assert second["a"] == first["a"]


TOPICS = "tuvw"
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6))


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Members, Counts]:
    """Members with arbitrary claims: of several generations, of deleted topics."""
    counts = draw(COUNTS)
    everything = st.sets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 6)), max_size=12)
    some_topics = st.just(set(TOPICS)) if alike else st.sets(st.sampled_from(TOPICS))
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    return [
        Subscriber(name, None, frozenset(draw(some_topics)), frozenset(draw(everything)), draw(st.integers(-1, 2)))
        for name in names
    ], counts


@given(groups())
def test_every_subscribed_partition_is_assigned_once(group: tuple[Members, Counts]) -> None:
    members, counts = group
    assignment = assign_sticky(members, counts)
    assert Counter(tp for tps in assignment.values() for tp in tps) == Counter(expected(members, counts))
    assert all(tp.topic in member.topics for member in members for tp in assignment[member.member_id])
    assert assign_sticky(members[::-1], dict(reversed(counts.items()))) == assignment


@given(groups())
def test_no_chain_of_moves_would_be_more_even(group: tuple[Members, Counts]) -> None:
    """No chain of moves leads from a member to one with two partitions fewer."""
    members, counts = group
    assignment = assign_sticky(members, counts)
    topics = {member.member_id: member.topics for member in members}
    can_give = {
        giver: {topic for topic in topics if any(tp.topic in topics[topic] for tp in tps)}
        for giver, tps in assignment.items()
    }
    for giver, tps in assignment.items():
        reached, ways = {giver}, [giver]
        while ways:
            further = can_give[ways.pop()] - reached
            reached |= further
            ways += further
        assert all(len(assignment[member_id]) + 1 >= len(tps) for member_id in reached)


@given(groups(alike=True))
def test_equal_subscriptions_are_balanced_with_the_fewest_moves(group: tuple[Members, Counts]) -> None:
    members, counts = group
    assignment = assign_sticky(members, counts)
    sizes = sorted(len(tps) for tps in assignment.values())
    assert sizes[-1] - sizes[0] <= 1
    everything = expected(members, counts)
    kept: dict[str, int] = {}
    for member in members:
        rivals = [other for other in members if other is not member and other.generation >= member.generation]
        undisputed = member.claims & everything - frozenset[TopicPartition]().union(*(other.claims for other in rivals))
        kept[member.member_id] = len(undisputed)
    share, left_over = divmod(len(everything), len(members))
    could_stay = sum(min(count, share) for count in kept.values())
    could_stay += min(left_over, sum(count > share for count in kept.values()))
    stayed = sum(
        len(set(assignment[member.member_id]) & member.claims - _claimed_later(member, members)) for member in members
    )
    assert stayed == could_stay


def _claimed_later(one: Subscriber, members: Members) -> frozenset[TopicPartition]:
    rivals = (other.claims for other in members if other is not one and other.generation >= one.generation)
    return frozenset[TopicPartition]().union(*rivals)


@given(groups())
def test_repeated_assignment_moves_nothing(group: tuple[Members, Counts]) -> None:
    members, counts = group
    first = assign_sticky(members, counts)
    assert assign_sticky(after(members, first), counts) == first


@given(groups(alike=True), st.data())
def test_leaving_member_moves_only_its_own_partitions(group: tuple[Members, Counts], data: st.DataObject) -> None:
    members, counts = group
    before = after(members, assign_sticky(members, counts))
    gone = data.draw(st.sampled_from(before))
    left = [member for member in before if member is not gone]
    if left:
        assert moved(left, assign_sticky(left, counts)) == 0


@given(groups(alike=True))
def test_new_member_takes_no_more_than_its_share(group: tuple[Members, Counts]) -> None:
    members, counts = group
    before = after(members, assign_sticky(members, counts))
    newcomer = reader("new", *TOPICS)
    assignment = assign_sticky([*before, newcomer], counts)
    assert moved(before, assignment) == len(assignment["new"])


@given(groups())
def test_cooperative_assignment_revokes_first_and_settles_within_two_rounds(
    group: tuple[Members, Counts],
) -> None:
    """One rebalance: each member revokes what it was not assigned, and claims the rest."""
    members, counts = group
    rounds = [assign_cooperatively(members, counts)]
    for generation in range(3, 6):
        for member in members:
            for other in members:
                both = set(rounds[-1][member.member_id]) & other.claims
                assert other is member or all(
                    tp in member.claims and member.generation > other.generation for tp in both
                )
        given_out = [tp for tps in rounds[-1].values() for tp in tps]
        assert len(given_out) == len(set(given_out))
        members = after(members, rounds[-1], generation)
        rounds.append(assign_cooperatively(members, counts))
    assert rounds[1] == rounds[2] == rounds[3]
    assert {tp for tps in rounds[1].values() for tp in tps} == expected(members, counts)
    assert all(set(first[name]) <= set(then[name]) for first, then in pairwise(rounds) for name in first)
    assert unevenness(rounds[-1]) == unevenness(assign_sticky(members, counts))
