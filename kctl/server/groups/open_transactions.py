"""Which groups of a partition of `__consumer_offsets` have commits in whose open transaction.

A marker in the partition ends the producer's transaction for all of these groups.  While the partition loads nobody can
say which they are, and the load may have come past the marker's place in the log already: such an end is remembered
until the groups are there.

Owner: event loop.  Pure.  Kafka: GroupMetadataManager.openGroupsForProducer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TransactionEnd(NamedTuple):
    """How a producer's transaction ended in one partition."""

    producer_id: int
    committed: bool


class OpenTransactions:
    """Of one partition."""

    __slots__ = ("_early_ends", "_groups")

    def __init__(self) -> None:
        self._groups: dict[int, dict[str, None]] = {}
        self._early_ends: list[TransactionEnd] = []

    def add(self, producer_id: int, group_id: str) -> None:
        """The group may have commits in the producer's transaction."""
        self._groups.setdefault(producer_id, {})[group_id] = None

    def discard(self, producer_id: int, group_id: str) -> None:
        """The group has no commits in the producer's transaction after all: the log refused them."""
        groups = self._groups.get(producer_id)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._groups[producer_id]

    def end(self, producer_id: int) -> Iterable[str]:
        """The groups whose commits are decided now; no transaction of the producer is open any more."""
        return self._groups.pop(producer_id, {})

    def end_when_loaded(self, end: TransactionEnd) -> None:
        """The transaction ended while the partition loads."""
        self._early_ends.append(end)

    def take_early_ends(self) -> list[TransactionEnd]:
        """What ended meanwhile, in order; the partition is loaded now."""
        ends, self._early_ends = self._early_ends, []
        return ends
