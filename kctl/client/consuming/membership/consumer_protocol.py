"""State machine of a member of the consumer protocol (KIP-848): heartbeats, assignment, revocation.  Pure.

    OUTSIDE -> JOINING -> STABLE -> REVOKING -> STABLE ...

A heartbeat with epoch 0 joins, and the response has the epoch of the member.  The coordinator assigns partitions, those
that nobody else has; the assignment arrives in responses.  Partitions that it lacks are given up after the application
has committed (`Revoke`), and the next heartbeat reports what the member owns.  Added ones are read at once
(`StartReading`).  The other members go on reading meanwhile.

A heartbeat has only what has changed since the last response; after an error it has everything, to which the
coordinator responds with the whole assignment.  `step` takes one event, changes the member, and returns the actions.
Source: Kafka's ConsumerMembershipManager and ConsumerHeartbeatRequestManager, KIP-848, KIP-1082.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from kctl.client.consuming.membership.member import (
    Action,
    CommitResultReceived,
    Disconnected,
    Event,
    Fail,
    GroupHeartbeatResponseReceived,
    HeartbeatDue,
    Left,
    LookUpCoordinator,
    LookUpTopicNames,
    MembershipSettings,
    Phase,
    PollOverdue,
    PollRequested,
    Revoke,
    Revoked,
    SendGroupHeartbeat,
    StartReading,
    StopReading,
    SubscriptionChanged,
    TopicsNamed,
)
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
HEARTBEAT_MS_MIN = 20
"""However often a coordinator requires heartbeats, they are not sent more often."""
HEARTBEAT_MS_UNKNOWN = 1_000
"""Before the first response has named the interval."""
BEAT_AGAIN_MS = 100
"""Pause after a heartbeat without a coordinator: retry.backoff.ms of Kafka's clients."""
REMEDY = "use group_protocol='classic' (group.protocol=classic)"
SHARE_REMEDY = "share groups (KIP-932) need Kafka 4.2 or newer; use a Consumer and another group"


@dataclass(slots=True)
class ConsumerMember:
    """State of a member of the consumer protocol, with the names of `Member` where both have the same."""

    settings: MembershipSettings
    member_id: str
    """The same until the consumer is closed, also when it joins again."""
    phase: Phase = Phase.OUTSIDE
    generation: int = JOIN_EPOCH
    """The member epoch."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that may be read and committed, including those being revoked."""
    revoking: tuple[TopicPartition, ...] = ()
    """Partitions being revoked."""
    owned_ids: dict[TopicPartition, UUID] = field(default_factory=dict)
    """The ids of the topics of what it owns."""
    assigned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    """The last assignment."""
    names: dict[UUID, str] = field(default_factory=dict)
    """Of the topics that are assigned or owned."""
    reported: dict[TopicPartition, UUID] | None = None
    """What the coordinator knows to be owned; None if the next heartbeat must have everything."""
    reported_topics: tuple[str, ...] = ()
    sent: dict[TopicPartition, UUID] = field(default_factory=dict)
    """What the last heartbeat has reported; its response confirms it."""
    sent_topics: tuple[str, ...] = ()
    heartbeat_interval_ms: int = HEARTBEAT_MS_UNKNOWN
    beat_ms: int = 0
    """Time of the last heartbeat."""
    is_beating: bool = False
    """Whether the response to a heartbeat is expected."""

    @property
    def is_in_generation(self) -> bool:
        """Whether the member has an epoch for heartbeats and commits."""
        return self.phase in {Phase.STABLE, Phase.REVOKING}

    @property
    def may_commit(self) -> bool:
        """Whether commits are valid."""
        return self.is_in_generation

    @property
    def is_expecting_more(self) -> bool:
        """Whether partitions may follow that others still have to revoke."""
        return not self.owned

    @property
    def next_beat_ms(self) -> int:
        """When the next heartbeat is due; at once if there is something to report."""
        return self.beat_ms if self._has_changed else self.beat_ms + self.heartbeat_interval_ms

    @property
    def _has_changed(self) -> bool:
        return self.reported is not None and (
            self.reported != self.owned_ids or self.reported_topics != self.settings.topics
        )


def step(member: ConsumerMember, event: Event, now_ms: int) -> list[Action]:
    """Apply one event to a member and return the actions; `now_ms` is of a monotonic clock."""
    match event:
        case PollRequested():
            return _join(member, now_ms) if member.phase is Phase.OUTSIDE else []
        case GroupHeartbeatResponseReceived(response, request):
            return _responded(member, response, request, now_ms)
        case TopicsNamed(names):
            member.names.update((topic_id, name) for topic_id, name in names.items() if topic_id in member.assigned)
            return _reconcile(member)
        case HeartbeatDue():
            is_due = member.is_in_generation and not member.is_beating and now_ms >= member.next_beat_ms
            return [_beat(member, now_ms)] if is_due else []
        case CommitResultReceived(code, generation):
            return _on_commit_error(member, code, generation, now_ms)
        case Disconnected(during):
            return _disconnected(member, during, now_ms)
        case SubscriptionChanged(topics):
            member.settings = replace(member.settings, topics=topics)
        case Revoked():
            return _revoked(member, now_ms) if member.phase is Phase.REVOKING else []
        case PollOverdue():
            return [StopReading(), *_leave(member)] if member.is_in_generation else []
        case Left():
            return _leave(member)
        case _:
            pass  # Events of the classic protocol.
    return []


