"""What can happen to a group: the vocabulary that `step` takes.

A token stands for one parked call; it comes back in exactly one `Answer` and is never looked into.  Handlers make the
events of requests without one, and the coordinator adds it.
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
"""Name and metadata of what a member can run, best liked first."""

UNKNOWN_MEMBER = ""
"""The member id of someone who has none yet."""


class Now(NamedTuple):
    """The moment of a step: deadlines are counted on the first clock, what others read on the second."""

    monotonic_ms: int
    wall_ms: int


class TimerKind(StrEnum):
    """What a timer of a group is for."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class TimerKey(NamedTuple):
    """Names one timer of one group; scheduling a key again replaces the timer."""

    kind: TimerKind
    member_id: str = UNKNOWN_MEMBER


JOIN_TIMER = TimerKey(TimerKind.JOIN)
SYNC_TIMER = TimerKey(TimerKind.SYNC)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member wants to be in the next generation."""

    token: Token = None
    member_id: str
    fresh_member_id: str = ""
    """The id to give if the group has to invent one; the coordinator draws it."""
    group_instance_id: str | None = None
    requires_known_member_id: bool = False
    """JoinGroup v4+ without an instance id: a new member first gets an id and asks again.  KIP-394."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member wants its assignment; the leader brings everybody's."""

    token: Token = None
    member_id: str
    group_instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member says that it lives."""

    token: Token
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leaver:
    """Who leaves; a static member may be named by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """Members leave, or an administrator removes them (KIP-345)."""

    token: Token
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A member, or a client that needs no membership, says how far it has read."""

    token: Token = None
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    generation: int = -1
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommit:
    """A producer says, as part of its transaction, how far a member of the group has read.

    Producers of before KIP-447 name neither member nor generation.
    """

    token: Token = None
    producer: ProducerIdAndEpoch
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    generation: int = -1
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class AppendDone:
    """The log took, or refused, what a Persist action handed it.  `base_offset` is where it lies."""

    append_id: int
    error: ErrorCode
    base_offset: int = -1


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A scheduled timer ran out."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class GroupLoaded:
    """The group was read back from the log; sessions start now, unless a member was heard of before."""


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
    """Topics were deleted; their offsets mean nothing any more."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """The regular look for offsets and groups that nobody uses."""


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """The marker of a producer's transaction was written."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Unload:
    """Another broker coordinates the group from now on."""


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
