"""The states of partitions and replicas in the controller.  Kafka: PartitionStateMachine, ReplicaStateMachine."""

from __future__ import annotations

from enum import Enum

# The states of a partition in the controller. Kafka: PartitionStateMachine.
#
# NON_EXISTENT never created, or deleted NEW created, with replicas, but no leader yet ONLINE has a leader OFFLINE its
# leader is gone


class PartitionPhase(Enum):
    """The four partition states."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"

    __hash__ = object.__hash__
    """Members are singletons.  Enum's own hash is a Python function, which costs more than a change of state."""


VALID_PREVIOUS_OF_PARTITIONS: dict[PartitionPhase, frozenset[PartitionPhase]] = {
    PartitionPhase.NON_EXISTENT: frozenset({PartitionPhase.OFFLINE}),
    PartitionPhase.NEW: frozenset({PartitionPhase.NON_EXISTENT}),
    PartitionPhase.ONLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
    PartitionPhase.OFFLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
}


# The states of a replica in the controller. Kafka: ReplicaStateMachine.
#
# NEW just assigned; can only become a follower ONLINE its broker is alive OFFLINE its broker is dead or its log
# directory failed DELETION_STARTED StopReplica with delete=true was sent to the broker DELETION_SUCCESSFUL the log is
# deleted DELETION_INELIGIBLE could not be deleted, or its broker is dead; retried when that changes NON_EXISTENT
# removed from the state


class ReplicaPhase(Enum):
    """The seven replica states."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"

    __hash__ = object.__hash__
    """Members are singletons.  Enum's own hash is a Python function, which costs more than a change of state."""


VALID_PREVIOUS_OF_REPLICAS: dict[ReplicaPhase, frozenset[ReplicaPhase]] = {
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
