"""A heartbeat of a member of a share group and its outcome, and the properties that decide on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.newer_groups import JOIN_EPOCH, LEAVE_EPOCH
from kctl.server.coordination.share_groups.group import NamedPartitions

SUBSCRIBED_TOPICS_MAX = bound(
    Subject.COORDINATION,
    "topics to which a member of a share group subscribes",
    1_000,
    "topics",
    on_excess="INVALID_REQUEST",
)
_TEXT_MAX = bound(
    Subject.COORDINATION,
    "member id or rack of a member of a share group",
    1_000,
    "characters",
    on_excess="INVALID_REQUEST",
)


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Each field is the Kafka property `group.share.` with its name; the first two may be those of the group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A member joins, goes on or leaves; what is None has not changed."""

    token: object = None
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_joining(self) -> bool:
        """True if the member joins, or joins again."""
        return self.member_epoch == JOIN_EPOCH

    @property
    def is_leaving(self) -> bool:
        """True if the member leaves."""
        return self.member_epoch == LEAVE_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOutcome:
    """The result of a heartbeat; `assignment` is None if it has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


StateOfTopics: TypeAlias = Mapping[UUID, NamedPartitions]


@dataclass(frozen=True, slots=True)
class StatesInitialized:
    """The share coordinator has begun the state of these; `is_over` if no request is under way any more."""

    topics: StateOfTopics
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class ResetStates:
    """An administrator sets start offsets: states begin anew with the epoch of the group, which fences former ones."""

    token: object
    topics: StateOfTopics


@dataclass(frozen=True, slots=True)
class ForgetStates:
    """The states of these topics were deleted in the share coordinator."""

    token: object
    topic_ids: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class ResetOutcome:
    """The result of ResetStates and ForgetStates: the state epoch for the new states."""

    error: ErrorCode
    state_epoch: int = 0


def check_share_request(group_id: str, request: ShareHeartbeat) -> None:
    """Raise ApiError(INVALID_REQUEST) if the request is wrong by itself."""
    epoch, names = request.member_epoch, request.topic_names or ()
    _check(bool(request.member_id), "MemberId can't be empty.")
    _check(bool(group_id), "GroupId can't be empty.")
    _check(request.rack_id != "", "RackId can't be empty.")
    _check(epoch >= LEAVE_EPOCH, f"MemberEpoch is {epoch}, but must be greater than or equal to -1.")
    _check(not request.is_joining or bool(names), "SubscribedTopicNames must be set in first request.")
    most = SUBSCRIBED_TOPICS_MAX
    _check(len(names) <= most, f"a member of a share group subscribes to at most {most} topics.")
    for text in (request.member_id, request.rack_id):
        _check(len(text or "") <= _TEXT_MAX, f"ids and racks have at most {_TEXT_MAX} characters.")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
