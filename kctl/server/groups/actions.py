"""What a group decides: the vocabulary that `step` gives back, to be performed in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.groups.events import TimerKey, Token
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.groups.snapshot import GroupSnapshot

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One line of the member list that the leader gets to assign partitions from."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOutcome:
    """The answer to a join; only the leader gets members."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """The answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeaveOutcome:
    """`error` concerns the whole request; otherwise one error per leaver, in the order asked."""

    error: ErrorCode
    leavers: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteOffsetsOutcome:
    """`error` concerns the whole request; otherwise one error per partition."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode]


CommitOutcome: TypeAlias = Mapping[TopicPartition, ErrorCode]
Outcome: TypeAlias = JoinOutcome | SyncOutcome | LeaveOutcome | DeleteOffsetsOutcome | CommitOutcome | ErrorCode


@dataclass(frozen=True, slots=True)
class Answer:
    """The parked call of `token` ends with this."""

    token: Token
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PersistGroup:
    """Write the group to the log, then say AppendDone."""

    append_id: int
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class PersistOffsets:
    """Write the commits to the log, then say AppendDone."""

    append_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    producer: ProducerIdAndEpoch | None = None
    """Whose transaction they belong to, if any."""


@dataclass(frozen=True, slots=True)
class PersistTombstones:
    """Write that these commits, and the group itself if so said, are no more.

    Nobody waits for it: a tombstone that gets lost is written again by the next look for expired offsets.
    """

    partitions: tuple[TopicPartition, ...]
    is_group_gone: bool


@dataclass(frozen=True, slots=True)
class ScheduleTimer:
    """Say TimerFired(key) in `delay_ms`; replaces a timer of the same key."""

    key: TimerKey
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer of this key, if there is one, is not needed any more."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Discard:
    """The group is dead: forget it and its timers."""


@dataclass(frozen=True, slots=True)
class ForgetTransaction:
    """The group has no commits in the producer's transaction, so its marker need not be told to the group."""

    producer_id: int


Action: TypeAlias = (
    Answer
    | PersistGroup
    | PersistOffsets
    | PersistTombstones
    | ForgetTransaction
    | ScheduleTimer
    | CancelTimer
    | Discard
)
