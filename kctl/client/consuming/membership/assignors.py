"""The assignors of partitions to the members of a group, by protocol name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from kctl.errors import UsageError
from kctl.model import TopicPartition

# Input and output types of the partition assignors.


NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One member of a group with its subscription and the partitions that it claims to own."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]
    claims: frozenset[TopicPartition] = frozenset()
    """With `sticky` its last assignment; with `cooperative-sticky` the partitions that it still owns."""
    generation: int = NO_GENERATION
    """The generation in which the claimed partitions were assigned."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Sort key of members: those with a group.instance.id first, in its order, then the others by member id."""
        if self.group_instance_id is None:
            return True, self.member_id
        return False, self.group_instance_id


Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id; every member has an entry."""
Assignor = Callable[[Collection[Subscriber], Mapping[str, int]], Assignment]
"""(members, partition count by topic) -> assignment.  Topics that do not exist are not in the map."""


# The assignors that keep partitions with their owners: `sticky` (KIP-54) and `cooperative-sticky` (KIP-429). Pure.
#
# 1. Each member keeps the partitions that it claims, unless another member claims them with a later generation.
# 2. The other partitions go to the subscribers with the fewest partitions.
# 3. Partitions move until no move and no chain of moves balances the counts further: first partitions that no member
# kept,
#    then any.
#
# The result may differ from that of Kafka's StickyAssignor, which does no harm, because the next leader starts from
# the claims. It is at least as balanced: Kafka considers single moves only.


UNEVEN = 2
"""A move balances only members whose counts differ by at least this."""

Held = defaultdict[str, dict[int, list[TopicPartition]]]
"""Partitions by topic and by the position of their member; no list is empty."""


def assign_sticky(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Balance as far as possible.  With equal subscriptions, the number of moved partitions is minimal."""
    ranked = sorted(members, key=lambda member: member.rank)
    sharing = _Sharing(ranked, partition_counts)
    sharing.keep(_keepers(ranked))
    sharing.give_out_the_rest()
    sharing.even_out(moving_kept=False)
    sharing.even_out(moving_kept=True)
    return sharing.assignment()


def assign_cooperatively(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """As `assign_sticky`, but partitions that another member still owns stay unassigned until it has revoked them."""
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
    """Return the members whose claims count: those of the latest generation; none if two of one generation conflict."""
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
    """An assignment in progress; members are identified by their position in rank order."""

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
        """Partitions that no member kept, so moving them costs nothing."""

    def keep(self, keepers: Mapping[TopicPartition, str]) -> None:
        positions = {member_id: position for position, member_id in enumerate(self._ids)}
        for tp, member_id in sorted(keepers.items()):
            member = positions[member_id]
            if tp.topic in self._topics[member] and tp.partition < self._counts[tp.topic]:
                self._give(self._kept, member, tp)

    def give_out_the_rest(self) -> None:
        """Assign the remaining partitions, topics with few subscribers first."""
        for topic in sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic)):
            kept = {tp.partition for tps in self._kept[topic].values() for tp in tps}
            for partition in range(self._counts[topic]):
                if partition not in kept:
                    reader = min(self._readers[topic], key=self._loads.__getitem__)
                    self._give(self._new, reader, TopicPartition(topic, partition))

    def even_out(self, *, moving_kept: bool) -> None:
        """Move partitions along the shortest chains that end at the member with the fewest.

        If no chain helps that member, none helps the members that could give to it, so all of them are done.
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
        """Return the members that could give a partition to `poorest`, directly or through others: the receiver and the
        topic of each.

        Searches up to the nearest member with enough partitions, or all members.
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
        """Move one partition, preferably one that no member kept."""
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


# The assignors by protocol name, and those that depend on subscriptions only: `range` and `roundrobin`. Pure.
#
# Any member may be the leader, and applications rely on equal partition numbers of co-partitioned topics being
# assigned to the same member, so both give the same result as Kafka's RangeAssignor and RoundRobinAssignor. Members
# are sorted by group.instance.id, else by member id.


def assign_ranges(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Give each subscriber of a topic consecutive partitions; the first ones get the remainder.  RangeAssignor."""
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(partition_counts):
        readers = [member for member in sorted(members, key=_rank) if topic in member.topics]
        if not readers:
            continue
        share, left_over = divmod(partition_counts[topic], len(readers))
        start = 0
        for position, reader in enumerate(readers):
            end = start + share + (position < left_over)
            assignment[reader.member_id] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assignment


def assign_round_robin(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Assign all partitions of all topics round-robin, skipping members not subscribed to the topic.

    RoundRobinAssignor.
    """
    assignment: Assignment = {member.member_id: [] for member in members}
    readable = frozenset[str]().union(*(member.topics for member in members))
    dealer = cycle(sorted(members, key=_rank))
    for topic in sorted(readable & partition_counts.keys()):
        for number in range(partition_counts[topic]):
            reader = next(member for member in dealer if topic in member.topics)
            assignment[reader.member_id].append(TopicPartition(topic, number))
    return assignment


RANGE = "range"
ROUND_ROBIN = "roundrobin"
STICKY = "sticky"
COOPERATIVE_STICKY = "cooperative-sticky"

ASSIGNORS: Mapping[str, Assignor] = {
    RANGE: assign_ranges,
    ROUND_ROBIN: assign_round_robin,
    STICKY: assign_sticky,
    COOPERATIVE_STICKY: assign_cooperatively,
}
"""Assignors by their names in JoinGroup."""
DEFAULT_ASSIGNORS = (RANGE, COOPERATIVE_STICKY)
"""Defaults of the Java consumer since 3.0, the preferred one first."""


JAVA_ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""The assignors by their class names in partition.assignment.strategy of Java's consumer."""


def assignor_names(value: str) -> tuple[str, ...]:
    """Return the assignors by name, as librdkafka's property has them, or by the classes of Java's consumer.

    Raises UsageError.
    """
    names = tuple(
        dict.fromkeys(JAVA_ASSIGNORS.get(name, name) for name in (part.strip() for part in value.split(",")) if name)
    )
    wrong = next((name for name in names if name not in ASSIGNORS), None)
    if names and wrong is None:
        return names
    problem = f"'{wrong}' is not an assignor" if wrong else "at least one assignor is needed"
    raise UsageError(f"{problem}; supported: {', '.join(ASSIGNORS)}")


def is_cooperative(assignors: Sequence[str]) -> bool:
    """Return whether a member with these assignors keeps its partitions during a rebalance (KIP-429): only if all of
    them allow it.

    A group is migrated in two rolling restarts: first all members list `range` and `cooperative-sticky`, and rebalance
    eagerly; then `range` is removed from one member after the other.
    """
    return all(name == COOPERATIVE_STICKY for name in assignors)


def _rank(member: Subscriber) -> tuple[bool, str]:
    return member.rank
