"""The assignor `uniform` for members with different subscriptions.

Each topic's free partitions go to those of its subscribers that have the fewest partitions.  Then partitions move from
the most loaded subscribers of each topic to the least loaded ones, until no topic can be balanced further; Kafka's
bound of 16 rounds over all topics limits the work.  What a member has stays with it otherwise.

Pure.  Kafka: UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heapreplace
from uuid import UUID

from kctl.server.coordination.consumer_groups.assignors import (
    PartitionCounts,
    Subscriber,
    Targets,
    assign_evenly,
    frozen,
    has_one_subscription,
)

ROUNDS_MAX = 16


def assign_uniformly(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> Targets:
    """Assign the partitions of the topics to their subscribers, evenly."""
    if has_one_subscription(subscribers):
        return assign_evenly(subscribers, counts)
    balance = _Balance(subscribers, counts)
    balance.assign_free_partitions()
    balance.even_out()
    return balance.targets()


class _Balance:
    """An assignment that is being balanced; members are numbered in order."""

    def __init__(self, subscribers: Sequence[Subscriber], counts: PartitionCounts) -> None:
        self._subscribers = subscribers
        self._counts = counts
        self._sizes = [0] * len(subscribers)
        self._members: defaultdict[UUID, list[int]] = defaultdict(list)
        """The subscribers of each topic."""
        self._owners: dict[UUID, dict[int, int]] = {topic_id: {} for topic_id in counts}
        for index, subscriber in enumerate(subscribers):
            for topic_id in subscriber.topic_ids:
                self._members[topic_id].append(index)
            for topic_id, partitions in subscriber.target.items():
                if topic_id not in subscriber.topic_ids:
                    continue
                for number in partitions:
                    # A topic may have been created again, with fewer partitions.
                    if number < counts[topic_id] and number not in self._owners[topic_id]:
                        self._owners[topic_id][number] = index
                        self._sizes[index] += 1
        self._topics = sorted(self._members, key=self._order_of_topic)

    def _order_of_topic(self, topic_id: UUID) -> tuple[float, int, UUID]:
        """Sort by partitions per subscriber, the most first: few members can take these."""
        subscribers = len(self._members[topic_id])
        return -self._counts[topic_id] / subscribers, subscribers, topic_id

    def assign_free_partitions(self) -> None:
        """Give each partition without an owner to the least loaded subscriber of its topic."""
        for topic_id in self._topics:
            owners = self._owners[topic_id]
            least = [(self._sizes[index], index) for index in self._members[topic_id]]
            heapify(least)
            for number in range(self._counts[topic_id]):
                if number not in owners:
                    size, index = least[0]
                    owners[number] = index
                    self._sizes[index] = size + 1
                    heapreplace(least, (size + 1, index))

    def even_out(self) -> None:
        """Move partitions until the subscribers of no topic can be balanced further."""
        shared = [topic_id for topic_id in self._topics if len(self._members[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum([self._even_out_topic(topic_id) for topic_id in shared]):
                return

    def _even_out_topic(self, topic_id: UUID) -> int:
        """Move partitions of a topic from its most loaded owners to its least loaded subscribers; return how many."""
        sizes, owners = self._sizes, self._owners[topic_id]
        members = self._members[topic_id]
        if max(sizes[index] for index in members) - min(sizes[index] for index in members) <= 1:
            return 0
        by_owner: defaultdict[int, list[int]] = defaultdict(list)
        for number in sorted(owners):
            by_owner[owners[number]].append(number)
        least = [(sizes[index], index) for index in members]
        most = [(-sizes[index], index) for index in by_owner]
        heapify(least)
        heapify(most)
        moved = 0
        while most:
            giver, taker = most[0][1], least[0][1]
            # An entry is out of date if its member has given or taken a partition since.
            if -most[0][0] != sizes[giver] or not by_owner[giver]:
                _refresh(most, (-sizes[giver], giver), is_left=bool(by_owner[giver]))
            elif least[0][0] != sizes[taker]:
                heapreplace(least, (sizes[taker], taker))
            elif sizes[giver] - sizes[taker] <= 1:
                break
            else:
                number = by_owner[giver].pop()
                owners[number] = taker
                sizes[giver] -= 1
                sizes[taker] += 1
                moved += 1
        return moved

    def targets(self) -> Targets:
        """Return the assignment of all members."""
        partitions: list[defaultdict[UUID, set[int]]] = [defaultdict(set) for _ in self._subscribers]
        for topic_id, owners in self._owners.items():
            for number, index in owners.items():
                partitions[index][topic_id].add(number)
        return {subscriber.member_id: frozen(partitions[index]) for index, subscriber in enumerate(self._subscribers)}


def _refresh(heap: list[tuple[int, int]], entry: tuple[int, int], *, is_left: bool) -> None:
    """Replace the first entry, or remove it."""
    if is_left:
        heapreplace(heap, entry)
        return
    last = heap.pop()
    if heap:
        heapreplace(heap, last)
