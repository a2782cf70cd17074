"""Counts what happens to groups and their commits, for metrics.  Kafka: the sensors of GroupCoordinator."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.server.groups.actions import Action, Discard, PersistOffsets, PersistTombstones
from kctl.server.groups.events import Event, ExpireOffsets


@dataclass(slots=True)
class Removals:
    """What a check of all groups has removed since the last summary in the log."""

    groups: int = 0
    offsets: int = 0

    def count(self, action: Action) -> None:
        """Counts a group or the offsets of one that the check removes."""
        match action:
            case PersistTombstones():
                self.offsets += len(action.partitions)
            case Discard():
                self.groups += 1
            case _:
                pass


@dataclass(slots=True)
class GroupCounts:
    """Numbers since the start of the broker."""

    completed_rebalances: int = 0
    """Rebalances that ended with an assignment."""
    offset_commits: int = 0
    """Offsets that commits wrote."""
    offset_expirations: int = 0
    """Committed offsets that were removed because they had expired."""
    offset_deletions: int = 0
    """Committed offsets that were removed with their topic or group, or by OffsetDelete."""

    def count(self, event: Event, action: Action) -> None:
        """Counts the offsets of an action that the event caused."""
        match action:
            case PersistOffsets():
                self.offset_commits += len(action.offsets)
            case PersistTombstones() if isinstance(event, ExpireOffsets):
                self.offset_expirations += len(action.partitions)
            case PersistTombstones():
                self.offset_deletions += len(action.partitions)
            case _:
                pass
