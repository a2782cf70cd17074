"""What a replica can be, for the controller.  Kafka's ReplicaStateMachine.

NEW                    assigned just now; can only become a follower
ONLINE                 its broker is alive
OFFLINE                its broker or its disk is gone
DELETION_STARTED       told to delete its log
DELETION_SUCCESSFUL    has deleted its log
DELETION_INELIGIBLE    could not delete, or its broker is gone; tried again when that changes
NON_EXISTENT           forgotten
"""

from __future__ import annotations

from enum import Enum


class ReplicaPhase(Enum):
    """The seven states."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


VALID_PREVIOUS: dict[ReplicaPhase, frozenset[ReplicaPhase]] = {
    ReplicaPhase.NON_EXISTENT: frozenset({ReplicaPhase.DELETION_SUCCESSFUL}),
    ReplicaPhase.NEW: frozenset({ReplicaPhase.NON_EXISTENT}),
    ReplicaPhase.ONLINE: frozenset(
        {
            ReplicaPhase.NEW,
            ReplicaPhase.ONLINE,
            ReplicaPhase.OFFLINE,
            ReplicaPhase.DELETION_INELIGIBLE,
        }
    ),
    ReplicaPhase.OFFLINE: frozenset(
        {
            ReplicaPhase.NEW,
            ReplicaPhase.ONLINE,
            ReplicaPhase.OFFLINE,
            ReplicaPhase.DELETION_INELIGIBLE,
        }
    ),
    ReplicaPhase.DELETION_STARTED: frozenset({ReplicaPhase.OFFLINE}),
    ReplicaPhase.DELETION_SUCCESSFUL: frozenset({ReplicaPhase.DELETION_STARTED}),
    ReplicaPhase.DELETION_INELIGIBLE: frozenset({ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_STARTED}),
}
