"""The assignors that leave partitions where they are: `sticky` (KIP-54) and `cooperative-sticky` (KIP-429).  Pure.

1. Everybody keeps what it claims, as far as nobody claims it of a later generation.
2. What nobody keeps goes to the readers with the fewest partitions.
3. Partitions move until no move, nor any chain of moves, evens out the members' numbers any further: first only those
   that nobody kept, then any.

The result depends on the claims, so it need not be that of Kafka's StickyAssignor: whoever leads next starts from what
this one decided.  It is at least as even, because Kafka looks at single moves only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from kctl.client.assignment import Assignment, Subscriber
from kctl.model import TopicPartition

UNEVEN = 2
"""A move evens out only between members whose numbers differ by as much."""

Held = defaultdict[str, dict[int, list[TopicPartition]]]
"""Partitions by topic and by the position of the member that has them; nobody has an empty list."""


def assign_sticky(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """As even as can be.  Nothing moves without need, and no more than must where all members read the same."""
    ranked = sorted(members, key=lambda member: member.rank)
    sharing = _Sharing(ranked, partition_counts)
    sharing.keep(_keepers(ranked))
    sharing.give_out_the_rest()
    sharing.even_out(moving_kept=False)
    sharing.even_out(moving_kept=True)
    return sharing.assignment()


def assign_cooperatively(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """The same, but what somebody else still reads is given to nobody; it is when its reader has come without it."""
    keepers = _keepers(members)
    readers: defaultdict[TopicPartition, set[str]] = defaultdict(set)
    for member in members:
        for tp in member.claims:
            readers[tp].add(member.member_id)
    return {
        member_id: [tp for tp in tps if keepers.get(tp) == member_id or not readers[tp] - {member_id}]
        for member_id, tps in assign_sticky(members, partition_counts).items()
    }


def _keepers(members: Collection[Subscriber]) -> dict[TopicPartition, str]:
    """Whose claim counts: that of the latest generation; nobody's when two of one generation claim the same."""
    latest: dict[TopicPartition, int] = {}
    keepers: dict[TopicPartition, str] = {}
    for member in members:
        for tp in member.claims:
            generation = latest.get(tp)
            if generation is None or member.generation > generation:
                latest[tp] = member.generation
                keepers[tp] = member.member_id
            elif member.generation == generation:
                keepers.pop(tp, None)
    return keepers


class _Sharing:
    """The partitions on their way to their readers, who are known by their position in rank order."""

    def __init__(self, ranked: list[Subscriber], partition_counts: Mapping[str, int]) -> None:
        self._ids = [member.member_id for member in ranked]
        self._topics = [member.topics & partition_counts.keys() for member in ranked]
        self._counts = partition_counts
        self._readers: defaultdict[str, list[int]] = defaultdict(list)
        for member, topics in enumerate(self._topics):
            for topic in topics:
                self._readers[topic].append(member)
        self._loads = [0] * len(ranked)
        self._kept: Held = defaultdict(dict)
        self._new: Held = defaultdict(dict)
        """Not kept by anyone, so moving it again costs nothing."""

    def keep(self, keepers: Mapping[TopicPartition, str]) -> None:
        positions = {member_id: position for position, member_id in enumerate(self._ids)}
        for tp, member_id in sorted(keepers.items()):
            member = positions[member_id]
            if tp.topic in self._topics[member] and tp.partition < self._counts[tp.topic]:
                self._give(self._kept, member, tp)

    def give_out_the_rest(self) -> None:
        """Topics with few readers first: the others can make up for them."""
        for topic in sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic)):
            kept = {tp.partition for tps in self._kept[topic].values() for tp in tps}
            for partition in range(self._counts[topic]):
                if partition not in kept:
                    reader = min(self._readers[topic], key=self._loads.__getitem__)
                    self._give(self._new, reader, TopicPartition(topic, partition))

    def even_out(self, *, moving_kept: bool) -> None:
        """Move partitions along the shortest chains that end at the member with the fewest.

        When no chain helps that member, none helps those that could give to it either: they are done.
        """
        held = (self._new, self._kept) if moving_kept else (self._new,)
        waiting = set(range(len(self._ids)))
        while waiting:
            poorest = min(waiting, key=lambda member: (self._loads[member], member))
            givers = self._givers(poorest, waiting, held)
            richest = max(givers, key=lambda member: (self._loads[member], -member))
            if self._loads[richest] < self._loads[poorest] + UNEVEN:
                waiting -= givers.keys()
                continue
            giver = richest
            while giver != poorest:
                receiver, topic = givers[giver]
                self._move(topic, giver, receiver, held)
                giver = receiver

    def _givers(self, poorest: int, waiting: set[int], held: tuple[Held, ...]) -> dict[int, tuple[int, str]]:
        """Who could give something to the poorest, through others if need be: to whom, and of which topic.

        As far as to the nearest that has enough, or all of them.
        """
        givers: dict[int, tuple[int, str]] = {poorest: (poorest, "")}
        seen: set[str] = set()
        enough = self._loads[poorest] + UNEVEN
        receivers = [poorest]
        while receivers:
            nearest: list[int] = []
            for receiver in receivers:
                for topic in sorted(self._topics[receiver] - seen):
                    seen.add(topic)
                    for some in held:
                        for giver in some[topic]:
                            if giver not in givers and giver in waiting:
                                givers[giver] = receiver, topic
                                nearest.append(giver)
            if any(self._loads[giver] >= enough for giver in nearest):
                break
            receivers = nearest
        return givers

    def _move(self, topic: str, giver: int, receiver: int, held: tuple[Held, ...]) -> None:
        """One that nobody kept, if there is one."""
        some = next(some[topic] for some in held if giver in some[topic])
        tp = some[giver].pop()
        if not some[giver]:
            del some[giver]
        self._loads[giver] -= 1
        self._give(self._new, receiver, tp)

    def _give(self, held: Held, member: int, tp: TopicPartition) -> None:
        held[tp.topic].setdefault(member, []).append(tp)
        self._loads[member] += 1

    def assignment(self) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in self._ids}
        for held in (self._kept, self._new):
            for holders in held.values():
                for member, tps in holders.items():
                    assignment[self._ids[member]] += tps
        return {member_id: sorted(tps) for member_id, tps in assignment.items()}
