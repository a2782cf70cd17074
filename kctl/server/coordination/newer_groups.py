"""What consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) have in common.

Members send heartbeats, which do everything: they join, subscribe, are assigned, revoke and leave.  Three epochs: that
of the group increases with each change of members, subscriptions or topics; that of the target assignment is the group
epoch for which it was computed; that of a member is the target epoch which it has reached.

A group consists of values, each of which is a record in `__consumer_offsets`.  A change sets or deletes one.  The
changes of an event are applied at once, written as one batch, and taken back if the log refuses the batch.

Pure.  Kafka: ModernGroup, StreamsGroup, CoordinatorResult.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID

T = TypeVar("T")
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves for some time, and its partitions wait for it."""
NO_EPOCH = -1
"""The previous epoch of a new member."""
FIRST_EPOCH = 1
"""The epoch of a group before its first member; Kafka begins with it since 4.3."""


class Key(NamedTuple):
    """The key of a value in a group: the number at the start of the record's key, and such as a member id."""

    type: IntEnum
    name: str = ""


class Change(NamedTuple):
    """A value of a group is set, or deleted if it is None."""

    key: Key
    value: object | None


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group, and the hash of the topics to which it subscribes."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch for which the target assignment was computed, and when."""

    epoch: int
    timestamp_ms: int = 0


class Epoch(Protocol):
    """The epoch of a group, of whatever type."""

    @property
    def epoch(self) -> int:
        """The number."""
        ...


class MemberState(IntEnum):
    """How far a member is from the target assignment; the values are those in the records of consumer groups."""

    STABLE = 0
    UNREVOKED = 1
    """It has to revoke something before it gets the epoch of the target assignment."""
    UNRELEASED = 2
    """It has the epoch of the target assignment, and waits for what others still own."""
    UNKNOWN = 127


MEMBER_STATES = {state.value: state for state in MemberState}


class ClusterTopics(Protocol):
    """The topics of the cluster, as far as assignments need them."""

    @property
    def topics_version(self) -> int:
        """Increases whenever a topic is created or deleted, or gets partitions."""
        ...

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id; the zero id if there is no such topic."""
        ...

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions; None if there is no such topic."""
        ...

    def partition_racks(self, topic: str) -> list[list[str]]:
        """Return the racks of the replicas of each partition."""
        ...


class NoTopics:
    """ClusterTopics of a group whose broker serves no newer types."""

    topics_version = 0

    def topic_id(self, topic: str) -> UUID:
        """Return the zero id."""
        return ZERO_UUID

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return None."""
        return None

    def partition_count(self, topic: str) -> int | None:
        """Return None."""
        return None

    def partition_racks(self, topic: str) -> list[list[str]]:
        """Return no partitions."""
        return []


class NewerGroup(Protocol):
    """The values of a group, whatever its type."""

    kind: ClassVar[str]
    """The text in ListGroups responses."""
    target: TargetEpoch

    @property
    def epoch(self) -> Epoch:
        """The epoch of the group."""
        ...

    @property
    def members(self) -> Mapping[str, object]:
        """What the members have said about themselves, by member id."""
        ...

    @property
    def state(self) -> StrEnum:
        """The state, which follows from the members and the epochs."""
        ...

    @property
    def memory_bytes(self) -> int:
        """About the memory for the members and their subscriptions."""
        ...

    @property
    def is_stored(self) -> bool:
        """True if the log has records of the group."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic."""
        ...

    def tombstones(self) -> list[Change]:
        """Return what deletes the records of the group, which has no members."""
        ...

    def apply(self, change: Change) -> Callable[[], None]:
        """Set or delete a value; return what takes the change back, which must be the last one then."""
        ...


class Changes:
    """The changes of one event, which are applied at once, written as one batch, and taken back if that fails."""

    def __init__(self, group: NewerGroup) -> None:
        self.made: list[Change] = []
        self.group = group
        self._undo: list[Callable[[], None]] = []

    def put(self, record_type: IntEnum, name: str, value: object | None) -> None:
        """Set or delete a value of the group."""
        change = Change(Key(record_type, name), value)
        self.made.append(change)
        self._undo.append(self.group.apply(change))

    def take_back(self) -> None:
        """Restore the group as it was."""
        while self._undo:
            self._undo.pop()()
        self.made.clear()


def set_value(values: dict[str, T], name: str, value: T | None) -> Callable[[], None]:
    """Set or delete one of the values; return what takes it back."""
    before = values.get(name)

    def put(new: T | None) -> None:
        if new is None:
            values.pop(name, None)
        else:
            values[name] = new

    put(value)
    return lambda: put(before)


@dataclass(frozen=True, slots=True)
class RevocationTimer:
    """A member has to revoke before `timeout_ms`, or is fenced if it is still in this epoch; None stops the timer."""

    member_id: str
    epoch: int = 0
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BecomesClassic:
    """Only members of the classic protocol are left, so that the group becomes one of this protocol."""

    epoch: int
    """Its generation."""
    is_rebalanced: bool
    """False if a static member has been replaced by one that takes its assignment."""


@dataclass(slots=True)
class Decision:
    """What follows from an event, besides its changes."""

    changes: Changes
    outcome: Any = None
    """The result of the request; None without one."""
    member_id: str | None = None
    """The member whose session goes on."""
    fenced: tuple[str, ...] = ()
    """Members that are removed, with their timers."""
    revocation: RevocationTimer | None = None
    becomes_classic: BecomesClassic | None = None
    """For consumer groups; members in `fenced` are not part of the classic group."""


S = TypeVar("S")


@dataclass(slots=True)
class Environment(Generic[S]):
    """What decisions depend on, besides the group and the event; `settings` are those of the type of group."""

    group_id: str
    settings: S
    topics: ClusterTopics
    wall_ms: int


def unknown_member(member_id: str, group_id: str) -> ApiError:
    """Return the error of a request of a member that the group does not have."""
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_epoch(kind: str, received: int, known: int) -> ApiError:
    """Return the error of a heartbeat with another epoch than the member has in a consumer, share or streams group."""
    which = "greater" if received > known else "smaller"
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {which} member epoch ({received}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def full_group(kind: str, size_max: int) -> ApiError:
    """Return the error of a member that joins a full group."""
    message = f"The {kind} group has reached its maximum capacity of {size_max} members."
    return ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
