"""The heartbeat of a member of a streams group: it joins with its topology, is assigned tasks, revokes, and leaves.

1. The member is created or updated.
2. The first member sets the topology of the group; others must have the same.
3. Numbers of partitions are derived from the topics of the cluster; internal topics that are missing are created.
4. The group's epoch increases if one of these has changed, or what assignments depend on.
5. If the group's epoch is larger than that of the target assignment, a new one is computed: the first of a group after
   group.streams.initial.rebalance.delay.ms, later ones once per group.streams.assignment.interval.ms.
6. The member goes a step from what it owns to its target assignment.

The changes are applied at once; the caller writes them, and takes them back if the log refuses them.  Pure.  Kafka:
GroupMetadataManager.streamsGroupHeartbeat, streamsGroupLeave, streamsGroupFenceMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.server.coordination.newer_groups import (
    JOIN_EPOCH,
    Changes,
    Decision,
    Environment,
    MemberState,
    RevocationTimer,
    TargetEpoch,
    fenced_epoch,
    full_group,
    unknown_member,
)
from kctl.server.coordination.streams_groups.assignor import TaskReader, TaskSource, assign_tasks
from kctl.server.coordination.streams_groups.group import StreamsGroup
from kctl.server.coordination.streams_groups.reconciliation import TaskGoal, reconcile_tasks
from kctl.server.coordination.streams_groups.requests import (
    MEMBERS_MAX,
    EndpointPartitions,
    StreamsGroupSettings,
    StreamsHeartbeat,
    StreamsOutcome,
)
from kctl.server.coordination.streams_groups.state import (
    NO_TARGET,
    Endpoint,
    RecordType,
    Status,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    Tasks,
    TaskSets,
    Topology,
)
from kctl.server.coordination.streams_groups.topology import ConfiguredTopology, configure

GROUP_TASKS_MAX = bound(
    Subject.COORDINATION,
    "tasks of a streams group with its standby tasks, each counted for each topic that it reads",
    5_000,
    "tasks",
    on_excess="STREAMS_INVALID_TOPOLOGY for members that join; the last assignment stays if topics have grown",
)
"""An assignment of so many takes 20 ms."""
StreamsEnvironment: TypeAlias = Environment[StreamsGroupSettings]


@dataclass(slots=True)
class StreamsDecision(Decision):
    """What follows from an event, besides its changes."""

    starts_delay: bool = False
    """The group had no members: its first assignment waits for more of them."""
    statuses: list[tuple[Status, str]] = field(default_factory=list)


class _Work:
    """A group that is changed, and the decision about it."""

    def __init__(self, group: StreamsGroup, environment: StreamsEnvironment) -> None:
        self.group = group
        self.environment = environment
        self.settings = environment.settings
        self.decision = StreamsDecision(Changes(group))
        self.put = self.decision.changes.put

    def add_status(self, status: Status, detail: str) -> None:
        self.decision.statuses.append((status, detail))


def hear(group: StreamsGroup, request: StreamsHeartbeat, environment: StreamsEnvironment) -> StreamsDecision:
    """Decide on a heartbeat.  Raises ApiError, and then nothing has changed."""
    work = _Work(group, environment)
    try:
        if request.is_leaving:
            _leave(work, request)
        else:
            _go_on(work, request)
    except ApiError:
        work.decision.changes.take_back()
        raise
    return work.decision


def fence(group: StreamsGroup, member_ids: Iterable[str], environment: StreamsEnvironment) -> StreamsDecision:
    """Remove members; the group's epoch increases."""
    work = _Work(group, environment)
    _fence(work, tuple(member_ids))
    return work.decision


def assign_after_delay(group: StreamsGroup, environment: StreamsEnvironment) -> StreamsDecision:
    """Compute the first assignment of a group."""
    work = _Work(group, environment)
    group.is_delayed = False
    if group.members and group.configured is not None and group.epoch.epoch > group.target.epoch:
        _update_target(work, group.configured, group.epoch.assignment_configs, is_refused=False)
    return work.decision


