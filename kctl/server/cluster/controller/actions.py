"""Actions that `step` returns.  The runner performs them in order and feeds their results back into `step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.events import (
    BrokersRead,
    ReassignmentsCompleted,
    ReassignmentsStarted,
    ReplicasDismissed,
)
from kctl.zookeeper.znodes import TopicAssignment


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Create partition state nodes, or set them conditional on their version.  Results in StatesWritten."""

    created: Mapping[TopicPartition, LeaderAndIsr]
    changed: Mapping[TopicPartition, LeaderAndIsr]


class PartitionUpdate(NamedTuple):
    """The state of one partition as it is sent to brokers."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    state: LeaderAndIsr
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Send a broker its roles (leader or follower).  Results in LeaderAndIsrResponseReceived."""

    broker_id: int
    partitions: tuple[PartitionUpdate, ...]


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """Send brokers the live brokers and the state of some partitions."""

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionUpdate, ...]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Send StopReplica to a broker.  Requests that delete result in StopReplicaResponseReceived."""

    broker_id: int
    partitions: Mapping[TopicPartition, int]
    """Partition to the leader epoch in the request."""
    is_deleting: bool


@dataclass(frozen=True, slots=True)
class DeleteTopicNodes:
    """All replicas of the topic are deleted: delete its znodes and the request to delete it.

    Results in TopicNodesDeleted.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class RejectTopicDeletion:
    """The topic cannot be deleted: remove the deletion request."""

    topic: str


@dataclass(frozen=True, slots=True)
class EndDeletionWaits:
    """Check requests again that wait for the deletion of these topics: it is done, or this broker has resigned."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Set the assignment nodes of topics."""

    topics: Mapping[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class WatchStates:
    """Read the states of these partitions and watch them for changes.  Results in StatesRead."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FinishRequestedReassignments:
    """Leave only these partitions in /admin/reassign_partitions; delete the node when none remain."""

    remaining: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AlterStates:
    """Set the partition states that leaders requested, conditional on their version.  Results in StatesAltered."""

    changed: Mapping[TopicPartition, LeaderAndIsr]
    outcome: Mapping[TopicPartition, ErrorCode]
    """Partitions that are decided already; merged into the response."""
    token: object


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Complete a pending request with one error code per partition."""

    token: object
    outcome: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class LogElection:
    """Log the leaders elected by request or by auto.leader.rebalance.enable, and the partitions refused."""

    trigger: str
    """The trigger of the election: "automatic", "znode" or "request"."""
    is_unclean: bool
    elected: tuple[TopicPartition, ...]
    refused: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Continue:
    """Feed this event after all actions before it are done: the second half of a change that takes two steps."""

    event: BrokersRead | ReassignmentsStarted | ReplicasDismissed | ReassignmentsCompleted


Action = (
    WriteStates
    | AlterStates
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
    | DeleteTopicNodes
    | RejectTopicDeletion
    | EndDeletionWaits
    | WriteAssignments
    | WatchStates
    | FinishRequestedReassignments
    | CompleteRequest
    | LogElection
    | Continue
)
