"""What the controller hears of.  Everything read from ZooKeeper comes as a value, already decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.server.controller.state import LiveBroker
from kctl.zookeeper.znodes import TopicAssignment

REQUEST = "request"
ZNODE = "znode"


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker won the election; with it comes everything that ZooKeeper holds."""

    epoch: int
    epoch_version: int
    brokers: Mapping[int, LiveBroker]
    topics: Mapping[str, TopicAssignment]
    leaders: Mapping[TopicPartition, LeaderAndIsr]
    deletions: frozenset[str] = frozenset()
    unclean_topics: frozenset[str] = frozenset()
    returned: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """In-sync replicas whose brokers have registered since the partition's state was written."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """Another broker is the controller, or the session is gone."""


@dataclass(frozen=True, slots=True)
class BrokersRead:
    """/brokers/ids changed."""

    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """/brokers/topics or one of its nodes changed."""

    topics: Mapping[str, TopicAssignment]
    unclean_topics: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    """Topics that are there, but with an assignment that makes no sense."""


@dataclass(frozen=True, slots=True)
class DeletionsRead:
    """/admin/delete_topics changed."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """How the partition states of one WriteStates went."""

    written: Mapping[TopicPartition, LeaderAndIsr]
    conflicts: Mapping[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    """Partitions whose state somebody else changed meanwhile, with what is there now."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker's answer to LeaderAndIsr."""

    broker_id: int
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """A broker's answer to a StopReplica that deletes."""

    broker_id: int
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class ControlledShutdownAsked:
    """A broker is about to stop and wants to lead nothing any more."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ElectionAsked:
    """Somebody wants leaders elected; partitions None stands for all.  Comes back as an Answer for `token`."""

    partitions: tuple[TopicPartition, ...] | None
    is_unclean: bool
    token: object = None
    trigger: str = REQUEST
    """REQUEST, or ZNODE for /admin/preferred_replica_election."""


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Time to look whether too many partitions are not led by their preferred replica."""

    imbalance_percentage: int


@dataclass(frozen=True, slots=True)
class ReassignmentsAsked:
    """Somebody wants replicas moved; None cancels.  Comes back as an Answer for `token`."""

    replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    token: object = None
    from_znode: bool = False


@dataclass(frozen=True, slots=True)
class ReassignmentsBegun:
    """The books of these reassignments are written."""

    topics: Mapping[str, TopicAssignment]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReplicasDismissed:
    """Replicas that an earlier wish added, and that a later one does not want: they can go."""

    dismissed: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ReassignmentsCompleted:
    """The target replicas of these partitions are in charge; what was removed can go."""

    removed: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StatesRead:
    """Leaders changed in-sync replicas: what their partitions' nodes hold now."""

    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class IsrAlterationsAsked:
    """A leader wants these states, with other in-sync replicas.  Comes back as an Answer for `token`."""

    wanted: Mapping[TopicPartition, LeaderAndIsr]
    token: object = None


@dataclass(frozen=True, slots=True)
class StatesAltered:
    """How the states of one AlterStates went."""

    written: Mapping[TopicPartition, LeaderAndIsr]
    conflicts: Mapping[TopicPartition, LeaderAndIsr]
    """Partitions whose state somebody else changed meanwhile, with what is there now."""
    missing: tuple[TopicPartition, ...]
    outcome: Mapping[TopicPartition, ErrorCode]
    token: object


@dataclass(frozen=True, slots=True)
class LogDirFailed:
    """A broker lost a disk."""

    broker_id: int


Event = (
    Elected
    | Resigned
    | BrokersRead
    | TopicsRead
    | DeletionsRead
    | StatesWritten
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | ControlledShutdownAsked
    | ElectionAsked
    | RebalanceDue
    | ReassignmentsAsked
    | ReassignmentsBegun
    | ReplicasDismissed
    | ReassignmentsCompleted
    | StatesRead
    | IsrAlterationsAsked
    | StatesAltered
    | LogDirFailed
)
