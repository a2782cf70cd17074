"""The states of a partition in the controller.  Kafka: PartitionStateMachine.

NON_EXISTENT   never created, or deleted
NEW            created, with replicas, but no leader yet
ONLINE         has a leader
OFFLINE        its leader is gone
"""

from __future__ import annotations

from enum import Enum


class PartitionPhase(Enum):
    """The four partition states."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"

    __hash__ = object.__hash__
    """Members are singletons.  Enum's own hash is a Python function, which costs more than a change of state."""


VALID_PREVIOUS: dict[PartitionPhase, frozenset[PartitionPhase]] = {
    PartitionPhase.NON_EXISTENT: frozenset({PartitionPhase.OFFLINE}),
    PartitionPhase.NEW: frozenset({PartitionPhase.NON_EXISTENT}),
    PartitionPhase.ONLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
    PartitionPhase.OFFLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
}
