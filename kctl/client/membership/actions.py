"""What a member of a group wants done."""

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
    """Ask; the answer may take as long as the slowest member, so nothing else waits behind it."""

    request: JoinGroupRequest


@dataclass(frozen=True, slots=True)
class SendSync:
    """Ask for the assignment, or hand it in."""

    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Say that this member is alive."""

    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Say goodbye; the answer changes nothing."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Decide who reads what by this assignor, then tell by `Assigned`."""

    assignor: str
    members: tuple[Subscriber, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Read these too from now on, from where the group has committed."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Commit, give up these of what is read, then tell by `Revoked`; for a cooperative member it may be none."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """All that is read belongs to others already."""


@dataclass(frozen=True, slots=True)
class LookUpCoordinator:
    """The coordinator is elsewhere or not ready: look it up before the next request, and pause before a join."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Trying again would not help."""

    error: ApiError


Action = SendJoin | SendSync | SendHeartbeat | SendLeave | Assign | Take | Revoke | Abandon | LookUpCoordinator | Fail
