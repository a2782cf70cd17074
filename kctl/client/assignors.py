"""The assignors by the names that go over the wire, and the two that look at nothing but the subscriptions.  Pure.

Any member may lead.  The ranges of topics with equally many partitions fit together, and programs rely on that, so
`range` and `roundrobin` come to the same result as Kafka's RangeAssignor and RoundRobinAssignor.  Members are taken in
the order of their static id, else their member id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle

from kctl.client.assignment import Assignment, Assignor, Subscriber
from kctl.client.sticky_assignors import assign_cooperatively, assign_sticky
from kctl.model import TopicPartition


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
"""By the names that go over the wire."""
DEFAULT_ASSIGNORS = (RANGE, COOPERATIVE_STICKY)
"""Those of Java's consumer since 3.0, the preferred one first."""


def is_cooperative(assignors: Sequence[str]) -> bool:
    """Whether a member that knows these keeps what it reads through a rebalance (KIP-429): only if all of them let it.

    `range, cooperative-sticky` is how a group moves from one to the other: everybody knows both and gives up everything
    first, whichever of them the group chooses; then one after the other leaves out `range`.
    """
    return all(name == COOPERATIVE_STICKY for name in assignors)


def _rank(member: Subscriber) -> tuple[bool, str]:
    return member.rank
