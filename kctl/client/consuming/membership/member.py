"""The state of a member of the classic protocol; the events and actions of members of both protocols."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple
from uuid import UUID

from kctl.client.consuming.membership.assignors import (
    COOPERATIVE_STICKY,
    DEFAULT_ASSIGNORS,
    NO_GENERATION,
    Subscriber,
    is_cooperative,
)
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kctl.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse

# Settings and state of a group member.


GroupProtocol = Literal["classic", "consumer"]


class SubscriptionPattern(NamedTuple):
    """A regular expression of RE2, which the broker matches with the whole names of topics (KIP-848, Kafka 4.0).

    Only for the consumer protocol; a pattern of `re.compile` is matched by the client, with either protocol.
    """

    pattern: str


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Settings of a member, with the names and defaults of Kafka 2.8's consumer."""

    group_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 300_000
    """max.poll.interval.ms: how long a rebalance waits for this member to rejoin."""
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """partition.assignment.strategy: names of assignors, the preferred one first."""
    rack: str = ""
    pattern: re.Pattern[str] | None = None
    """The topics are those whose whole names match."""
    protocol: GroupProtocol | Literal["share"] = "classic"
    """"consumer" for that of KIP-848, in which the broker assigns, and has the session and the heartbeat interval;
    "share" for that of share groups (KIP-932)."""
    remote_assignor: str | None = None
    """group.remote.assignor: the assignor of the broker, with the consumer protocol; None for its default."""
    regex: str | None = None
    """An RE2 expression for the broker, with the consumer protocol."""

    @property
    def is_cooperative(self) -> bool:
        """Whether the member keeps its partitions during a rebalance and revokes only those assigned elsewhere
        (KIP-429).
        """
        return is_cooperative(self.assignors)


class Phase(Enum):
    """Phase of a member; see `step`."""

    OUTSIDE = "outside"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"


@dataclass(slots=True)
class Member:
    """State of a member."""

    settings: MembershipSettings
    phase: Phase = Phase.OUTSIDE
    member_id: str = ""
    generation: int = NO_GENERATION
    assignor: str = ""
    """Name of the assignor that the coordinator selected for this generation."""
    joined_topics: tuple[str, ...] = ()
    """The subscription of the last join."""
    is_leader: bool = False
    claimed: frozenset[TopicPartition] = frozenset()
    """As leader: the partitions that the members claim to own."""
    is_withholding: bool = False
    """As leader: whether partitions stay unassigned until their owners have revoked them."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that may be read and committed, including those being revoked."""
    revoking: tuple[TopicPartition, ...] = ()
    """Partitions being revoked."""
    assigned: tuple[TopicPartition, ...] = ()
    """The last assignment, even if it has been revoked or lost since."""
    assigned_generation: int = NO_GENERATION
    synced_ms: int = 0
    """Time of the last assignment."""
    last_response_ms: int = 0
    """Time of the last successful response of the coordinator."""
    beat_ms: int = 0
    """Time of the last heartbeat."""

    @property
    def is_in_generation(self) -> bool:
        """Whether the member has a generation for heartbeats."""
        return self.phase in {Phase.STABLE, Phase.REVOKING}

    @property
    def is_expecting_more(self) -> bool:
        """Whether partitions may follow that others still have to revoke."""
        return self.assignor == COOPERATIVE_STICKY and not self.owned

    @property
    def heartbeat_interval_ms(self) -> int:
        """The time between two heartbeats."""
        return self.settings.heartbeat_interval_ms

    @property
    def may_commit(self) -> bool:
        """Whether commits are valid: in a generation, and for a cooperative member also while it rejoins."""
        return self.is_in_generation or (self.phase is Phase.JOINING and bool(self.owned))

    @property
    def session_end_ms(self) -> int:
        """When the coordinator expires the session, unless it receives a heartbeat."""
        return self.last_response_ms + self.settings.session_timeout_ms

    @property
    def next_beat_ms(self) -> int:
        """When the next heartbeat is due: heartbeat.interval.ms after the last one."""
        return self.beat_ms + self.settings.heartbeat_interval_ms


# Events of a group member.


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
class GroupHeartbeatResponseReceived:
    """Response of ConsumerGroupHeartbeat."""

    response: ConsumerGroupHeartbeatResponse
    request: ConsumerGroupHeartbeatRequest
    """The response is ignored if the member has another epoch now."""


@dataclass(frozen=True, slots=True)
class TopicsNamed:
    """The names of topics, of those that exist."""

    names: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class CommitResultReceived:
    """OffsetCommit or OffsetFetch returned this error code for a partition."""

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
class SubscriptionChanged:
    """The topics that match the pattern are others; the member rejoins with the next heartbeat."""

    topics: tuple[str, ...]


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
    | GroupHeartbeatResponseReceived
    | TopicsNamed
    | CommitResultReceived
    | Disconnected
    | PartitionsChanged
    | SubscriptionChanged
    | Revoked
    | PollOverdue
    | Left
)


# Actions of a group member, performed by the group consumer.


@dataclass(frozen=True, slots=True)
class SendJoin:
    """Send JoinGroup, on a connection of its own: the response may take the rebalance timeout."""

    request: JoinGroupRequest


@dataclass(frozen=True, slots=True)
class SendSync:
    """Send SyncGroup, as leader with the assignment of all members."""

    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send Heartbeat."""

    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class SendGroupHeartbeat:
    """Send ConsumerGroupHeartbeat: to join, to leave, and in between."""

    request: ConsumerGroupHeartbeatRequest


@dataclass(frozen=True, slots=True)
class LookUpTopicNames:
    """Look up the names of topics, then report `TopicsNamed`."""

    topic_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Send LeaveGroup; its response is ignored."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Run this assignor as leader, then report `Assigned`."""

    assignor: str
    members: tuple[Subscriber, ...]


@dataclass(frozen=True, slots=True)
class StartReading:
    """Start reading these partitions at their committed offsets."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Commit, stop reading these partitions, then report `Revoked`; none may be a cooperative member's set."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StopReading:
    """Stop reading all partitions without a commit: others may own them."""


@dataclass(frozen=True, slots=True)
class LookUpCoordinator:
    """Look the coordinator up before the next request, and pause before a join."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Report an error that is not retriable."""

    error: ApiError


Action = (
    SendJoin
    | SendSync
    | SendHeartbeat
    | SendGroupHeartbeat
    | LookUpTopicNames
    | SendLeave
    | Assign
    | StartReading
    | Revoke
    | StopReading
    | LookUpCoordinator
    | Fail
)