def _leave(work: _Work, request: StreamsHeartbeat) -> None:
    group, member_id = work.group, request.member_id
    if member_id not in group.members:
        raise unknown_member(member_id, work.environment.group_id)
    if request.requests_shutdown and group.shutdown_member_id is None:
        group.shutdown_member_id = member_id
    _fence(work, (member_id,))
    work.decision.outcome = StreamsOutcome(member_id=member_id, member_epoch=request.member_epoch, statuses=())


def _fence(work: _Work, member_ids: tuple[str, ...]) -> None:
    group = work.group
    work.decision.fenced = member_ids
    for member_id in member_ids:
        work.put(RecordType.MEMBER_ASSIGNMENT, member_id, None)
        work.put(RecordType.MEMBER_TARGET, member_id, None)
        work.put(RecordType.MEMBER, member_id, None)
    work.put(RecordType.GROUP, "", replace(group.epoch, epoch=group.epoch.epoch + 1))
    if group.is_empty:
        group.shutdown_member_id = None


# Steps 1 to 4: the member, the topology, and the epoch of the group.


def _go_on(work: _Work, request: StreamsHeartbeat) -> None:
    group, member_id = work.group, request.member_id
    before = group.members.get(member_id)
    _check_member(work, request, is_known=before is not None)
    assigned_before, epoch_before = group.assignment(member_id).assigned, group.assignment(member_id).epoch
    was_empty, was_stored = group.is_empty, group.is_stored
    topology_before = group.topology
    updated = _updated(before or StreamsMember(), request)
    if updated != before:
        work.put(RecordType.MEMBER, member_id, updated)
    _set_topology(work, request.topology)
    if topology_before is not None and updated.topology_epoch < topology_before.epoch:
        work.add_status(
            Status.STALE_TOPOLOGY,
            f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch "
            f"{topology_before.epoch}.",
        )
    configured = _update_epoch(work, request, has_changed=updated != before)
    if was_empty and work.settings.initial_rebalance_delay_ms > 0 and not group.is_delayed:
        group.is_delayed = work.decision.starts_delay = True
    target_epoch, target = _target(work, member_id, configured, is_refused=request.is_joining)
    _reconcile(work, member_id, request, target_epoch, target)
    if request.requests_shutdown and group.shutdown_member_id is None:
        group.shutdown_member_id = member_id
    work.decision.member_id = member_id
    assignment = group.assignment(member_id)
    is_changed = request.is_joining or assignment.assigned != assigned_before
    # Kafka repeats nothing: a member to which a response was lost would keep a task that is another's by now, or not
    # begin with one that is its own.
    is_lost = request.member_epoch != epoch_before or (
        request.owned is not None and not assignment.assigned.equals(request.owned)
    )
    if is_changed and updated.endpoint is not None:
        group.endpoint_epoch += 1
    needs_endpoints = group.endpoint_epoch != request.endpoint_epoch
    endpoints = endpoint_partitions(group, work.environment, last=member_id) if needs_endpoints else None
    if not was_stored:
        # Kafka forgets what is not stored of a group that does not exist before.
        group.endpoint_epoch = 0
    if configured.problem is not None:
        work.add_status(*configured.problem)
    if group.shutdown_member_id is not None:
        work.add_status(
            Status.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown for "
            "the entire application.",
        )
    work.decision.outcome = StreamsOutcome(
        member_id=member_id,
        member_epoch=assignment.epoch,
        heartbeat_interval_ms=work.settings.heartbeat_interval_ms,
        statuses=tuple(work.decision.statuses),
        assigned=assignment.assigned if is_changed or is_lost else None,
        endpoint_epoch=group.endpoint_epoch,
        endpoints=endpoints,
        missing=configured.missing,
    )


