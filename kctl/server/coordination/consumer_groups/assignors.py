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
    total = sum(counts[topic_id] for topic_id in topic_ids)
    quota, extra = divmod(total, len(subscribers))
    owned: set[tuple[UUID, int]] = set()
    given_back: list[tuple[UUID, int]] = []
    kept: dict[str, dict[UUID, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for subscriber in subscribers:
        left = quota + (extra > 0)
        extra -= extra > 0
        mine = kept[subscriber.member_id] = {}
        for topic_id, partitions in subscriber.target.items():
            if topic_id not in topic_ids:
                continue
            # A topic may have been created again, with fewer partitions.
            present = sorted(number for number in partitions if number < counts[topic_id])
            owned.update((topic_id, number) for number in present)
            if kept_here := present[:left]:
                mine[topic_id] = set(kept_here)
            given_back += [(topic_id, number) for number in present[left:]]
            left -= len(kept_here)
        if left:
            unfilled.append((subscriber.member_id, left))
    free = [
        (topic_id, number)
        for topic_id in sorted(topic_ids)
        for number in range(counts[topic_id])
        if (topic_id, number) not in owned
    ]
    waiting = iter(free + given_back)
    for member_id, left in unfilled:
        for _, (topic_id, number) in zip(range(left), waiting, strict=False):
            kept[member_id].setdefault(topic_id, set()).add(number)
    return {member_id: frozen(partitions) for member_id, partitions in kept.items()}


def frozen(partitions: Mapping[UUID, set[int]]) -> Partitions:
    """Return the partitions as a value; topics without partitions are left out."""
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items() if numbers}
