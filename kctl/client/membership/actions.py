"""Actions of a group member, performed by the group consumer."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.client.assignment import Subscriber
from kctl.errors import ApiError
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import JoinGroupRequest
from kctl.protocol.apis.sync_group import SyncGroupRequest


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
    | SendLeave
    | Assign
    | StartReading
    | Revoke
    | StopReading
    | LookUpCoordinator
    | Fail
)
