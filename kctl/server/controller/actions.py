"""What the controller wants done.  The runner does it in this order, and feeds what comes back into `step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller.events import BrokersRead, ReassignmentsBegun, ReassignmentsCompleted, ReplicasDismissed
from kctl.zookeeper.znodes import TopicAssignment


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Create or, conditional on their version, set partition state nodes.  Comes back as StatesWritten."""

    created: Mapping[TopicPartition, LeaderAndIsr]
    changed: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class PartitionNews:
    """One partition as brokers are told of it."""

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
    """Tell a broker its roles.  Comes back as LeaderAndIsrAnswered."""

    broker_id: int
    partitions: tuple[PartitionNews, ...]


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """Tell brokers who is alive and what became of some partitions."""

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionNews, ...]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Tell a broker to stop replicas; those that delete come back as StopReplicaAnswered."""

    broker_id: int
    partitions: Mapping[TopicPartition, int]
    """Partition to the leader epoch that the request carries."""
    is_deleting: bool


@dataclass(frozen=True, slots=True)
class DeleteTopicNodes:
    """The topic's replicas are gone: delete its nodes and the wish to delete it."""

    topic: str


@dataclass(frozen=True, slots=True)
class DropDeletion:
    """The wish to delete a topic cannot be met: delete the wish."""

    topic: str


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Set the nodes of topics."""

    topics: Mapping[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class WatchStates:
    """Read these partitions' states now and whenever they change; comes as StatesRead."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FinishRequestedReassignments:
    """Leave only these partitions in /admin/reassign_partitions; the node goes when nothing is left."""

    remaining: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AlterStates:
    """Set partition state nodes as leaders want them, conditional on their version.  Comes back as StatesAltered."""

    changed: Mapping[TopicPartition, LeaderAndIsr]
    outcome: Mapping[TopicPartition, ErrorCode]
    """What was judged before, for the answer."""
    token: object


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a wish, per partition."""

    token: object
    outcome: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class LogElection:
    """Say in the log which leaders were elected on purpose, and which partitions were passed over."""

    trigger: str
    """Who asked: "automatic", "znode" or "request"."""
    is_unclean: bool
    elected: tuple[TopicPartition, ...]
    refused: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Continue:
    """Feed this event once everything before it is done and known: the second half of a change."""

    event: BrokersRead | ReassignmentsBegun | ReplicasDismissed | ReassignmentsCompleted


Action = (
    WriteStates
    | AlterStates
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
    | DeleteTopicNodes
    | DropDeletion
    | WriteAssignments
    | WatchStates
    | FinishRequestedReassignments
    | Answer
    | LogElection
    | Continue
)
