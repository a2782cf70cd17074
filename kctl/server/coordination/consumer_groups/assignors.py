"""The assignors of the broker: `uniform` balances the partitions of all topics, `range` co-partitions topics.

Both keep what they can of the last target assignment: uniform moves a partition only to balance, and range, whose
members are sorted, gives each member neighbouring partitions again.  Neither looks at racks, as in Kafka 4.

Pure.  Kafka: UniformAssignor, UniformHomogeneousAssignmentBuilder, RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kctl.server.coordination.consumer_groups.state import Partitions

UNIFORM = "uniform"
RANGE = "range"


class Subscriber(NamedTuple):
    """A member, its topics and its last target assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    target: Partitions


PartitionCounts: TypeAlias = Mapping[UUID, int]
"""The number of partitions of each topic to which a member subscribes."""
Targets: TypeAlias = dict[str, Partitions]
Assignor: TypeAlias = Callable[[Sequence[Subscriber], PartitionCounts], Targets]


def has_one_subscription(subscribers: Sequence[Subscriber]) -> bool:
    """Return whether all subscribe to the same topics."""
    return all(subscriber.topic_ids == subscribers[0].topic_ids for subscriber in subscribers)


# Range.


@dataclass(slots=True)
class _Ranges:
    """The partitions of a topic that are left for its next subscribers."""

    count: int
    subscribers: int = 0
    given: int = 0
    members: int = field(default=0)

    def take(self) -> frozenset[int]:
        """Return the next range; the first members get one more if the number cannot be divided."""
        size = self.count // self.subscribers + (self.members < self.count % self.subscribers)
        first = self.given
        self.given += size
        self.members += 1
        return frozenset(range(first, self.given))


def assign_ranges(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Targets:
    """Give each member a range of each of its topics, sorted by instance id and then by member id."""
    ranges = {topic_id: _Ranges(count) for topic_id, count in counts.items()}
    for subscriber in subscribers:
        for topic_id in subscriber.topic_ids:
            ranges[topic_id].subscribers += 1
    targets: Targets = {}
    for subscriber in sorted(subscribers, key=_by_instance):
        parts = {topic_id: ranges[topic_id].take() for topic_id in subscriber.topic_ids}
        targets[subscriber.member_id] = {topic_id: part for topic_id, part in parts.items() if part}
    return targets


def _by_instance(subscriber: Subscriber) -> tuple[bool, str]:
    is_dynamic = subscriber.instance_id is None
    return is_dynamic, subscriber.member_id if subscriber.instance_id is None else subscriber.instance_id


# Uniform, for members with one subscription.


def assign_evenly(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Targets:
    """Give each member as many partitions as every other, or one more; move as few as possible."""
    topic_ids = subscribers[0].topic_ids
    quota, extra = divmod(sum(counts[topic_id] for topic_id in topic_ids), len(subscribers))
    free = {topic_id: set(range(counts[topic_id])) for topic_id in topic_ids}
    given_back: list[tuple[UUID, int]] = []
    targets: Targets = {}
    unfilled: list[tuple[str, int]] = []
    for subscriber in subscribers:
        left = quota + (extra > 0)
        extra -= extra > 0
        target = subscriber.target
        size = sum(map(len, target.values()))
        # A topic may have been created again, with fewer partitions.
        is_kept = size <= left and all(
            topic_id in free and max(numbers) < counts[topic_id] for topic_id, numbers in target.items() if numbers
        )
        if not is_kept:
            target, surplus = _cut(target, counts, topic_ids, left)
            given_back += surplus
            size = sum(map(len, target.values()))
            for topic_id, number in surplus:
                free[topic_id].discard(number)
        for topic_id, numbers in target.items():
            free[topic_id] -= numbers
        targets[subscriber.member_id] = target
        if size < left:
            unfilled.append((subscriber.member_id, left - size))
    waiting = iter([(topic_id, number) for topic_id in sorted(free) for number in sorted(free[topic_id])] + given_back)
    for member_id, left in unfilled:
        added: dict[UUID, set[int]] = {}
        for _, (topic_id, number) in zip(range(left), waiting, strict=False):
            added.setdefault(topic_id, set()).add(number)
        if added:
            target = targets[member_id]
            grown = {topic_id: target.get(topic_id, frozenset()) | numbers for topic_id, numbers in added.items()}
            targets[member_id] = {**target, **grown}
    return targets


def _cut(
    target: Partitions, counts: PartitionCounts, topic_ids: frozenset[UUID], most: int
) -> tuple[Partitions, list[tuple[UUID, int]]]:
    """Return the partitions that exist, `most` of them, and the rest."""
    kept: dict[UUID, frozenset[int]] = {}
    surplus: list[tuple[UUID, int]] = []
    for topic_id, numbers in target.items():
        if topic_id in topic_ids:
            present = sorted(number for number in numbers if number < counts[topic_id])
            if present[:most]:
                kept[topic_id] = frozenset(present[:most])
            surplus += [(topic_id, number) for number in present[most:]]
            most -= len(present[:most])
    return kept, surplus


def frozen(partitions: Mapping[UUID, set[int]]) -> Partitions:
    """Return the partitions as a value; topics without partitions are left out."""
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items() if numbers}
