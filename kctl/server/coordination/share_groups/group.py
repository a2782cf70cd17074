"""A share group: the last value of each of its records, and what follows from these.

The epochs are those of groups of the consumer protocol (KIP-848).  Members own nothing alone, so that a member goes to
its target assignment in one step.  Only partitions whose state the share coordinator has begun are assigned.

Owner: event loop.  Pure.  Kafka: ShareGroup, ShareGroupMember.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import ClassVar, NamedTuple, cast
from uuid import UUID

from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.newer_groups import FIRST_EPOCH, NO_EPOCH, Change, GroupEpoch, Key, TargetEpoch, set_value

_BYTES_PER_MEMBER = 1_500


class RecordType(IntEnum):
    """The number at the start of a record's key."""

    MEMBER = 10
    GROUP = 11
    TARGET = 12
    MEMBER_TARGET = 13
    MEMBER_ASSIGNMENT = 14
    PARTITIONS = 15


class ShareGroupState(StrEnum):
    """The values are the texts in ShareGroupDescribe and ListGroups responses."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """What a member has said about itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareAssignment:
    """What a member reads, and since when."""

    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    """The epoch that it may still have, if the response with the current one was lost."""
    partitions: Partitions = field(default_factory=dict)


NEW_MEMBER = ShareAssignment()


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with its name: a topic that was deleted has none any more."""

    name: str
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The share-partitions of the group in the share coordinator."""

    initializing: Mapping[UUID, NamedPartitions] = field(default_factory=dict)
    initialized: Mapping[UUID, NamedPartitions] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)

    def with_initializing(self, added: Mapping[UUID, NamedPartitions]) -> StatePartitions:
        """Return these with more whose state is being begun, or begun anew."""
        return replace(self, initializing=_united(self.initializing, added))

    def with_initialized(self, done: Mapping[UUID, NamedPartitions]) -> StatePartitions:
        """Return these after the share coordinator has begun the state of some."""
        initializing = _without(self.initializing, done)
        return replace(self, initializing=initializing, initialized=_united(self.initialized, done))

    def without_topics(self, topic_ids: Iterable[UUID]) -> StatePartitions:
        """Return these without some topics."""
        gone = set(topic_ids)
        return StatePartitions(
            {topic_id: named for topic_id, named in self.initializing.items() if topic_id not in gone},
            {topic_id: named for topic_id, named in self.initialized.items() if topic_id not in gone},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone},
        )

    def known(self) -> Mapping[UUID, NamedPartitions]:
        """Return all that the share coordinator may have."""
        return _united(self.initialized, self.initializing)


def _united(
    first: Mapping[UUID, NamedPartitions], second: Mapping[UUID, NamedPartitions]
) -> dict[UUID, NamedPartitions]:
    united = dict(first)
    for topic_id, (name, numbers) in second.items():
        before = united.get(topic_id)
        united[topic_id] = NamedPartitions(name, numbers if before is None else numbers | before.numbers)
    return united


def _without(
    first: Mapping[UUID, NamedPartitions], second: Mapping[UUID, NamedPartitions]
) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic_id, (name, numbers) in first.items():
        rest = numbers - second[topic_id].numbers if topic_id in second else numbers
        if rest:
            left[topic_id] = NamedPartitions(name, rest)
    return left


class ShareGroup:
    """The values of a group.  Attributes are read-only for other modules; `apply` is the only change."""

    kind: ClassVar[str] = "share"

    def __init__(self) -> None:
        self.epoch = GroupEpoch(FIRST_EPOCH)
        self.target = TargetEpoch(0)
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.assignments: dict[str, ShareAssignment] = {}
        self.partitions = StatePartitions()
        self.is_stored = False
        """The log has records of the group."""
        self.is_initializing = False
        """A request to the share coordinator is under way; not stored."""
        self.checked_version = -1
        """The version of the cluster's topics with which the epoch was last compared; not stored."""
        self.topic_counts: Counter[str] = Counter()
        """The number of members that subscribe to each topic."""
        self.memory_bytes = 0
        """About the memory for the members and their subscriptions."""
        self.settled: tuple[int, int, StatePartitions] | None = None
        """Topics, epoch and partitions for which nothing is left to do; not stored."""

    @property
    def state(self) -> ShareGroupState:
        """The state, which follows from the members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        """True if there are no members."""
        return not self.members

    def assignment(self, member_id: str) -> ShareAssignment:
        """Return what the member reads; nothing if it is new."""
        return self.assignments.get(member_id, NEW_MEMBER)

    def tombstones(self) -> list[Change]:
        """Return what deletes the records of the group, which has no members."""
        if not self.is_stored:
            return []
        keys = [Key(RecordType.MEMBER_ASSIGNMENT, name) for name in self.assignments]
        keys += [Key(RecordType.MEMBER_TARGET, name) for name in self.targets]
        keys += [Key(RecordType.TARGET)]
        keys += [Key(RecordType.MEMBER, name) for name in self.members]
        keys += [Key(RecordType.PARTITIONS), Key(RecordType.GROUP)]
        return [Change(key, None) for key in keys]

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic."""
        return topic in self.topic_counts

    def values(self) -> dict[str, object]:
        """Return everything that the group consists of, for comparison."""
        names = ("epoch", "target", "members", "targets", "assignments", "partitions", "topic_counts", "memory_bytes")
        return {name: getattr(self, name) for name in names}

    def apply(self, change: Change) -> Callable[[], None]:
        """Set or delete a value; return what takes the change back."""
        was_stored = self.is_stored
        revert = self._apply(change)

        def undo() -> None:
            self.settled = None
            revert()
            self.is_stored = was_stored

        self.is_stored = True
        return undo

    def _apply(self, change: Change) -> Callable[[], None]:
        (record_type, name), value = change
        match record_type:
            case RecordType.GROUP:
                return self._replace("epoch", GroupEpoch(FIRST_EPOCH) if value is None else value)
            case RecordType.TARGET:
                return self._replace("target", TargetEpoch(0) if value is None else value)
            case RecordType.PARTITIONS:
                return self._replace("partitions", StatePartitions() if value is None else value)
            case RecordType.MEMBER:
                before = self.members.get(name)
                self._set_member(name, cast("ShareMember | None", value))
                return lambda: self._set_member(name, before)
            case RecordType.MEMBER_TARGET:
                return set_value(self.targets, name, cast("Partitions | None", value))
            case _:
                return set_value(self.assignments, name, cast("ShareAssignment | None", value))

    def _replace(self, name: str, value: object) -> Callable[[], None]:
        before = getattr(self, name)
        setattr(self, name, value)
        return lambda: setattr(self, name, before)

    def _set_member(self, member_id: str, member: ShareMember | None) -> None:
        self._count(self.members.pop(member_id, None), -1)
        if member is not None:
            self.members[member_id] = member
            self._count(member, 1)

    def _count(self, member: ShareMember | None, by: int) -> None:
        if member is None:
            return
        self.memory_bytes += by * (_BYTES_PER_MEMBER + len(member.client_id) + sum(map(len, member.topic_names)))
        for topic in member.topic_names:
            self.topic_counts[topic] += by
            if not self.topic_counts[topic]:
                del self.topic_counts[topic]
