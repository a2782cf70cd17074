"""Events that the controller processes.  Data from ZooKeeper is already decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.cluster.controller.state import LiveBroker
from kctl.zookeeper.znodes import TopicAssignment

REQUEST = "request"
ZNODE = "znode"


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker won the election; carries all state read from ZooKeeper."""

    epoch: int
    epoch_version: int
    brokers: Mapping[int, LiveBroker]
    topics: Mapping[str, TopicAssignment]
    leaders: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str] = frozenset()
    unclean_topics: frozenset[str] = frozenset()
    returned: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """In-sync replicas whose brokers registered after the partition's state was written."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """Another broker is the controller, or the session has expired."""


@dataclass(frozen=True, slots=True)
class BrokersRead:
    """/brokers/ids changed."""

    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """/brokers/topics or some of its child nodes changed.

    Topics that exist but have an invalid assignment are not mentioned: they are as they were before.
    """

    changed: Mapping[str, TopicAssignment]
    """New topics, and those with another assignment."""
    removed: frozenset[str] = frozenset()
    """Topics that do not exist anymore; in `changed` too if they have been created again."""
    unclean_topics: frozenset[str] = frozenset()
    """Those of the changed ones with unclean.leader.election.enable."""


@dataclass(frozen=True, slots=True)
class UncleanTopicsRead:
    """The configuration of topics changed: whether they have unclean.leader.election.enable."""

    enabled: frozenset[str]
    disabled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicNodesDeleted:
    """DeleteTopicNodes is done: the topic does not exist anymore."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsRead:
    """/admin/delete_topics changed."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """The result of one WriteStates."""

    written: Mapping[TopicPartition, LeaderAndIsr]
    conflicts: Mapping[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    """Partitions whose state was changed by another writer, with their current state."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    """A broker's response to LeaderAndIsr."""

    broker_id: int
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived:
    """A broker's response to a StopReplica that deletes."""

    broker_id: int
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """A broker is shutting down and requests that leadership moves away from it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ElectionRequested:
    """A request to elect leaders; partitions None means all.  Results in a CompleteRequest for `token`."""

    partitions: tuple[TopicPartition, ...] | None
    is_unclean: bool
    token: object = None
    trigger: str = REQUEST
    """REQUEST, or ZNODE for /admin/preferred_replica_election."""


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Periodic check whether too many partitions are not led by their preferred replica."""

    imbalance_percentage: int


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested:
    """A request to reassign replicas; None cancels.  Results in a CompleteRequest for `token`."""

    replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    token: object = None
    from_znode: bool = False


@dataclass(frozen=True, slots=True)
class ReassignmentsStarted:
    """The assignments of these reassignments are written."""

    topics: Mapping[str, TopicAssignment]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReplicasDismissed:
    """Replicas that an earlier reassignment added and a later one does not include: they can be deleted."""

    dismissed: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ReassignmentsCompleted:
    """The target replicas of these partitions are the only ones; the removed replicas can be deleted."""

    removed: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StatesRead:
    """Leaders changed in-sync replicas; carries the current states of these partitions."""

    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class IsrAlterationsRequested:
    """A leader requests these states, with changed in-sync replicas.  Results in a CompleteRequest for `token`."""

    requested: Mapping[TopicPartition, LeaderAndIsr]
    token: object = None


@dataclass(frozen=True, slots=True)
class StatesAltered:
    """The result of one AlterStates."""

    written: Mapping[TopicPartition, LeaderAndIsr]
    conflicts: Mapping[TopicPartition, LeaderAndIsr]
    """Partitions whose state was changed by another writer, with their current state."""
    missing: tuple[TopicPartition, ...]
    outcome: Mapping[TopicPartition, ErrorCode]
    token: object


@dataclass(frozen=True, slots=True)
class LogDirFailed:
    """A log directory of a broker failed."""

    broker_id: int


Event = (
    Elected
    | Resigned
    | BrokersRead
    | TopicsRead
    | UncleanTopicsRead
    | TopicNodesDeleted
    | DeletionsRead
    | StatesWritten
    | LeaderAndIsrResponseReceived
    | StopReplicaResponseReceived
    | ControlledShutdownRequested
    | ElectionRequested
    | RebalanceDue
    | ReassignmentsRequested
    | ReassignmentsStarted
    | ReplicasDismissed
    | ReassignmentsCompleted
    | StatesRead
    | IsrAlterationsRequested
    | StatesAltered
    | LogDirFailed
)
