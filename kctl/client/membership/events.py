"""Events of a group member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kctl.client.membership.member import Phase
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupResponse
from kctl.protocol.apis.sync_group import SyncGroupResponse


@dataclass(frozen=True, slots=True)
class PollRequested:
    """The application polls: join unless the member has joined."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Response of JoinGroup."""

    response: JoinGroupResponse


@dataclass(frozen=True, slots=True)
class Assigned:
    """This member, the leader, has computed the assignment."""

    assignment: Mapping[str, Sequence[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Synced:
    """Response of SyncGroup."""

    response: SyncGroupResponse


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """The next heartbeat may be due."""


@dataclass(frozen=True, slots=True)
class HeartbeatResponseReceived:
    """Response of Heartbeat."""

    response: HeartbeatResponse
    generation: int
    """The generation of the request; the response is ignored in a later one."""


@dataclass(frozen=True, slots=True)
class CommitResultReceived:
    """OffsetCommit returned this error code for a partition."""

    code: ErrorCode
    generation: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the coordinator was lost; the outcome of the request in that phase is unknown."""

    during: Phase


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """A topic of the group has more partitions than at the last assignment by this member, the leader."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """The partitions of `Revoke` have been committed, if possible, and are not read any more."""


@dataclass(frozen=True, slots=True)
class PollOverdue:
    """The application has not polled for max.poll.interval.ms."""


@dataclass(frozen=True, slots=True)
class Left:
    """The application closes the consumer."""


Event = (
    PollRequested
    | Joined
    | Assigned
    | Synced
    | HeartbeatDue
    | HeartbeatResponseReceived
    | CommitResultReceived
    | Disconnected
    | PartitionsChanged
    | Revoked
    | PollOverdue
    | Left
)
