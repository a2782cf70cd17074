"""A heartbeat of a member of a streams group and its outcome, and the properties that decide on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.server.coordination.newer_groups import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kctl.server.coordination.streams_groups.state import (
    Endpoint,
    InternalTopic,
    OwnedTasks,
    Status,
    Subtopology,
    TaskSets,
    Topology,
)
from kctl.server.coordination.streams_groups.topology import invalid_topology

MEMBERS_MAX = bound(
    Subject.COORDINATION,
    "members of one streams group, whatever `group.streams.max.size` is",
    1_000,
    "members",
    on_excess="GROUP_MAX_SIZE_REACHED",
)
SUBTOPOLOGIES_MAX = bound(
    Subject.COORDINATION,
    "subtopologies of the topology of a streams group",
    500,
    "subtopologies",
    on_excess="STREAMS_INVALID_TOPOLOGY",
)
TOPOLOGY_TOPICS_MAX = bound(
    Subject.COORDINATION,
    "topics in the topology of a streams group, each counted for each subtopology that reads or writes it",
    2_000,
    "topics",
    on_excess="STREAMS_INVALID_TOPOLOGY",
)
TOPOLOGY_ELEMENTS_MAX = bound(
    Subject.COORDINATION,
    "topics, properties of internal topics and members of co-partition groups in the topology of a streams group",
    10_000,
    "elements",
    on_excess="STREAMS_INVALID_TOPOLOGY",
)
TOPOLOGY_BYTES_MAX = bound(
    Subject.COORDINATION,
    "names and properties in the topology of a streams group",
    512 << 10,
    "characters",
    on_excess="STREAMS_INVALID_TOPOLOGY",
)
OWNED_TASKS_MAX = bound(
    Subject.COORDINATION,
    "tasks that a member of a streams group reports to own",
    10_000,
    "tasks",
    on_excess="INVALID_REQUEST",
)
CLIENT_TAGS_MAX = bound(
    Subject.COORDINATION,
    "client tags of a member of a streams group",
    50,
    "tags",
    on_excess="INVALID_REQUEST",
)
_TEXT_MAX = bound(
    Subject.COORDINATION,
    "member id, process id, rack, host or client tag of a member of a streams group",
    1_000,
    "characters",
    on_excess="INVALID_REQUEST",
)


@dataclass(frozen=True, slots=True)
class StreamsGroupSettings:
    """Each field is the Kafka property `group.streams.` with its name; all but the size may be those of the group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000
    assignment_interval_ms: int = 1_000

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """What an assignment depends on, as the group's record has it."""
        return (("num.standby.replicas", str(self.num_standby_replicas)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """A member joins, goes on or leaves; what is None has not changed."""

    token: object = None
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: TaskSets | None = None
    has_part_of_owned: bool = False
    """One role of tasks is missing."""
    process_id: str | None = None
    endpoint: Endpoint | None = None
    endpoint_epoch: int = 0
    client_tags: tuple[tuple[str, str], ...] | None = None
    has_task_offsets: bool = False
    requests_shutdown: bool = False
    client_id: str = ""
    client_host: str = ""

    @property
    def is_joining(self) -> bool:
        """True if the member joins, or joins again."""
        return self.member_epoch == JOIN_EPOCH

    @property
    def is_leaving(self) -> bool:
        """True if the member leaves."""
        return self.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}


@dataclass(frozen=True, slots=True)
class EndpointPartitions:
    """The partitions that the tasks of a process with an endpoint read, by topic."""

    endpoint: Endpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsOutcome:
    """The result of a heartbeat; `assigned` and `endpoints` are None if they have not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[tuple[Status, str], ...] | None = None
    assigned: OwnedTasks | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics that the broker creates."""


def check_streams_request(group_id: str, request: StreamsHeartbeat) -> None:
    """Raise ApiError(INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY) if the request is wrong by itself."""
    _check_supported(request)
    epoch = request.member_epoch
    _check(bool(request.member_id.strip()), "MemberId can't be empty.")
    _check(bool(group_id.strip()), "GroupId can't be empty.")
    _check(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if request.is_joining:
        _check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        is_without = request.owned is not None and request.owned == TaskSets()
        _check(is_without, "ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining.")
        _check(request.topology is not None, "Topology must be non-null when (re-)joining.")
    elif epoch == STATIC_LEAVE_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        message = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
        _check(epoch >= STATIC_LEAVE_EPOCH, message)
    _check(not request.has_part_of_owned, "If one task-type is non-null, all must be non-null.")
    if not request.is_joining:
        _check(request.topology is None, "Topology can only be provided when (re-)joining.")
    _check(request.rebalance_timeout_ms >= -1, "RebalanceTimeoutMs can't be negative.")
    _check_sizes(request)
    if request.topology is not None:
        _check_topology(request.topology)


def _check_supported(request: StreamsHeartbeat) -> None:
    """Refuse what Kafka 4.3 does not support yet, in its order."""
    _check(request.instance_id is None, "Static membership is not yet supported.")
    _check(not request.has_task_offsets, "TaskOffsets and TaskEndOffsets are not supported yet.")
    _check(request.owned is None or not request.owned.warmup, "WarmupTasks are not supported yet.")
    subtopologies = () if request.topology is None else request.topology.subtopologies.values()
    has_regexes = any(subtopology.source_regexes for subtopology in subtopologies)
    _check(not has_regexes, "Regular expressions for source topics are not supported yet.")


def _check_sizes(request: StreamsHeartbeat) -> None:
    owned = request.owned or TaskSets()
    count = sum(len(numbers) for tasks in (owned.active, owned.standby, owned.warmup) for numbers in tasks.values())
    _check(count <= OWNED_TASKS_MAX, f"a member owns at most {OWNED_TASKS_MAX} tasks.")
    tags = request.client_tags or ()
    _check(len(tags) <= CLIENT_TAGS_MAX, f"a member has at most {CLIENT_TAGS_MAX} client tags.")
    host = None if request.endpoint is None else request.endpoint.host
    texts = [request.member_id, request.rack_id, request.process_id, host, *(text for tag in tags for text in tag)]
    for text in texts:
        _check(len(text or "") <= _TEXT_MAX, f"ids, racks, hosts and tags have at most {_TEXT_MAX} characters.")


def check_topology_size(subtopologies: Iterable[Subtopology]) -> None:
    """Raise ApiError(STREAMS_INVALID_TOPOLOGY) if a topology is too large to be examined."""
    ids: set[str] = set()
    topics = elements = size = 0
    for subtopology in subtopologies:
        if subtopology.subtopology_id in ids:
            raise invalid_topology(f"Subtopology {subtopology.subtopology_id} is listed twice.")
        ids.add(subtopology.subtopology_id)
        internal = (*subtopology.changelogs, *subtopology.repartition_sources)
        names = [
            subtopology.subtopology_id,
            *subtopology.source_topics,
            *subtopology.source_regexes,
            *subtopology.repartition_sinks,
            *(topic.name for topic in internal),
            *(text for topic in internal for config in topic.configs for text in config),
        ]
        size += sum(map(len, names))
        topics += len(subtopology.source_topics) + len(subtopology.repartition_sinks) + len(internal)
        elements += len(names) + sum(1 + sum(map(len, group)) for group in subtopology.copartition_groups)
        is_large = elements > TOPOLOGY_ELEMENTS_MAX or size > TOPOLOGY_BYTES_MAX
        if len(ids) > SUBTOPOLOGIES_MAX or topics > TOPOLOGY_TOPICS_MAX or is_large:
            raise invalid_topology(
                f"a topology has at most {SUBTOPOLOGIES_MAX} subtopologies, {TOPOLOGY_TOPICS_MAX} topics, "
                f"{TOPOLOGY_ELEMENTS_MAX} topics, properties and members of co-partition groups, and "
                f"{TOPOLOGY_BYTES_MAX} characters"
            )


def _check_topology(topology: Topology) -> None:
    if topology.epoch < 0:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "Topology epoch must be non-negative.")
    for subtopology in topology.subtopologies.values():
        for topic in subtopology.changelogs:
            if topic.partitions != 0:
                raise invalid_topology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
        for topic in subtopology.repartition_sources:
            if topic.partitions < 0:
                raise invalid_topology(f"Repartition topic {topic.name} has {topic.partitions} partitions.")
        sources, repartitions = len(subtopology.source_topics), len(subtopology.repartition_sources)
        for group in subtopology.copartition_groups:
            is_known = all(0 <= index < sources for index in group.source_topics) and all(
                0 <= index < repartitions for index in group.repartition_sources
            )
            if not is_known or group.source_regexes:
                message = f"A co-partition group of subtopology {subtopology.subtopology_id} has an unknown topic."
                raise invalid_topology(message)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
