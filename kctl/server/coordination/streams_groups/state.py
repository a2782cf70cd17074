"""The values that a streams group consists of; each is a record in `__consumer_offsets`.

A task is a subtopology and the number of a partition of its topics.  It has one active owner; standby tasks are copies
of its state on other processes.  All values are immutable: a change of a group replaces them.

Pure.  Kafka: StreamsGroupMember, StreamsTopology, TasksTuple, TasksTupleWithEpochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple, TypeAlias

from kctl.server.coordination.newer_groups import JOIN_EPOCH, MemberState

Tasks: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology; subtopologies without tasks are left out."""
TaskEpochs: TypeAlias = Mapping[str, Mapping[int, int]]
"""As Tasks, with the epoch in which the member got each."""


class TaskId(NamedTuple):
    """One task."""

    subtopology: str
    partition: int


class RecordType(IntEnum):
    """The number at the start of a record's key."""

    GROUP = 17
    MEMBER = 19
    TARGET = 20
    MEMBER_TARGET = 21
    MEMBER_ASSIGNMENT = 22
    TOPOLOGY = 23


class StreamsGroupState(StrEnum):
    """The values are the texts in StreamsGroupDescribe and ListGroups responses."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of the topology are missing or have the wrong number of partitions."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Status(IntEnum):
    """What is wrong with a group, in StreamsGroupHeartbeat responses."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class StreamsEpoch:
    """The epoch of a group, the hash of its topics, and with which topology and properties it was increased."""

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    """The epoch of the topology whose topics are all right; -1 for none."""
    assignment_configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic of the application that the group coordinator creates."""

    name: str
    partitions: int = 0
    """0 if it follows from the topics that the subtopology reads."""
    replication_factor: int = 0
    """0 for the default of the broker."""
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics with the same number of partitions, as indexes into the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_regexes: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """Processors that are connected with each other: they read the same partitions, which are their tasks."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_regexes: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def read_topics(self) -> Iterator[str]:
        """Yield the topics that its tasks read."""
        yield from self.source_topics
        yield from (topic.name for topic in self.repartition_sources)

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """Yield the groups of topics that need the same number of partitions.  Raises IndexError."""
        for group in self.copartition_groups:
            sources = [self.source_topics[index] for index in group.source_topics]
            yield frozenset((*sources, *(self.repartition_sources[index].name for index in group.repartition_sources)))


@dataclass(frozen=True, slots=True)
class Topology:
    """What an application does, as far as the group coordinator needs it."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]

    def required_topics(self) -> set[str]:
        """Return the topics without which no task can run."""
        return {
            name
            for subtopology in self.subtopologies.values()
            for name in (*subtopology.read_topics(), *(topic.name for topic in subtopology.changelogs))
        }

    def readers(self) -> dict[str, str]:
        """Return the subtopology that reads each topic."""
        return {
            name: subtopology_id
            for subtopology_id, subtopology in self.subtopologies.items()
            for name in subtopology.read_topics()
        }


class Endpoint(NamedTuple):
    """Where a process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """What a member has said about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """The same for all threads of an instance of the application."""
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""


@dataclass(frozen=True, slots=True)
class TaskSets:
    """The tasks that a member should have, or says that it has."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def shares_any(self, owned: OwnedTasks) -> bool:
        """Return whether a task is in both in the same role."""
        pairs: tuple[tuple[Tasks, Mapping[str, Iterable[int]]], ...] = (
            (self.active, owned.active),
            (self.standby, owned.standby),
            (self.warmup, owned.warmup),
        )
        return any(
            not numbers.isdisjoint(theirs.get(subtopology, ()))
            for ours, theirs in pairs
            for subtopology, numbers in ours.items()
        )


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """The tasks that a member has been assigned."""

    active: TaskEpochs = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True without tasks."""
        return not (self.active or self.standby or self.warmup)

    def contains(self, tasks: TaskSets) -> bool:
        """Return whether a member with these tasks has no others."""
        pairs: tuple[tuple[Tasks, Mapping[str, Iterable[int]]], ...] = (
            (tasks.active, self.active),
            (tasks.standby, self.standby),
            (tasks.warmup, self.warmup),
        )
        return all(
            numbers.issubset(ours.get(subtopology, ()))
            for theirs, ours in pairs
            for subtopology, numbers in theirs.items()
        )

    def equals(self, tasks: TaskSets) -> bool:
        """Return whether a member with these tasks has all of them and no others."""
        theirs, ours = ((sets.active, sets.standby, sets.warmup) for sets in (tasks, self.without_epochs()))
        counts = [sum(len(numbers) for role in sets for numbers in role.values()) for sets in (theirs, ours)]
        return counts[0] == counts[1] and self.contains(tasks)

    def without_epochs(self) -> TaskSets:
        """Return the tasks alone."""
        active = {subtopology: frozenset(epochs) for subtopology, epochs in self.active.items()}
        return TaskSets(active, self.standby, self.warmup)


NO_TASKS = OwnedTasks()
NO_TARGET = TaskSets()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAssignment:
    """What a member owns: the tasks that it runs, and those that it has to revoke."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The epoch that it may still have, if the response with the current one was lost."""
    state: MemberState = MemberState.STABLE
    assigned: OwnedTasks = NO_TASKS
    revoking: OwnedTasks = NO_TASKS


NEW_MEMBER = StreamsAssignment()
