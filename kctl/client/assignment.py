"""Who of a group reads what: what an assignor is given, and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kctl.model import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One member of a group, the topics that it reads, and what it says that it read so far."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]
    claims: frozenset[TopicPartition] = frozenset()
    """For `sticky` what it was given last; for `cooperative-sticky` what it reads until it is told otherwise."""
    generation: int = NO_GENERATION
    """The generation in which it was given that."""

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
