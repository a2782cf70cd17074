"""Who of a group reads what, as the leader of the group decides it.  Pure.

Any member may lead, so an assignor must come to the same result in every client: these are Kafka's RangeAssignor and
RoundRobinAssignor, which all clients have.  Members are taken in the order of their static id, else their member id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import cycle

from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One member of a group and the topics that it reads."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]

    @property
    def rank(self) -> tuple[bool, str]:
        """Where it stands among the others: those with a static id come first, in its order."""
        if self.group_instance_id is None:
            return True, self.member_id
        return False, self.group_instance_id


Assignment = dict[str, list[TopicPartition]]
"""What each member reads, by member id; everyone has an entry."""
Assignor = Callable[[Collection[Subscriber], Mapping[str, int]], Assignment]
"""Members and the number of partitions of each topic -> what each member reads; unknown topics are left out."""


def assign_ranges(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Of each topic a stretch of neighbours for everyone who reads it; the first get what does not divide."""
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
    """All partitions of all topics dealt out one by one, past members that do not read the topic."""
    assignment: Assignment = {member.member_id: [] for member in members}
    readable = frozenset[str]().union(*(member.topics for member in members))
    dealer = cycle(sorted(members, key=_rank))
    for topic in sorted(readable & partition_counts.keys()):
        for number in range(partition_counts[topic]):
            reader = next(member for member in dealer if topic in member.topics)
            assignment[reader.member_id].append(TopicPartition(topic, number))
    return assignment


ASSIGNORS: Mapping[str, Assignor] = {"range": assign_ranges, "roundrobin": assign_round_robin}
"""By the names that go over the wire, the preferred one first."""


def _rank(member: Subscriber) -> tuple[bool, str]:
    return member.rank
