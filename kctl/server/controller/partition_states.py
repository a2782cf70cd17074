"""What a partition can be, for the controller.  Kafka's PartitionStateMachine.

NON_EXISTENT   never created, or deleted
NEW            created, with replicas, but no leader yet
ONLINE         has a leader
OFFLINE        had a leader, which is gone
"""

from __future__ import annotations

from enum import Enum


class PartitionPhase(Enum):
    """The four states."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


VALID_PREVIOUS: dict[PartitionPhase, frozenset[PartitionPhase]] = {
    PartitionPhase.NON_EXISTENT: frozenset({PartitionPhase.OFFLINE}),
    PartitionPhase.NEW: frozenset({PartitionPhase.NON_EXISTENT}),
    PartitionPhase.ONLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
    PartitionPhase.OFFLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
}