# Heartbeats.


def _join(member: ConsumerMember, now_ms: int) -> list[Action]:
    member.phase = Phase.JOINING
    member.generation = JOIN_EPOCH
    member.reported = None
    return [_beat(member, now_ms)]


def _beat(member: ConsumerMember, now_ms: int) -> SendGroupHeartbeat:
    """Return the next heartbeat, with everything or with what has changed."""
    settings = member.settings
    request = ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=member.member_id,
        member_epoch=member.generation,
        instance_id=settings.group_instance_id,
    )
    is_full = member.reported is None
    if is_full:
        request.rack_id = settings.rack or None
        request.rebalance_timeout_ms = settings.rebalance_timeout_ms
        request.server_assignor = settings.remote_assignor
        request.subscribed_topic_regex = settings.regex
    if settings.regex is None and (is_full or member.reported_topics != settings.topics):
        request.subscribed_topic_names = list(settings.topics)
    if is_full or member.reported != member.owned_ids:
        request.topic_partitions = _by_id(member.owned_ids)
    member.sent, member.sent_topics = dict(member.owned_ids), settings.topics
    member.is_beating = True
    member.beat_ms = now_ms
    return SendGroupHeartbeat(request)


def _responded(
    member: ConsumerMember,
    response: ConsumerGroupHeartbeatResponse,
    request: ConsumerGroupHeartbeatRequest,
    now_ms: int,
) -> list[Action]:
    if request.member_epoch < JOIN_EPOCH:
        return []  # The member has left.
    member.is_beating = False
    is_joining = member.phase is Phase.JOINING
    if not (is_joining or member.is_in_generation) or request.member_epoch != member.generation:
        member.reported = None  # It may have been an assignment, which is then sent again.
        return []
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        return _refused(member, code, response.error_message, now_ms)
    member.member_id = response.member_id or member.member_id  # Version 0 may choose another one.
    member.generation = response.member_epoch
    member.heartbeat_interval_ms = max(HEARTBEAT_MS_MIN, response.heartbeat_interval_ms)
    member.reported, member.reported_topics = member.sent, member.sent_topics
    if response.assignment is not None:
        member.assigned = {
            topic.topic_id: frozenset(topic.partitions) for topic in response.assignment.topic_partitions
        }
    if is_joining:
        member.phase = Phase.STABLE
    actions = _reconcile(member)
    if is_joining and not any(isinstance(action, StartReading) for action in actions):
        actions.insert(0, StartReading(()))
    if unknown := tuple(topic_id for topic_id in member.assigned if topic_id not in member.names):
        actions.append(LookUpTopicNames(unknown))
    return actions


def _refused(member: ConsumerMember, code: ErrorCode, message: str | None, now_ms: int) -> list[Action]:
    """Handle the refusal of a heartbeat."""
    member.reported = None
    if code in COORDINATOR_MOVED:
        if member.phase is Phase.JOINING:
            member.phase = Phase.OUTSIDE
        return _beat_elsewhere(member, now_ms)
    if code in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
        if member.phase is not Phase.JOINING:
            return _lose(member)
        member.phase = Phase.OUTSIDE
        return [LookUpCoordinator()]
    return _fail(member, code, message)


def _disconnected(member: ConsumerMember, during: Phase, now_ms: int) -> list[Action]:
    """Handle a request with an unknown outcome: the next heartbeat has everything."""
    member.is_beating = False
    member.reported = None
    if during is Phase.JOINING:
        if member.phase is Phase.JOINING:
            member.phase = Phase.OUTSIDE
            return [LookUpCoordinator()]
        return []
    return _beat_elsewhere(member, now_ms) if member.is_in_generation else []


def _beat_elsewhere(member: ConsumerMember, now_ms: int) -> list[Action]:
    """Look the coordinator up, and let the next heartbeat be due soon; the partitions are read meanwhile."""
    member.beat_ms = now_ms - member.heartbeat_interval_ms + BEAT_AGAIN_MS
    return [LookUpCoordinator()]


def _on_commit_error(member: ConsumerMember, code: ErrorCode, generation: int, now_ms: int) -> list[Action]:
    """Handle an error code in the response to a commit, or to a look-up of commits."""
    if not member.is_in_generation or generation != member.generation:
        return []
    if code is ErrorCode.STALE_MEMBER_EPOCH:  # The response to the next heartbeat has the epoch to use.
        return [] if member.is_beating else [_beat(member, now_ms)]
    if code in COORDINATOR_MOVED:
        return _beat_elsewhere(member, now_ms)
    if code in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
        return _lose(member)
    if code in {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID}:
        return _fail(member, code, None)
    return []


