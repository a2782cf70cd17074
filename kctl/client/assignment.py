"""Input and output types of the partition assignors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kctl.model import TopicPartition

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
