"""The assignor of share groups: every partition has a member, and every member a partition if it can have one.

With fewer members than partitions each partition has one member; with more, the members are spread over the partitions
evenly.  What a member has stays with it as far as that is balanced.

Pure.  Kafka: SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

from kctl.server.coordination.consumer_groups.state import Partitions

SIMPLE = "simple"
Place = tuple[UUID, int]


class Reader(NamedTuple):
    """A member, the topics that it subscribes to, and its last target assignment."""

    member_id: str
    topic_ids: frozenset[UUID]
    target: Partitions


def assign_simply(readers: Sequence[Reader], partitions: Partitions) -> dict[str, Partitions]:
    """Return the target assignment of each member; the partitions are those that may be assigned."""
    readers = sorted(readers)
    by_topics: dict[frozenset[UUID], list[Reader]] = {}
    for reader in readers:
        by_topics.setdefault(reader.topic_ids.intersection(partitions), []).append(reader)
    given: dict[str, set[Place]] = {reader.member_id: set() for reader in readers}
    counts: dict[Place, int] = {}
    for topic_ids, group in by_topics.items():
        places = sorted((topic_id, number) for topic_id in topic_ids for number in partitions[topic_id])
        if places:
            _assign(group, places, given, counts)
    return {member_id: _by_topic(places) for member_id, places in given.items()}


def _assign(
    readers: Sequence[Reader], places: Sequence[Place], given: dict[str, set[Place]], counts: dict[Place, int]
) -> None:
    """Assign to members with the same subscription: as many (member, partition) pairs as both have at least."""
    pairs = max(len(readers), len(places))
    of_place = _Quota(pairs, len(places))
    of_reader = _Quota(pairs, len(readers))
    here: dict[Place, int] = dict.fromkeys(places, 0)
    loads = {reader.member_id: 0 for reader in readers}
    for reader in readers:
        for topic_id in sorted(reader.target):
            for number in sorted(reader.target[topic_id], reverse=True):
                place = topic_id, number
                if place in here and of_place.allows(here[place]) and of_reader.allows(loads[reader.member_id]):
                    of_place.take(here[place])
                    of_reader.take(loads[reader.member_id])
                    _give(reader.member_id, place, given, here, loads)
    waiting = [
        (here[topic_id, number], counts.get((topic_id, number), 0), topic_id, -number)
        for topic_id, number in places
        if of_place.allows(here[topic_id, number])
    ]
    heapify(waiting)
    for reader in readers:
        own: list[tuple[int, int, UUID, int]] = []
        while waiting and of_reader.allows(loads[reader.member_id]):
            entry = heappop(waiting)
            count, others, topic_id, number = entry
            place = topic_id, -number
            if place in given[reader.member_id]:
                own.append(entry)
            elif of_place.allows(count):
                of_place.take(count)
                of_reader.take(loads[reader.member_id])
                _give(reader.member_id, place, given, here, loads)
                heappush(waiting, (count + 1, others, topic_id, number))
        for entry in own:
            heappush(waiting, entry)
    for place, count in here.items():
        counts[place] = counts.get(place, 0) + count


class _Quota:
    """How many each of them may have: all the same number, and some one more if it cannot be divided."""

    def __init__(self, total: int, size: int) -> None:
        self._least, self._more = divmod(total, size)

    def allows(self, has: int) -> bool:
        return has < self._least or (has == self._least and self._more > 0)

    def take(self, has: int) -> None:
        self._more -= has == self._least


def _give(
    member_id: str, place: Place, given: dict[str, set[Place]], here: dict[Place, int], loads: dict[str, int]
) -> None:
    given[member_id].add(place)
    here[place] += 1
    loads[member_id] += 1


def _by_topic(places: set[Place]) -> Mapping[UUID, frozenset[int]]:
    by_topic: dict[UUID, set[int]] = {}
    for topic_id, number in places:
        by_topic.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}
