"""What can happen to a member of a group."""

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
class Wanted:
    """Somebody wants to read: join unless that is done."""


@dataclass(frozen=True, slots=True)
class Joined:
    """JoinGroup was answered."""

    response: JoinGroupResponse


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader, this member, has decided who reads what."""

    assignment: Mapping[str, Sequence[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Synced:
    """SyncGroup was answered."""

    response: SyncGroupResponse


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """Time went on."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """Heartbeat was answered."""

    response: HeartbeatResponse
    generation: int
    """The generation that it named: a later one has nothing to do with it."""


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """OffsetCommit was answered with this code for some partition."""

    code: ErrorCode
    generation: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the coordinator is lost; whether what was asked in that phase was done is not known."""

    during: Phase


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """A topic of the group has more partitions than when this member, the leader, gave them out."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """What was to be given up is: committed, if that was possible."""


@dataclass(frozen=True, slots=True)
class Left:
    """This member wants to read no more."""


Event = (
    Wanted
    | Joined
    | Assigned
    | Synced
    | HeartbeatDue
    | HeartbeatAnswered
    | CommitAnswered
    | Disconnected
    | PartitionsChanged
    | Revoked
    | Left
)