# Partitions.


def _reconcile(member: ConsumerMember) -> list[Action]:
    """Begins what leads from the owned partitions to the assigned ones: first revocations, then additions."""
    if member.phase is not Phase.STABLE:
        return []
    known = {*member.assigned, *member.owned_ids.values()}
    member.names = {topic_id: name for topic_id, name in member.names.items() if topic_id in known}
    target = {
        TopicPartition(member.names[topic_id], number): topic_id
        for topic_id, numbers in member.assigned.items()
        if topic_id in member.names
        for number in numbers
    }
    # A topic that was created again has the same name and another id: its partitions are not those that are read.
    revoking = tuple(tp for tp in member.owned if target.get(tp) != member.owned_ids[tp])
    if revoking:
        member.phase, member.revoking = Phase.REVOKING, revoking
        return [Revoke(revoking)]
    added = tuple(sorted(tp for tp in target if tp not in member.owned_ids))
    if not added:
        return []
    member.owned_ids |= {tp: target[tp] for tp in added}
    member.owned += added
    return [StartReading(added)]


def _revoked(member: ConsumerMember, now_ms: int) -> list[Action]:
    """Report the revocation; partitions are added after the response, which may have others."""
    for tp in member.revoking:
        del member.owned_ids[tp]
    member.owned = tuple(member.owned_ids)
    member.revoking = ()
    member.phase = Phase.STABLE
    return [] if member.is_beating else [_beat(member, now_ms)]


def _lose(member: ConsumerMember) -> list[Action]:
    """Handle the removal of the member by the coordinator: it joins again at the next poll."""
    had_any = bool(member.owned)
    _leave_generation(member)
    return [StopReading()] if had_any else []


def _leave(member: ConsumerMember) -> list[Action]:
    """Leave a static member its place until the session times out (KIP-345)."""
    settings = member.settings
    is_outside = member.phase is Phase.OUTSIDE and member.generation == JOIN_EPOCH and not member.is_beating
    _leave_generation(member)
    if is_outside:
        return []
    request = ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=member.member_id,
        member_epoch=LEAVE_EPOCH if settings.group_instance_id is None else STATIC_LEAVE_EPOCH,
        instance_id=settings.group_instance_id,
    )
    return [SendGroupHeartbeat(request)]


def _leave_generation(member: ConsumerMember) -> None:
    member.phase = Phase.OUTSIDE
    member.generation = JOIN_EPOCH
    member.owned = member.revoking = ()
    member.owned_ids, member.assigned, member.names = {}, {}, {}
    member.reported = None
    member.is_beating = False


def _by_id(owned: Mapping[TopicPartition, UUID]) -> list[TopicPartitions]:
    numbers: dict[UUID, list[int]] = {}
    for tp, topic_id in sorted(owned.items()):
        numbers.setdefault(topic_id, []).append(tp.partition)
    return [TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in numbers.items()]


# Errors that end the membership.


_FATAL: Mapping[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED_VERSION: f"the broker does not serve the consumer group protocol (KIP-848): {REMEDY}",
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another member with the group.instance.id '{instance}' has not left: close it, or wait until its session ends"
    ),
    ErrorCode.FENCED_INSTANCE_ID: "another member uses the group.instance.id '{instance}'",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker does not have the assignor '{assignor}' of group_remote_assignor",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "'{regex}' is not a regular expression of RE2",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to read in this group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to describe a topic of the subscription",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.INVALID_GROUP_ID: "'{group}' is not a valid group id",
    ErrorCode.GROUP_ID_NOT_FOUND: f"it is a group of another type, or its classic members cannot be joined: {REMEDY}",
}
_OF_SHARE_GROUPS: Mapping[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED_VERSION: f"the broker does not serve it: {SHARE_REMEDY}",
    ErrorCode.GROUP_ID_NOT_FOUND: "it is not a share group: use another group_id, or a Consumer",
}
_WITH_DETAILS = frozenset({ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.INVALID_REGULAR_EXPRESSION})
"""The text of the broker is added."""


def _fail(member: ConsumerMember, code: ErrorCode, message: str | None) -> list[Action]:
    settings = member.settings
    _leave_generation(member)
    text = _FATAL[code].format(
        instance=settings.group_instance_id,
        group=settings.group_id,
        assignor=settings.remote_assignor,
        regex=settings.regex,
    ) if code in _FATAL else message or code.description  # fmt: skip
    if settings.protocol == "share" and code in _OF_SHARE_GROUPS:
        text = _OF_SHARE_GROUPS[code]
    if message and code in _WITH_DETAILS:
        text = f"{text}: {message}"
    return [Fail(ApiError(code, f"group '{settings.group_id}': {text}"))]
