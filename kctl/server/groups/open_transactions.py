"""The groups in a partition of `__consumer_offsets` that have commits in an open transaction, by producer id.

A marker in the partition ends the producer's transaction for all of these groups.  While the partition loads, the
groups are not known yet, and the load may have read past the marker's offset already: such an end is kept until the
load is complete.

Owner: event loop.  Pure.  Kafka: GroupMetadataManager.openGroupsForProducer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kctl.limits import TRANSACTION_GROUPS_MAX


class TransactionEnd(NamedTuple):
    """How a producer's transaction ended in one partition."""

    producer_id: int
    committed: bool


class OpenTransactions:
    """The open transactions of one partition."""

    __slots__ = ("_early_ends", "_groups")

    def __init__(self) -> None:
        self._groups: dict[int, dict[str, None]] = {}
        self._early_ends: list[TransactionEnd] = []

    def add(self, producer_id: int, group_id: str) -> None:
        """The group may have commits in the producer's transaction."""
        self._groups.setdefault(producer_id, {})[group_id] = None

    def has_room(self, producer_id: int, group_id: str) -> bool:
        """True if the group may commit in the producer's transaction: its end is noted for all groups at once."""
        groups = self._groups.get(producer_id, {})
        return len(groups) < TRANSACTION_GROUPS_MAX or group_id in groups

    def discard(self, producer_id: int, group_id: str) -> None:
        """The group has no commits in the producer's transaction: the log refused them."""
        groups = self._groups.get(producer_id)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._groups[producer_id]

    def end(self, producer_id: int) -> Iterable[str]:
        """Ends the producer's transaction and returns the groups with commits in it."""
        return self._groups.pop(producer_id, {})

    def end_when_loaded(self, end: TransactionEnd) -> None:
        """Stores the end of a transaction while the partition loads."""
        self._early_ends.append(end)

    def take_early_ends(self) -> list[TransactionEnd]:
        """The ends stored while the partition loaded, in order; clears them."""
        ends, self._early_ends = self._early_ends, []
        return ends
