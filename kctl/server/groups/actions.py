"""Actions that `step` returns for a group, to be performed in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.groups.events import DecideOffsets, ExpireOffsets, ForgetTopics, TimerKey, Token
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.groups.snapshot import GroupSnapshot

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
    member_id: str
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
Outcome: TypeAlias = JoinOutcome | SyncOutcome | LeaveOutcome | DeleteOffsetsOutcome | CommitOutcome | ErrorCode


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
    | ForgetTransaction
    | ScheduleTimer
    | CancelTimer
    | Discard
    | Repeat
)
