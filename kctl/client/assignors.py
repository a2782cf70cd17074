"""The assignors by protocol name, and those that depend on subscriptions only: `range` and `roundrobin`.  Pure.

Any member may be the leader, and applications rely on equal partition numbers of co-partitioned topics being assigned
to the same member, so both give the same result as Kafka's RangeAssignor and RoundRobinAssignor.  Members are sorted by
group.instance.id, else by member id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle

from kctl.client.assignment import Assignment, Assignor, Subscriber
from kctl.client.sticky_assignors import assign_cooperatively, assign_sticky
from kctl.errors import UsageError
from kctl.model import TopicPartition


def assign_ranges(members: Collection[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Gives each subscriber of a topic consecutive partitions; the first ones get the remainder.  RangeAssignor."""
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
    """Assigns all partitions of all topics round-robin, skipping members not subscribed to the topic.

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
    """The assignors by name, as librdkafka's property has them, or by the classes of Java's consumer.

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
    """Whether a member with these assignors keeps its partitions during a rebalance (KIP-429): only if all of them
    allow it.

    A group is migrated in two rolling restarts: first all members list `range` and `cooperative-sticky`, and rebalance
    eagerly; then `range` is removed from one member after the other.
    """
    return all(name == COOPERATIVE_STICKY for name in assignors)


def _rank(member: Subscriber) -> tuple[bool, str]:
    return member.rank
