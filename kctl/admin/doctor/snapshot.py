"""The state of a cluster at one time: the input of all rules, also from a file that was saved earlier.

Values that could not be read are None, or are missing from a collection whose name is in `unseen`; no rule takes a
missing value for a healthy one.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted

FORMAT = "kctl-snapshot-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One broker that is listed in the metadata, or that only holds replicas."""

    broker_id: int
    address: str = ""
    rack: str | None = None
    is_listed: bool = True
    """Whether the metadata lists it as alive.  Without a quorum leader that may be out of date."""
    problem: str | None = None
    """Why it does not respond."""
    refuses_to_lead: str | None = None
    """A partition that it leads in the metadata, and for which it refuses requests."""
    no_changes: str | None = None
    """Why it cannot change anything in ZooKeeper."""
    apis: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Version ranges by the name of the API, such as 0-13."""
    throttle_bytes_per_s: int | None = None
    """The lower of its dynamic limits for replication; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A member of the metadata quorum of a KRaft cluster."""

    node_id: int
    is_voter: bool
    lag: int | None = None
    """Offsets behind the leader."""
    fetched_ms_ago: int | None = None
    """Since its last fetch, by the clock of the leader; None for the leader and if it has never fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """The metadata quorum.  With a problem the other fields are unknown."""

    leader_id: int | None = None
    leader_epoch: int | None = None
    nodes: tuple[NodeState, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition; a leader of -1 is none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic, its partitions and the properties that rules use; None for a property that could not be read."""

    name: str
    is_internal: bool = False
    partitions: tuple[PartitionState, ...] = ()
    min_insync_replicas: int | None = None
    unclean_election: bool | None = None
    throttled: bool | None = None
    """Whether a list of throttled replicas is set."""
    records: int | None = None
    """Offsets between start and end over all partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """A log directory of a broker."""

    broker_id: int
    path: str
    error: str | None = None
    used_bytes: int = 0
    """Size of all replicas in it."""
    usable_bytes: int | None = None
    """Free space of its file system (KIP-827)."""
    total_bytes: int | None = None
    growth_bytes_per_s: float | None = None
    """Growth of its replicas while the snapshot was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentState:
    """A partition that is being moved."""

    topic: str
    partition: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied_bytes: int | None = None
    """Size of the replicas that are being added."""
    moved_bytes: int | None = None
    """By how much they grew while the snapshot was taken."""

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group, and its partition with the most severe verdict."""

    group_id: str
    type: str = ""
    state: str = ""
    members: int = 0
    unread: int = 0
    """Unread records in partitions with a committed offset."""
    uncommitted_partitions: int = 0
    """Partitions with records that are assigned or subscribed, and have no committed offset."""
    uncommitted_records: int = 0
    verdict: str = "OK"
    """A name of kctl.lag.rules.Verdict."""
    reason: str = ""
    topic: str | None = None
    partition: int | None = None
    committed: int | None = None
    lag: int | None = None
    lag_partitions: tuple[tuple[str, int, int], ...] = ()
    """Topic, partition and committed offset of partitions that are not OK, at most 20."""
    client_ids: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """An open transaction that keeps readers of committed records from the end of a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    idle_ms: int | None
    """Since the last write of the producer in the partition."""
    blocked_records: int
    """Offsets between the last stable offset and the high watermark."""
    transactional_id: str | None = None
    state: str | None = None
    """State at its coordinator; None if no coordinator has the transaction."""
    timeout_ms: int | None = None
    running_ms: int | None = None
    is_owner_known: bool = True
    """False if not all coordinators could be asked."""

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateState:
    """The certificate that a broker presents."""

    broker_id: int
    subject: str
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureState:
    """A feature with its finalized level and the highest level that all brokers support."""

    name: str
    finalized: int
    supported_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSoftwareState:
    """Connections of one software to a broker, as its clients name it (KIP-511)."""

    broker_id: int
    name: str
    version: str
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRequestState:
    """A version of a request that Kafka 4 does not accept, and how many of them a broker has had since its start."""

    broker_id: int
    api: str
    version: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledState:
    """Clients that a quota makes wait."""

    broker_id: int
    kind: str
    """produce, fetch or request."""
    user: str
    client_id: str
    mean_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedState:
    """An operation that the authorizer of a broker has denied."""

    broker_id: int
    principal: str
    operation: str
    resource_type: str
    resource_name: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """A part of the state that could not be read."""

    what: str
    reason: str
    remedy: str = ""
    """What makes it readable, such as a missing permission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that the rules use.  Times are in ms since the epoch."""

    taken_ms: int
    took_ms: int = 0
    cluster_id: str | None = None
    is_kraft: bool | None = None
    """None if unknown."""
    controller: int | None = None
    """On ZooKeeper; brokers of a KRaft cluster name any broker."""
    quorum: QuorumState | None = None
    brokers: tuple[BrokerState, ...] = ()
    topics: tuple[TopicState, ...] = ()
    directories: tuple[DirectoryState, ...] = ()
    reassignments: tuple[ReassignmentState, ...] = ()
    groups: tuple[GroupState, ...] = ()
    transactions: tuple[TransactionState, ...] = ()
    certificates: tuple[CertificateState, ...] = ()
    features: tuple[FeatureState, ...] = ()
    clients: tuple[ClientSoftwareState, ...] = ()
    old_requests: tuple[OldRequestState, ...] = ()
    throttled: tuple[ThrottledState, ...] = ()
    denied: tuple[DeniedState, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    def partitions(self) -> Iterator[tuple[TopicState, PartitionState]]:
        """Yield all partitions with their topics."""
        for topic in self.topics:
            for partition in topic.partitions:
                yield topic, partition

    @property
    def responding(self) -> frozenset[int]:
        """The brokers that are listed and have responded."""
        return frozenset(broker.broker_id for broker in self.brokers if broker.is_listed and broker.problem is None)


# JSON: an object per dataclass, with the names of its fields; fields with their default are omitted.


def document_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as values that JSON has."""
    return {"format": FORMAT, **_object_of(snapshot)}


def _object_of(value: Any) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if item != default:
            found[field.name] = _plain(item)
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _object_of(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def snapshot_of(document: Any) -> Snapshot:
    """Return the inverse of `document_of`; unknown fields are ignored.  Raises UsageError, naming the field."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(f"this is not a snapshot of 'kctl doctor --save': its format is not {FORMAT}")
    found: Snapshot = _value(document, Snapshot, "snapshot")
    return found


def _value(value: Any, kind: Any, where: str) -> Any:
    """Return the value as `kind`, which is a class of this module or what their fields are annotated with."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be an object")
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        missing = [field.name for field in fields if _is_required(field) and field.name not in value]
        if missing:
            raise UsageError(f"{where} lacks {missing[0]}")
        given = [field.name for field in fields if field.name in value]
        return kind(**{name: _value(value[name], hints[name], f"{where}.{name}") for name in given})  # type: ignore[operator]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _value(value, arguments[0], where)
    if origin is tuple:
        if not isinstance(value, list) or (arguments[-1] is not ... and len(value) != len(arguments)):
            raise UsageError(
                f"{where} must be a list" + ("" if arguments[-1] is ... else f" of {counted(len(arguments), 'item')}")
            )
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(_value(item, of, f"{where}[{at}]") for at, (item, of) in enumerate(zip(value, kinds, strict=True)))
    if origin is not None:
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be an object")
        return {str(name): _value(item, arguments[1], f"{where}.{name}") for name, item in value.items()}
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) is not (kind is bool):
        raise UsageError(f"{where} must be {_NAMES[kind]}")
    return value


_NAMES = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
