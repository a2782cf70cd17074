"""The rules of groups of the consumer protocol: assignors, reconciliation, the hash of topics."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.consumer_groups.assignors import Subscriber, Targets, assign_ranges
from kctl.server.coordination.consumer_groups.balancing import assign_uniformly
from kctl.server.coordination.consumer_groups.reconciliation import Goal, reconcile
from kctl.server.coordination.consumer_groups.state import NEW_MEMBER
from kctl.server.coordination.consumer_groups.topics import topic_hash
from kctl.server.coordination.consumer_groups.xxh3 import xxh3_64
from kctl.server.coordination.newer_groups import MemberState
from tests.property.examples import share_of
from tests.rows import for_rows

A, B, C = (UUID(int=number) for number in (1, 2, 3))


@for_rows(
    "size, expected",
    [
        (8, 6941064856527638883),
        (9, 18374517719163151272),
        (16, 13314990914799711621),
        (17, 8163341949877205007),
        (33, 4486878507168070088),
        (65, 9408609914592003654),
        (128, 7440608504995537343),
        (129, 14295761343243267012),
        (240, 7229805477010515663),
        (241, 10082113959289486871),
        (1024, 11205349619999208113),
        (1025, 9253807012321506678),
        (2048, 12386592778227166929),
        (8192, 5466606392575465914),
    ],
)
def test_hash_is_that_of_hash4j(size: int, expected: int) -> None:
    """The values are those of com.dynatrace.hash4j 0.22.0, which Kafka uses."""
    assert xxh3_64(bytes((number * 7 + 3) & 255 for number in range(size))) == expected


class OneTopic:
    """state.ClusterTopics with one topic."""

    topics_version = 1

    def topic_id(self, topic: str) -> UUID:
        return UUID(int=(1 << 124) + 77)

    def topic_name(self, topic_id: UUID) -> str | None:
        return None

    def partition_count(self, topic: str) -> int | None:
        return 2

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [["r1"], []]


def test_hash_of_a_topic_has_id_name_partitions_and_racks() -> None:
    """As computed with hash4j by the steps of Kafka's Utils.computeTopicHash."""
    topics = OneTopic()
    assert topic_hash("orders\u00e9", topics.topic_id(""), topics) == 1010218093885206278


# Assignors.


def check(subscribers: list[Subscriber], counts: dict[UUID, int], targets: Targets) -> list[int]:
    """Every partition of a subscribed topic has one member, which subscribes to it; returns the sizes."""
    owners = Counter(
        (topic_id, n) for parts in targets.values() for topic_id, numbers in parts.items() for n in numbers
    )
    subscribed = {topic_id for subscriber in subscribers for topic_id in subscriber.topic_ids}
    assert owners == Counter((topic_id, number) for topic_id in subscribed for number in range(counts[topic_id]))
    for subscriber in subscribers:
        assert set(targets[subscriber.member_id]) <= subscriber.topic_ids
    return [sum(map(len, targets[subscriber.member_id].values())) for subscriber in subscribers]


def moved(before: Targets, after: Targets) -> int:
    """How many partitions a member has lost that is still there."""
    return sum(
        len(numbers - after[member_id].get(topic_id, frozenset()))
        for member_id, parts in before.items()
        if member_id in after
        for topic_id, numbers in parts.items()
    )


