"""The state of the active controller.  Kafka: ControllerContext.

Only `step` changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from kctl.model import LeaderAndIsr, TopicPartition
from kctl.zookeeper.broker_znodes import BrokerRegistration
from kctl.zookeeper.znodes import TopicAssignment


class PartitionPhase(Enum):
    """The states of a partition.  Kafka: PartitionStateMachine."""

    NON_EXISTENT = "NonExistentPartition"  # never created, or deleted
    NEW = "NewPartition"  # created, with replicas, but without a leader yet
    ONLINE = "OnlinePartition"  # has a leader
    OFFLINE = "OfflinePartition"  # its leader is gone

    __hash__ = object.__hash__
    """Members are singletons.  Enum's own hash is a Python function, which costs more than a change of state."""


VALID_PREVIOUS_OF_PARTITIONS: dict[PartitionPhase, frozenset[PartitionPhase]] = {
    PartitionPhase.NON_EXISTENT: frozenset({PartitionPhase.OFFLINE}),
    PartitionPhase.NEW: frozenset({PartitionPhase.NON_EXISTENT}),
    PartitionPhase.ONLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
    PartitionPhase.OFFLINE: frozenset({PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
}


class ReplicaPhase(Enum):
    """The states of a replica.  Kafka: ReplicaStateMachine."""

    NON_EXISTENT = "NonExistentReplica"  # removed from the state
    NEW = "NewReplica"  # just assigned; can only become a follower
    ONLINE = "OnlineReplica"  # its broker is alive
    OFFLINE = "OfflineReplica"  # its broker is dead, or its log directory failed
    DELETION_STARTED = "ReplicaDeletionStarted"  # StopReplica with delete=true was sent to the broker
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"  # the log is deleted
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"  # deletion failed, or its broker is dead; retried on changes

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


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker; `epoch` is the zxid of its registration, so it changes with each restart."""

    registration: BrokerRegistration
    epoch: int


Replica = tuple[TopicPartition, int]


@dataclass(slots=True)
class ControllerState:
    """Empty unless this broker is the controller."""

    broker_id: int
    allows_topic_deletion: bool = True
    is_active: bool = False
    epoch: int = 0
    epoch_version: int = 0
    """ZooKeeper version of /controller_epoch, which every write of the controller checks."""
    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, TopicAssignment] = field(default_factory=dict)
    unclean_topics: set[str] = field(default_factory=set)
    """Topics with unclean.leader.election.enable."""
    leaders: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    partition_phases: dict[TopicPartition, PartitionPhase] = field(default_factory=dict)
    replica_phases: dict[Replica, ReplicaPhase] = field(default_factory=dict)
    offline_replicas: set[Replica] = field(default_factory=set)
    """Replicas in a failed log directory of a live broker."""
    requested_reassignments: set[TopicPartition] = field(default_factory=set)
    """Partitions of /admin/reassign_partitions whose reassignment is not completed."""
    deleting: set[str] = field(default_factory=set)
    """Topics whose deletion is requested or in progress."""
    deletions_started: set[str] = field(default_factory=set)

    @property
    def live_ids(self) -> set[int]:
        """Brokers that can lead: alive and not shutting down."""
        return self.brokers.keys() - self.shutting_down

    def live_for(self, topic_partition: TopicPartition) -> set[int]:
        """Return the brokers that can lead this partition: alive, not shutting down, log directory online."""
        live = self.live_ids
        return {b for b in live if (topic_partition, b) not in self.offline_replicas} if self.offline_replicas else live

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the topic's partitions in order."""
        assignment = self.topics.get(topic)
        return [TopicPartition(topic, p) for p in sorted(assignment.replicas)] if assignment else []

    def all_partitions(self) -> Iterable[TopicPartition]:
        """Yield every partition, topics in order of name."""
        for topic in sorted(self.topics):
            yield from self.partitions_of(topic)

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return the assigned brokers, the preferred leader first."""
        return self.topics[topic_partition.topic].replicas[topic_partition.partition]

    def phase(self, topic_partition: TopicPartition) -> PartitionPhase:
        """Return the state of the partition."""
        return self.partition_phases.get(topic_partition, PartitionPhase.NON_EXISTENT)

    def replica_phase(self, replica: Replica) -> ReplicaPhase:
        """Return the state of the replica."""
        return self.replica_phases.get(replica, ReplicaPhase.NON_EXISTENT)

    def move(self, topic_partition: TopicPartition, phase: PartitionPhase) -> None:
        """Move the partition to a state.  Raises AssertionError for an invalid transition, which is a bug."""
        previous = self.phase(topic_partition)
        assert previous in VALID_PREVIOUS_OF_PARTITIONS[phase], f"{topic_partition}: {previous} -> {phase}"
        if phase is PartitionPhase.NON_EXISTENT:
            self.partition_phases.pop(topic_partition, None)
        else:
            self.partition_phases[topic_partition] = phase

    def move_replica(self, replica: Replica, phase: ReplicaPhase) -> None:
        """Move the replica to a state.  Raises AssertionError for an invalid transition, which is a bug."""
        previous = self.replica_phase(replica)
        assert previous in VALID_PREVIOUS_OF_REPLICAS[phase], f"{replica}: {previous} -> {phase}"
        if phase is ReplicaPhase.NON_EXISTENT:
            self.replica_phases.pop(replica, None)
        else:
            self.replica_phases[replica] = phase
