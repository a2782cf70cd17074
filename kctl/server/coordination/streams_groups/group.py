"""A streams group: the last value of each of its records, and what follows from these.

    Empty ---join---> NotReady ---all topics exist---> Assigning ---> Reconciling ---> Stable
      ^                  ^                                 ^               |              |
      |                  +------ topics are missing -------+----- join, leave, expiry, ---+
      +---- the last member leaves or expires                     new partitions

A member gets an active task only when no process has it: `active` has the processes that run each task or still have
to revoke it.

Invariants (checked by the simulation): an active task has one owner; the epochs never decrease; the records in the log,
replayed in order, are the group.

Owner: event loop.  Pure.  Kafka: StreamsGroup.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, cast

from kctl.model import TopicPartition
from kctl.server.coordination.consumer_groups.topics import TopicHashes
from kctl.server.coordination.newer_groups import (
    FIRST_EPOCH,
    Change,
    ClusterTopics,
    Key,
    MemberState,
    TargetEpoch,
    set_value,
)
from kctl.server.coordination.streams_groups.state import (
    NEW_MEMBER,
    NO_TARGET,
    RecordType,
    StreamsAssignment,
    StreamsEpoch,
    StreamsGroupState,
    StreamsMember,
    TaskId,
    TaskSets,
    Topology,
)
from kctl.server.coordination.streams_groups.topology import ConfiguredTopology

_BYTES_PER_MEMBER = 2_500
_BYTES_PER_NAME = 200
"""About the memory for a topic, a property or a subtopology of a topology."""


class _Owners:
    """The processes that have each task in one role, each with the number of its members that have it."""

    def __init__(self) -> None:
        self._processes: defaultdict[TaskId, dict[str, int]] = defaultdict(dict)

    def of(self, task: TaskId) -> Mapping[str, int]:
        """Return the processes that have the task."""
        return self._processes.get(task, {})

    def count(self, tasks: Mapping[str, Iterable[int]], process_id: str, by: int) -> None:
        """Add or remove an owner of tasks."""
        for name, numbers in tasks.items():
            for number in numbers:
                task = TaskId(name, number)
                counts = self._processes[task]
                counts[process_id] = counts.get(process_id, 0) + by
                if not counts[process_id]:
                    del counts[process_id]
                if not counts:
                    del self._processes[task]


class StreamsGroup:
    """The values of a group.  Attributes are read-only for other modules; `apply` is the only change of stored ones."""

    kind: ClassVar[str] = "streams"

    def __init__(self) -> None:
        self.epoch = StreamsEpoch(FIRST_EPOCH)
        self.target = TargetEpoch(FIRST_EPOCH)
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSets] = {}
        self.assignments: dict[str, StreamsAssignment] = {}
        self.topology: Topology | None = None
        self.memory_bytes = 0
        """About the memory for the members and the topology."""
        self.is_stored = False
        """The log has records of the group."""
        self.configured: ConfiguredTopology | None = None
        """The topology with the topics of the cluster; not stored."""
        self.checked_version = -1
        """The version of the cluster's topics of `configured`; not stored."""
        self.topic_hashes = TopicHashes()
        self.is_delayed = False
        """The first assignment waits for more members; not stored."""
        self.shutdown_member_id: str | None = None
        """The member that has requested that all instances stop; not stored."""
        self.endpoint_epoch = 0
        """Increases when the tasks of a process with an endpoint change; not stored."""
        self._readers: dict[str, str] = {}
        self._active = _Owners()
        self._standby = _Owners()
        self._warmup = _Owners()

    @property
    def is_empty(self) -> bool:
        """True if there are no members."""
        return not self.members

    @property
    def state(self) -> StreamsGroupState:
        """The state, which follows from the members, the topology and the epochs."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.epoch.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch.epoch > self.target.epoch:
            return StreamsGroupState.ASSIGNING
        if all(self.has_reached(member_id, self.target.epoch) for member_id in self.members):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def assignment(self, member_id: str) -> StreamsAssignment:
        """Return what the member owns; nothing if it is new."""
        return self.assignments.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> TaskSets:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, NO_TARGET)

    def has_reached(self, member_id: str, target_epoch: int) -> bool:
        """Return whether the member needs no further step to the target assignment of this epoch."""
        assignment = self.assignment(member_id)
        return assignment.state is MemberState.STABLE and assignment.epoch == target_epoch

    def has_active_owner(self, task: TaskId) -> bool:
        """Return whether a member has the task active, or still has to revoke it."""
        return bool(self._active.of(task))

    def is_in_process(self, task: TaskId, process_id: str) -> bool:
        """Return whether a member of the process has the task in any role."""
        return any(process_id in owners.of(task) for owners in (self._active, self._standby, self._warmup))

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether the tasks of members read the topic."""
        return bool(self.members) and topic in self._readers

    def all_subscribed_names(self) -> Iterable[str]:
        """Return the topics that the tasks of members read."""
        return self._readers if self.members else ()

    def assigned_since(self, member_id: str, partition: TopicPartition, topics: ClusterTopics) -> int | None:
        """Return the epoch in which the member got the active task that reads the partition; None if it has not."""
        del topics
        assignment, name = self.assignment(member_id), self._readers.get(partition.topic, "")
        since = assignment.assigned.active.get(name, {}).get(partition.partition)
        return assignment.revoking.active.get(name, {}).get(partition.partition) if since is None else since

    def metadata_hash(self, topics: ClusterTopics) -> int:
        """Return the hash of the topics of the topology that exist."""
        names = () if self.topology is None else self.topology.required_topics()
        found = {name: topics.topic_id(name) for name in names if topics.partition_count(name) is not None}
        return self.topic_hashes.of_ids(found, topics)

    def tombstones(self) -> list[Change]:
        """Return what deletes the records of the group, which has no members, in Kafka's order."""
        if not self.is_stored:
            return []
        keys = [Key(RecordType.MEMBER_ASSIGNMENT, name) for name in self.assignments]
        keys += [Key(RecordType.MEMBER_TARGET, name) for name in self.targets]
        keys.append(Key(RecordType.TARGET))
        keys += [Key(RecordType.MEMBER, name) for name in self.members]
        keys += [Key(RecordType.GROUP), Key(RecordType.TOPOLOGY)]
        return [Change(key, None) for key in keys]

    def values(self) -> dict[str, object]:
        """Return everything that the group consists of, for comparison."""
        names = ("epoch", "target", "members", "targets", "assignments", "topology", "memory_bytes", "_readers")
        return {name: getattr(self, name) for name in names}

    def apply(self, change: Change) -> Callable[[], None]:
        """Set or delete a value; return what takes the change back."""
        was_stored = self.is_stored
        revert = self._apply(change)

        def undo() -> None:
            revert()
            self.is_stored = was_stored

        self.is_stored = True
        return undo

    def _apply(self, change: Change) -> Callable[[], None]:
        (record_type, name), value = change
        match record_type:
            case RecordType.GROUP:
                epoch_before = self.epoch
                self.epoch = StreamsEpoch(FIRST_EPOCH) if value is None else cast("StreamsEpoch", value)
                return lambda: setattr(self, "epoch", epoch_before)
            case RecordType.TARGET:
                target_before = self.target
                self.target = TargetEpoch(FIRST_EPOCH) if value is None else cast("TargetEpoch", value)
                return lambda: setattr(self, "target", target_before)
            case RecordType.TOPOLOGY:
                topology_before = self.topology
                self._set_topology(cast("Topology | None", value))
                return lambda: self._set_topology(topology_before)
            case RecordType.MEMBER_TARGET:
                return set_value(self.targets, name, cast("TaskSets | None", value))
            case RecordType.MEMBER:
                member_before = self.members.get(name)
                self._set_member(name, cast("StreamsMember | None", value))
                return lambda: self._set_member(name, member_before)
            case _:
                assignment_before = self.assignments.get(name)
                self._set_assignment(name, cast("StreamsAssignment | None", value))
                return lambda: self._set_assignment(name, assignment_before)

    def _set_topology(self, topology: Topology | None) -> None:
        self.memory_bytes += _size_of(topology) - _size_of(self.topology)
        self.topology = topology
        self.configured = None
        self._readers = {} if topology is None else topology.readers()

    def _set_member(self, member_id: str, member: StreamsMember | None) -> None:
        self._count_tasks(member_id, -1)
        before = self.members.get(member_id)
        if before is not None:
            self.memory_bytes -= _size_of_member(before)
        if member is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member
        self.memory_bytes += _size_of_member(member)
        self._count_tasks(member_id, 1)

    def _set_assignment(self, member_id: str, assignment: StreamsAssignment | None) -> None:
        self._count_tasks(member_id, -1)
        if assignment is None:
            self.assignments.pop(member_id, None)
            return
        self.assignments[member_id] = assignment
        self._count_tasks(member_id, 1)

    def _count_tasks(self, member_id: str, by: int) -> None:
        """Add or remove the tasks of a member; after a compaction its two records may be replayed in either order."""
        member, assignment = self.members.get(member_id), self.assignments.get(member_id)
        if member is None or assignment is None:
            return
        for tasks in (assignment.assigned, assignment.revoking):
            self._active.count(tasks.active, member.process_id, by)
            self._standby.count(tasks.standby, member.process_id, by)
            self._warmup.count(tasks.warmup, member.process_id, by)


def _size_of(topology: Topology | None) -> int:
    if topology is None:
        return 0
    return _BYTES_PER_NAME * sum(
        1
        + len(subtopology.source_topics)
        + len(subtopology.repartition_sinks)
        + len(subtopology.copartition_groups)
        + sum(1 + len(topic.configs) for topic in (*subtopology.changelogs, *subtopology.repartition_sources))
        for subtopology in topology.subtopologies.values()
    )


def _size_of_member(member: StreamsMember) -> int:
    texts = (member.client_id, member.client_host, member.process_id)
    return _BYTES_PER_MEMBER + sum(map(len, texts)) + sum(len(key) + len(value) for key, value in member.client_tags)
