"""Actions that `step` returns for a group, to be performed in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.consumer_groups.requests import Allowed, HeartbeatOutcome
from kctl.server.coordination.groups.events import DecideOffsets, Event, ExpireOffsets, ForgetTopics, TimerKey, Token
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.newer_groups import Change
from kctl.server.coordination.share_groups.requests import ResetOutcome, ShareOutcome, StateOfTopics
from kctl.server.coordination.streams_groups.requests import StreamsOutcome

# The five states of a group and the table of valid transitions.


class GroupState(StrEnum):
    """The values are the texts in DescribeGroups and ListGroups responses."""

    EMPTY = "Empty"
    """No members; there may be committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting until every member has joined the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is complete; waiting for the leader's assignment."""
    STABLE = "Stable"
    """Every member can get its assignment."""
    DEAD = "Dead"
    """Deleted, expired or moved to another coordinator; final."""


_ALIVE = frozenset(GroupState) - {GroupState.DEAD}

PREVIOUS_STATES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {
            GroupState.EMPTY,
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        }
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: _ALIVE,
}
"""For each state, its possible previous states."""


# Immutable views of a group: the record in `__consumer_offsets`, and the description for DescribeGroups.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """One member of a stored generation."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Its metadata for the protocol of the generation."""
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One generation of a group, as it is stored."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group entered its state; -1 if unknown (records before value version 2)."""
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member for DescribeGroups; metadata and assignment only if the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group for DescribeGroups."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group for ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    """Of GroupState, ConsumerGroupState or ShareGroupState."""
    type: GroupType


class GroupType(StrEnum):
    """The values are the texts in ListGroups responses."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


NO_GENERATION = -1


class JoinedMember(NamedTuple):
    """One entry of the member list that the leader gets to compute an assignment."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOutcome:
    """The result of a JoinGroup; only the leader gets members."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """The result of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeaveOutcome:
    """The result of a LeaveGroup: `error` for the whole request, or one error per leaver, in request order."""

    error: ErrorCode
    leavers: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteOffsetsOutcome:
    """The result of an OffsetDelete: `error` for the whole request, or one error per partition."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode]


CommitOutcome: TypeAlias = Mapping[TopicPartition, ErrorCode]
Outcome: TypeAlias = (
    JoinOutcome
    | SyncOutcome
    | LeaveOutcome
    | DeleteOffsetsOutcome
    | CommitOutcome
    | HeartbeatOutcome
    | ShareOutcome
    | StreamsOutcome
    | ResetOutcome
    | ErrorCode
)


@dataclass(frozen=True, slots=True)
class Respond:
    """Complete the parked request of `token`."""

    token: Token
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PersistGroup:
    """Write the group to the log.  Results in AppendDone."""

    append_id: int
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class PersistOffsets:
    """Write the commits to the log.  Results in AppendDone."""

    append_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    producer: ProducerIdAndEpoch | None = None
    """The producer, if the commits are part of its transaction."""


@dataclass(frozen=True, slots=True)
class PersistTombstones:
    """Write tombstones for these commits and, if `is_group_gone`, for the group.

    There is no result: a lost tombstone is written again by the next check for expired offsets.
    """

    partitions: tuple[TopicPartition, ...]
    is_group_gone: bool
    newer: tuple[Change, ...] = ()
    """What deletes the records of a group of one of the newer types."""


@dataclass(frozen=True, slots=True)
class PersistNewerGroup:
    """Write changes of a group of one of the newer types to the log.  Results in AppendDone."""

    append_id: int
    changes: tuple[Change, ...]
    deletes_classic: bool = False
    """Delete the record of the classic group that it was."""
    classic: GroupSnapshot | None = None
    """The classic group that it becomes, whose record follows."""


@dataclass(frozen=True, slots=True)
class InitializeStates:
    """Let the share coordinator begin the state of share-partitions.  Results in StatesInitialized."""

    topics: StateOfTopics
    state_epoch: int


@dataclass(frozen=True, slots=True)
class DeleteStates:
    """Let the share coordinator delete the state of share-partitions; there is no result."""

    topics: StateOfTopics


@dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """Find the topics that match the regular expressions and that are not denied.  Results in RegexesResolved."""

    regexes: tuple[str, ...]
    denied: Allowed | None


@dataclass(frozen=True, slots=True)
class ScheduleTimer:
    """Start a timer that results in TimerFired(key) after `delay_ms`; replaces a timer of the same key."""

    key: TimerKey
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Cancel the timer of this key, if there is one."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Discard:
    """The group is dead: remove it and its timers."""


@dataclass(frozen=True, slots=True)
class ForgetTransaction:
    """The group has no commits in the producer's transaction, so it does not need its marker."""

    producer_id: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """Process the event again, after other requests: this step has done a part of it."""

    event: ForgetTopics | ExpireOffsets | DecideOffsets


Action: TypeAlias = (
    Respond
    | PersistGroup
    | PersistOffsets
    | PersistTombstones
    | PersistNewerGroup
    | InitializeStates
    | DeleteStates
    | ResolveRegexes
    | ForgetTransaction
    | ScheduleTimer
    | CancelTimer
    | Discard
    | Repeat
)


# Counts what happens to groups and their commits, for metrics. Kafka: the sensors of GroupCoordinator.


@dataclass(slots=True)
class Removals:
    """What a check of all groups has removed since the last summary in the log."""

    groups: int = 0
    offsets: int = 0

    def count(self, action: Action) -> None:
        """Count a group or the offsets of one that the check removes."""
        match action:
            case PersistTombstones():
                self.offsets += len(action.partitions)
            case Discard():
                self.groups += 1
            case _:
                pass


@dataclass(slots=True)
class GroupCounts:
    """Numbers since the start of the broker."""

    completed_rebalances: int = 0
    """Rebalances that ended with an assignment."""
    offset_commits: int = 0
    """Offsets that commits wrote."""
    offset_expirations: int = 0
    """Committed offsets that were removed because they had expired."""
    offset_deletions: int = 0
    """Committed offsets that were removed with their topic or group, or by OffsetDelete."""

    def count(self, event: Event, action: Action) -> None:
        """Count the offsets of an action that the event caused."""
        match action:
            case PersistOffsets():
                self.offset_commits += len(action.offsets)
            case PersistTombstones() if isinstance(event, ExpireOffsets):
                self.offset_expirations += len(action.partitions)
            case PersistTombstones():
                self.offset_deletions += len(action.partitions)
            case _:
                pass
