"""The protocols (assignors) that the members of a group support, and the election of one.

Invariant: the count of a protocol is the number of members that support it, even if one lists it twice.

Pure.  Kafka: GroupMetadata.supportedProtocols, selectProtocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kctl.server.groups.events import Protocols
from kctl.server.groups.members import Member


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

    def elect(self, members: Collection[Member]) -> str:
        """The protocol with the most votes; each member votes for its most preferred one that all members support.

        A tie goes to the protocol that was voted for first.
        """
        candidates = {name for name, count in self._counts.items() if count == len(members)}
        votes = Counter(member.vote(candidates) for member in members)
        return votes.most_common(1)[0][0]

    def _count(self, protocols: Protocols, by: int) -> None:
        self.metadata_bytes += by * size_of(protocols)
        for name in dict.fromkeys(name for name, _ in protocols):
            self._counts[name] += by
            if not self._counts[name]:
                del self._counts[name]  # Otherwise a group would keep the names that any of its members ever had.


def size_of(protocols: Protocols) -> int:
    """The size of their names and metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