def _check_member(work: _Work, request: StreamsHeartbeat, *, is_known: bool) -> None:
    group, most = work.group, min(work.settings.max_size, MEMBERS_MAX)
    if not is_known:
        if not request.is_joining:
            raise unknown_member(request.member_id, work.environment.group_id)
        if len(group.members) >= most:
            raise full_group("streams", most)
    assignment = group.assignment(request.member_id)
    received, known = request.member_epoch, assignment.epoch
    if received in {JOIN_EPOCH, known}:
        return
    is_previous = received == assignment.previous_epoch and received < known
    # The response with the new epoch was lost, if the member cannot use more than it is assigned.
    if not (is_previous and request.owned is not None and assignment.assigned.contains(request.owned)):
        raise fenced_epoch("streams", received, known)


def _updated(member: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    timeout_ms, topology = request.rebalance_timeout_ms, request.topology
    return StreamsMember(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if topology is None else topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=member.endpoint if request.endpoint is None else request.endpoint,
        client_tags=member.client_tags if request.client_tags is None else request.client_tags,
    )


def _set_topology(work: _Work, topology: Topology | None) -> None:
    """Set the topology of a new group, or check that it is that of the group."""
    known = work.group.topology
    if topology is None or (known is not None and known.epoch > topology.epoch):
        return
    if known is None:
        work.put(RecordType.TOPOLOGY, "", topology)
    elif known != topology:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def _update_epoch(work: _Work, request: StreamsHeartbeat, *, has_changed: bool) -> ConfiguredTopology:
    """Increase the group's epoch if something has changed; return the topology with the topics of the cluster."""
    group, topics = work.group, work.environment.topics
    if group.topology is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology.")
    epoch, metadata_hash = group.epoch, group.epoch.metadata_hash
    configured = group.configured
    if configured is None or group.checked_version != topics.topics_version:
        metadata_hash = group.metadata_hash(topics)
        if configured is None or metadata_hash != epoch.metadata_hash:
            configured = configure(group.topology, topics.partition_count)
            _check_task_count(work, configured, is_refused=request.is_joining)
        group.configured, group.checked_version = configured, topics.topics_version
    validated = group.topology.epoch if configured.is_ready else -1
    if configured.is_ready and request.owned is not None:
        _check_owned(configured, request.owned)
    configs = work.settings.assignment_configs
    new = StreamsEpoch(epoch.epoch, metadata_hash, validated, configs)
    if has_changed or new != epoch:
        work.put(RecordType.GROUP, "", replace(new, epoch=epoch.epoch + 1))
    return configured


def _check_owned(configured: ConfiguredTopology, owned: TaskSets) -> None:
    for tasks in (owned.active, owned.standby, owned.warmup):
        for name, numbers in tasks.items():
            subtopology = configured.subtopologies.get(name)
            if subtopology is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology.")
            for number in numbers:
                if not 0 <= number < subtopology.tasks:
                    message = f"Task {number} for subtopology {name} is invalid. Number of tasks for this subtopology: "
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"{message}{subtopology.tasks}")


def _count_tasks(configured: ConfiguredTopology, standby_replicas: int) -> int:
    return sum(
        subtopology.tasks
        * (1 + (standby_replicas if subtopology.is_stateful else 0))
        * sum(1 for _ in subtopology.subtopology.read_topics())
        for subtopology in configured.subtopologies.values()
    )


def _check_task_count(work: _Work, configured: ConfiguredTopology, *, is_refused: bool) -> None:
    if is_refused and _count_tasks(configured, work.settings.num_standby_replicas) > GROUP_TASKS_MAX:
        message = (
            f"a streams group has at most {GROUP_TASKS_MAX} tasks with their standby tasks, each counted for each "
            "topic that it reads"
        )
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


# Step 5: the target assignment.


def _target(work: _Work, member_id: str, configured: ConfiguredTopology, *, is_refused: bool) -> tuple[int, TaskSets]:
    """Return epoch and target assignment of the member, after computing a new one if it is due."""
    group = work.group
    if group.is_delayed:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        work.add_status(Status.ASSIGNMENT_DELAYED, detail)
        return group.target.epoch, NO_TARGET
    if group.epoch.epoch > group.target.epoch:
        age_ms = work.environment.wall_ms - group.target.timestamp_ms
        if group.target.timestamp_ms and age_ms < work.settings.assignment_interval_ms:
            detail = "Assignment delayed due to the configured assignment interval."
            work.add_status(Status.ASSIGNMENT_DELAYED, detail)
        else:
            _update_target(work, configured, work.settings.assignment_configs, is_refused=is_refused)
    return group.target.epoch, group.target_of(member_id)


