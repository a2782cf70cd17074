"""The protocols (assignors) that the members of a group support, and the election of one.

Invariant: the count of a protocol is the number of members that support it, even if one lists it twice.

Pure.  Kafka: GroupMetadata.supportedProtocols, selectProtocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kctl.server.groups.events import Protocols
from kctl.server.groups.members import Member


class Election:
    """Each member votes for its most preferred candidate; a tie goes to the one that was voted for first."""

    def __init__(self, candidates: Iterable[str]) -> None:
        self._candidates = frozenset(candidates)
        self._votes: Counter[str] = Counter()

    @property
    def is_decided(self) -> bool:
        """True if there is only one candidate."""
        return len(self._candidates) == 1

    def vote(self, member: Member) -> None:
        """Counts the vote of a member."""
        self._votes[member.vote(self._candidates)] += 1

    def winner(self, voters: Iterable[Member] = ()) -> str:
        """The protocol with the most votes, after these members have voted too."""
        if self.is_decided:
            return next(iter(self._candidates))
        for member in voters:
            self.vote(member)
        return self._votes.most_common(1)[0][0]


class ProtocolSupport:
    """Counts, for one group, how many members support each protocol."""

    __slots__ = ("_counts", "metadata_bytes")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.metadata_bytes = 0
        """The size of the names and metadata of all members."""

    def add(self, protocols: Protocols) -> None:
        """Adds a member that supports these."""
        self._count(protocols, 1)

    def remove(self, protocols: Protocols) -> None:
        """Removes a member that supports these."""
        self._count(protocols, -1)

    def shares_one(self, protocols: Protocols, members: int) -> bool:
        """True if `members` members all support one of these."""
        return any(self._counts[name] == members for name, _ in protocols)

    def election(self, members: int) -> Election:
        """An election among the protocols that all of `members` members support."""
        return Election(name for name, count in self._counts.items() if count == members)

    def _count(self, protocols: Protocols, by: int) -> None:
        self.metadata_bytes += by * size_of(protocols)
        for name in dict.fromkeys(name for name, _ in protocols):
            self._counts[name] += by
            if not self._counts[name]:
                del self._counts[name]  # Otherwise a group would keep the names that any of its members ever had.


def size_of(protocols: Protocols) -> int:
    """The size of their names and metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