def test_uniform_is_balanced_and_moves_only_what_it_must() -> None:
    for seed in range(share_of(200)):
        chance = random.Random(seed)
        counts = {topic_id: chance.randrange(1, 12) for topic_id in (A, B, C)}
        topics = frozenset(chance.sample([A, B, C], chance.randrange(1, 4)))
        total = sum(counts[topic_id] for topic_id in topics)
        names = [f"m{number}" for number in range(chance.randrange(1, 8))]
        targets: Targets = {}
        for _ in range(6):
            subscribers = [Subscriber(name, None, topics, targets.get(name, {})) for name in names]
            before, targets = targets, assign_uniformly(subscribers, counts)
            sizes = check(subscribers, counts, targets)
            assert max(sizes) - min(sizes) <= 1
            if before and set(before) <= set(names):
                newcomers = set(names) - set(before)
                assert moved(before, targets) <= -(-total // len(names)) * max(1, len(newcomers)) + len(names)
            if chance.random() < 0.5 and len(names) > 1:
                names.remove(chance.choice(names))
            else:
                names.append(f"n{chance.random()}")


def test_uniform_moves_nothing_when_nothing_has_changed() -> None:
    for seed in range(share_of(200)):
        chance = random.Random(seed)
        counts = {topic_id: chance.randrange(1, 9) for topic_id in (A, B, C)}
        subscriptions = {
            f"m{number}": frozenset(chance.sample([A, B, C], chance.randrange(1, 4)))
            for number in range(chance.randrange(1, 7))
        }
        subscribers = [Subscriber(name, None, topics, {}) for name, topics in subscriptions.items()]
        targets = assign_uniformly(subscribers, counts)
        check(subscribers, counts, targets)
        again = [replace_target(subscriber, targets) for subscriber in subscribers]
        assert assign_uniformly(again, counts) == targets


def replace_target(subscriber: Subscriber, targets: Targets) -> Subscriber:
    return subscriber._replace(target=targets[subscriber.member_id])


def test_uniform_evens_out_members_with_different_subscriptions() -> None:
    """No partition could go to a subscriber that has two fewer."""
    for seed in range(share_of(300)):
        chance = random.Random(seed)
        counts = {topic_id: chance.randrange(1, 9) for topic_id in (A, B, C)}
        subscribers = [
            Subscriber(f"m{number}", None, frozenset(chance.sample([A, B, C], chance.randrange(1, 4))), {})
            for number in range(chance.randrange(2, 7))
        ]
        # Everything is with the first subscriber of each topic.
        held: dict[str, dict[UUID, frozenset[int]]] = {subscriber.member_id: {} for subscriber in subscribers}
        for topic_id in (A, B, C):
            first = next((subscriber for subscriber in subscribers if topic_id in subscriber.topic_ids), None)
            if first is not None:
                held[first.member_id][topic_id] = frozenset(range(counts[topic_id]))
        subscribers = [subscriber._replace(target=held[subscriber.member_id]) for subscriber in subscribers]
        targets = assign_uniformly(subscribers, counts)
        sizes = dict(zip([s.member_id for s in subscribers], check(subscribers, counts, targets), strict=True))
        for giver in subscribers:
            for topic_id in targets[giver.member_id]:
                takers = [sizes[taker.member_id] for taker in subscribers if topic_id in taker.topic_ids]
                assert sizes[giver.member_id] - min(takers) <= 1


def test_ranges_are_the_same_in_each_topic_and_static_members_come_first() -> None:
    counts = {A: 5, B: 5}
    subscribers = [
        Subscriber("z", None, frozenset({A, B}), {}),
        Subscriber("y", "2", frozenset({A, B}), {}),
        Subscriber("x", "1", frozenset({A}), {}),
    ]
    targets = assign_ranges(subscribers, counts)
    check(subscribers, counts, targets)
    assert targets == {
        "x": {A: frozenset({0, 1})},
        "y": {A: frozenset({2, 3}), B: frozenset({0, 1, 2})},
        "z": {A: frozenset({4}), B: frozenset({3, 4})},
    }


# Reconciliation.


def goal(**fields: object) -> Goal:
    usual: dict[str, object] = {
        "target": {A: frozenset({0, 1})},
        "target_epoch": 5,
        "subscribed_ids": frozenset({A, B}),
        "has_subscription_changed": False,
        "is_free": lambda topic_id, number: True,
        "owned": None,
    }
    return Goal(**usual | fields)  # type: ignore[arg-type]


def test_member_waits_for_what_others_own() -> None:
    waiting = reconcile(NEW_MEMBER, goal(is_free=lambda topic_id, number: number == 0))
    assert (waiting.state, waiting.epoch, waiting.assigned) == (MemberState.UNRELEASED, 5, {A: {0: 5}})
    done = reconcile(waiting, goal())
    assert (done.state, done.assigned, done.previous_epoch) == (MemberState.STABLE, {A: {0: 5, 1: 5}}, 5)
    assert reconcile(done, goal()) == done


def test_member_revokes_before_it_gets_more_and_keeps_its_epoch_meanwhile() -> None:
    held = replace(NEW_MEMBER, epoch=4, previous_epoch=3, assigned={A: {1: 2, 2: 4}})
    revoking = reconcile(held, goal())
    assert (revoking.state, revoking.epoch) == (MemberState.UNREVOKED, 4)
    assert (revoking.assigned, revoking.revoking) == ({A: {1: 2}}, {A: {2: 4}})
    assert reconcile(revoking, goal(owned={A: frozenset({2})})) == revoking
    done = reconcile(revoking, goal(owned={A: frozenset({1})}))
    assert (done.state, done.epoch, done.assigned) == (MemberState.STABLE, 5, {A: {1: 2, 0: 5}})


def test_topics_that_a_member_does_not_subscribe_to_any_more_are_revoked_before_the_next_target() -> None:
    held = replace(NEW_MEMBER, epoch=5, previous_epoch=5, assigned={A: {0: 2, 1: 2}, B: {0: 2}})
    changed = goal(subscribed_ids=frozenset({A}), has_subscription_changed=True, owned={B: frozenset({0})})
    revoking = reconcile(held, changed)
    assert (revoking.state, revoking.revoking) == (MemberState.UNREVOKED, {B: {0: 2}})
    assert reconcile(held, goal(subscribed_ids=frozenset({A}), has_subscription_changed=True, owned={})).assigned == {
        A: {0: 2, 1: 2}
    }


def test_member_in_a_state_of_a_newer_broker_has_to_begin_again() -> None:
    unknown = replace(NEW_MEMBER, epoch=4, state=MemberState.UNKNOWN, assigned={A: {0: 4}})
    with pytest.raises(ApiError) as refusal:
        reconcile(unknown, goal(owned={A: frozenset({0})}))
    assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(unknown, goal(owned={})).state is MemberState.STABLE
