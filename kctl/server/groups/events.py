"""Events that `step` processes for a group.

A token identifies one parked request; it is returned in exactly one `Answer` and is opaque to the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.groups.offsets import OffsetAndMetadata

Token: TypeAlias = object
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata of the protocols that a member supports, in order of preference."""

UNKNOWN_MEMBER = ""
"""The member id of a member that has none yet."""


class Now(NamedTuple):
    """The time of a step: the monotonic clock is for deadlines, the wall clock for stored timestamps."""

    monotonic_ms: int
    wall_ms: int


class TimerKind(StrEnum):
    """The purpose of a timer."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class TimerKey(NamedTuple):
    """Identifies one timer of one group; scheduling a key again replaces the timer."""

    kind: TimerKind
    member_id: str = UNKNOWN_MEMBER


JOIN_TIMER = TimerKey(TimerKind.JOIN)
SYNC_TIMER = TimerKey(TimerKind.SYNC)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member joins the next generation."""

    token: Token
    member_id: str
    fresh_member_id: str
    """The id for a new member."""
    group_instance_id: str | None = None
    requires_known_member_id: bool = False
    """JoinGroup v4+ without an instance id: a new member first gets an id and joins again with it.  KIP-394."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member requests its assignment; the leader's request contains all assignments."""

    token: Token
    member_id: str
    group_instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's heartbeat."""

    token: Token
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leaver:
    """A member that leaves; a static member may be identified by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """Members leave, or an administrator removes them (KIP-345)."""

    token: Token
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """An offset commit of a member, or of a client that is not a member."""

    token: Token
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    generation: int = -1
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommit:
    """An offset commit as part of a producer's transaction.

    Producers older than KIP-447 send neither member nor generation.
    """

    token: Token
    producer: ProducerIdAndEpoch
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    generation: int = -1
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class AppendDone:
    """The result of a Persist action; `base_offset` is the offset of its batch."""

    append_id: int
    error: ErrorCode
    base_offset: int = -1


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A scheduled timer fired."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class GroupLoaded:
    """The group was loaded from the log; sessions start now, except for members that sent a request before."""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """An administrator deletes the group."""

    token: Token


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """An administrator deletes committed offsets.  KIP-496."""

    token: Token
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    """Topics were deleted; their commits are removed."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """The periodic check for expired offsets and unused groups."""


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """The marker of a producer's transaction was written."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Unload:
    """Another broker coordinates the group now."""


Event: TypeAlias = (
    JoinRequest
    | SyncRequest
    | Heartbeat
    | LeaveRequest
    | CommitRequest
    | TransactionalCommit
    | AppendDone
    | TimerFired
    | GroupLoaded
    | DeleteGroup
    | DeleteOffsets
    | ForgetTopics
    | ExpireOffsets
    | TransactionCompleted
    | Unload
)
