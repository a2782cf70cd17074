"""The assignor of share groups."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.share_groups.assignor import Reader, assign_simply

TOPICS = [UUID(int=number) for number in range(1, 5)]


def test_every_partition_has_a_member_and_every_member_a_partition() -> None:
    chance = random.Random(1)
    for _ in range(300):
        partitions = {topic: frozenset(range(chance.randrange(1, 6))) for topic in TOPICS[: chance.randrange(1, 5)]}
        readers = [
            Reader(f"m{number}", frozenset(chance.sample(TOPICS, chance.randrange(1, 5))), {})
            for number in range(chance.randrange(1, 12))
        ]
        targets = assign_simply(readers, partitions)
        wanted = {topic for reader in readers for topic in reader.topic_ids} & partitions.keys()
        assigned = {(topic, number) for target in targets.values() for topic in target for number in target[topic]}
        assert assigned == {(topic, number) for topic in wanted for number in partitions[topic]}
        for reader in readers:
            assert targets[reader.member_id].keys() <= reader.topic_ids
            assert bool(targets[reader.member_id]) == bool(reader.topic_ids & partitions.keys())


def test_members_with_one_subscription_are_balanced_and_keep_what_they_have() -> None:
    chance = random.Random(2)
    for _ in range(300):
        partitions = {TOPICS[0]: frozenset(range(chance.randrange(1, 20))), TOPICS[1]: frozenset(range(3))}
        readers = [Reader(f"m{number}", frozenset(TOPICS[:2]), {}) for number in range(chance.randrange(1, 15))]
        targets = assign_simply(readers, partitions)
        _assert_balanced(targets)
        same = [reader._replace(target=targets[reader.member_id]) for reader in readers]
        assert assign_simply(same, partitions) == targets
        more = [*same, Reader("new", frozenset(TOPICS[:2]), {})]
        grown = assign_simply(more, partitions)
        _assert_balanced(grown)
        for reader in same:
            before, after = _flat(reader.target), _flat(grown[reader.member_id])
            assert after <= before or before <= after


def _flat(target: Partitions) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in target.items() for number in numbers}


def _assert_balanced(targets: dict[str, Partitions]) -> None:
    loads = [len(_flat(target)) for target in targets.values()]
    shared = Counter(place for target in targets.values() for place in _flat(target)).values()
    assert max(loads) - min(loads) <= 1
    assert max(shared) - min(shared) <= 1


def test_the_largest_group_is_assigned_without_comparing_all_pairs() -> None:
    partitions = {TOPICS[0]: frozenset(range(5_000))}
    readers = [Reader(f"m{number}", frozenset(TOPICS[:1]), {}) for number in range(200)]
    assert {len(target[TOPICS[0]]) for target in assign_simply(readers, partitions).values()} == {25}
