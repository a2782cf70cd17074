"""Which protocols (assignors) the members of a group can run, and which one they choose.

Invariant: the count of a protocol is the number of members that can run it, however often one of them names it.

Pure.  Kafka: GroupMetadata.supportedProtocols, selectProtocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kctl.server.groups.events import Protocols
from kctl.server.groups.members import Member


class ProtocolSupport:
    """Of one group; told who comes, who goes and who can run something else now."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, protocols: Protocols) -> None:
        """One more member can run these."""
        self._count(protocols, 1)

    def remove(self, protocols: Protocols) -> None:
        """One member less can run these."""
        self._count(protocols, -1)

    def shares_one(self, protocols: Protocols, members: int) -> bool:
        """Whether all of that many members can run one of these."""
        return any(self._counts[name] == members for name, _ in protocols)

    def elect(self, members: Collection[Member]) -> str:
        """The protocol with the most votes; each member votes for the first of its own that all can run.

        A tie goes to the protocol that was voted for first.
        """
        candidates = {name for name, count in self._counts.items() if count == len(members)}
        votes = Counter(member.vote(candidates) for member in members)
        return votes.most_common(1)[0][0]

    def _count(self, protocols: Protocols, by: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            self._counts[name] += by