def _update_target(
    work: _Work, configured: ConfiguredTopology, configs: Iterable[tuple[str, str]], *, is_refused: bool
) -> None:
    group = work.group
    standby_replicas = int(dict(configs).get("num.standby.replicas", "0"))
    if _count_tasks(configured, standby_replicas) > GROUP_TASKS_MAX:
        _check_task_count(work, configured, is_refused=is_refused)
        return
    new: Mapping[str, TaskSets] = {}
    if configured.is_ready:
        readers = [
            TaskReader(member_id, member.process_id, group.target_of(member_id))
            for member_id, member in group.members.items()
        ]
        sources = [
            TaskSource(name, subtopology.tasks, subtopology.is_stateful)
            for name, subtopology in configured.subtopologies.items()
        ]
        new = assign_tasks(readers, sources, standby_replicas)
    for member_id in group.members:
        tasks = new.get(member_id, NO_TARGET)
        if group.targets.get(member_id) != tasks:
            work.put(RecordType.MEMBER_TARGET, member_id, tasks)
    work.put(RecordType.TARGET, "", TargetEpoch(group.epoch.epoch, work.environment.wall_ms))


# Step 6: the assignment of the member.


def _reconcile(work: _Work, member_id: str, request: StreamsHeartbeat, target_epoch: int, target: TaskSets) -> None:
    group = work.group
    if group.has_reached(member_id, target_epoch):
        return
    member, current = group.members[member_id], group.assignment(member_id)
    goal = TaskGoal(
        target=target,
        target_epoch=target_epoch,
        has_active_owner=group.has_active_owner,
        is_in_process=lambda task: group.is_in_process(task, member.process_id),
        owned=request.owned,
    )
    new = reconcile_tasks(current, goal)
    if new == current:
        return
    work.put(RecordType.MEMBER_ASSIGNMENT, member_id, new)
    is_revoking = new.state is MemberState.UNREVOKED
    timeout_ms = member.rebalance_timeout_ms if is_revoking else None
    work.decision.revocation = RevocationTimer(member_id, new.epoch, timeout_ms)


# Where the state of each partition can be queried.


def endpoint_partitions(
    group: StreamsGroup, environment: StreamsEnvironment, *, last: str
) -> tuple[EndpointPartitions, ...]:
    """Return the partitions of each member with an endpoint, those of one member at the end.

    Kafka: EndpointToPartitionsManager.
    """
    configured = group.configured
    if configured is None or _count_tasks(configured, environment.settings.num_standby_replicas) > GROUP_TASKS_MAX:
        return ()
    member_ids = [member_id for member_id in group.members if member_id != last]
    return tuple(
        _partitions_of(endpoint, group.assignment(member_id), configured, environment)
        for member_id in (*member_ids, last)
        if (endpoint := group.members[member_id].endpoint) is not None
    )


def _partitions_of(
    endpoint: Endpoint,
    assignment: StreamsAssignment,
    configured: ConfiguredTopology,
    environment: StreamsEnvironment,
) -> EndpointPartitions:
    def read(tasks: Tasks) -> tuple[tuple[str, tuple[int, ...]], ...]:
        partitions = []
        for name, numbers in tasks.items():
            subtopology = configured.subtopologies.get(name)
            for topic in subtopology.subtopology.read_topics() if subtopology is not None else ():
                count = environment.topics.partition_count(topic) or 0
                partitions.append((topic, tuple(number for number in sorted(numbers) if number < count)))
        return tuple(partitions)

    assigned = assignment.assigned.without_epochs()
    return EndpointPartitions(endpoint, read(assigned.active), read(assigned.standby))
