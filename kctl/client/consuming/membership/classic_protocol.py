"""State machine of a group member: when to join, sync and heartbeat, and which partitions it may read.  Pure.

    OUTSIDE -> JOINING -> SYNCING -> STABLE -> REVOKING -> JOINING ...

Eager protocol: before rejoining, a member revokes all its partitions (`Revoke`; it may commit first) and has none until
the next assignment (`StartReading`).  Cooperative protocol (KIP-429): a rejoining member continues to read and reports
its partitions.  `StartReading` then names the added partitions and `Revoke` those to give up, after which the member
rejoins, so that they can be assigned to others.

Partitions lost without revocation (`StopReading`) cannot be committed, because the group has assigned them to others.
`step` takes one event, changes the member, and returns the actions for the group consumer.  Source: Kafka's
AbstractCoordinator and ConsumerCoordinator, KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kctl.client.consuming.membership.assignors import COOPERATIVE_STICKY, NO_GENERATION, STICKY, Subscriber
from kctl.client.consuming.membership.member import (
    Action,
    Assign,
    Assigned,
    CommitResultReceived,
    Disconnected,
    Event,
    Fail,
    GroupHeartbeatResponseReceived,
    HeartbeatDue,
    HeartbeatResponseReceived,
    Joined,
    Left,
    LookUpCoordinator,
    Member,
    PartitionsChanged,
    Phase,
    PollOverdue,
    PollRequested,
    Revoke,
    Revoked,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartReading,
    StopReading,
    SubscriptionChanged,
    Synced,
    TopicsNamed,
)
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kctl.protocol.codec import decode, encode_bytes
from kctl.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyUserData,
    StickyUserData,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

# Encodes and decodes the subscription that a member sends in JoinGroup for each of its assignors.
#
# A member's owned partitions are sent twice: Kafka's StickyAssignor reads the user data, its
# CooperativeStickyAssignor the owned partitions and the generation (KIP-792), or the generation in the user data if
# an older client wrote the subscription.


GENERATION_VERSION_MIN = 2
USER_DATA_VERSION = 1


def protocols(member: Member) -> list[JoinGroupRequestProtocol]:
    """Return the `protocols` of JoinGroup: the member's assignors, the preferred one first, with the subscription for
    each.
    """
    return [JoinGroupRequestProtocol(name=name, metadata=_metadata(member, name)) for name in member.settings.assignors]


def subscriber(received: JoinGroupResponseMember, assignor: str) -> Subscriber:
    """Decode a subscription.  Raises MalformedRequest.  Unknown user data counts as no claim."""
    subscription = decode_subscription(received.metadata)
    claims: Collection[TopicPartitions] = ()
    generation = NO_GENERATION
    if assignor == COOPERATIVE_STICKY:
        claims = subscription.owned_partitions
        generation = subscription.generation_id
        if generation == NO_GENERATION:
            generation = _user_data_generation(subscription.user_data or b"")
    elif assignor == STICKY:
        previous = _previous_assignment(subscription.user_data or b"")
        claims, generation = previous.previous_assignment, previous.generation
    return Subscriber(
        received.member_id,
        received.group_instance_id,
        frozenset(subscription.topics),
        frozenset(_flat(claims)),
        generation,
    )


def encode_partitions(partitions: Collection[TopicPartition]) -> bytes:
    """Encode an assignment (ConsumerProtocolAssignment)."""
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)))


def decode_partitions(blob: memoryview | bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment.  Empty bytes, for a member that the leader did not see, are an empty assignment."""
    if not len(blob):
        return ()
    return tuple(sorted(_flat(decode_assignment(blob).assigned_partitions)))


def _metadata(member: Member, assignor: str) -> bytes:
    """Return the subscription bytes.

    They do not change without owned partitions: a change would trigger a rebalance.
    """
    settings = member.settings
    subscription = ConsumerProtocolSubscription(topics=sorted(settings.topics), rack_id=settings.rack or None)
    if member.owned:
        subscription.owned_partitions = _by_topic(member.owned)
        subscription.generation_id = member.assigned_generation
    if assignor == COOPERATIVE_STICKY and member.owned:
        received = CooperativeStickyUserData(generation=member.assigned_generation)
        subscription.user_data = encode_bytes(received, 0)
    if assignor == STICKY and member.assigned:
        previous = StickyUserData(previous_assignment=_by_topic(member.assigned), generation=member.assigned_generation)
        subscription.user_data = encode_bytes(previous, USER_DATA_VERSION)
    return encode_subscription(subscription)


def _user_data_generation(blob: bytes) -> int:
    """Read the generation.  librdkafka writes the user data of `sticky` here, which starts with a count."""
    try:
        received, end = decode(CooperativeStickyUserData, blob, 0)
    except MalformedRequest:
        return NO_GENERATION
    return received.generation if end == len(blob) else NO_GENERATION


def _previous_assignment(blob: bytes) -> StickyUserData:
    for version in range(USER_DATA_VERSION, -1, -1):
        try:
            return decode(StickyUserData, blob, version)[0]
        except MalformedRequest:
            continue
    return StickyUserData(previous_assignment=[])


def _by_topic(partitions: Collection[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def _flat(received: Collection[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, number) for topic in received for number in topic.partitions]


BEAT_AGAIN_MS = 100
"""Pause after a heartbeat without a coordinator: retry.backoff.ms of Kafka's clients."""
_ELSEWHERE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


def step(member: Member, event: Event, now_ms: int) -> list[Action]:
    """Apply one event to a member and return the actions; `now_ms` is of a monotonic clock."""
    match event:
        case PollRequested():
            return [*_notice_end(member, now_ms), *_join(member)] if member.phase is Phase.OUTSIDE else []
        case Joined(response):
            return _joined(member, response, now_ms) if member.phase is Phase.JOINING else []
        case Assigned(assignment):
            return _send_assignment(member, assignment) if member.phase is Phase.SYNCING else []
        case Synced(response):
            return _synced(member, response, now_ms) if member.phase is Phase.SYNCING else []
        case HeartbeatDue():
            return _beat(member, now_ms)
        case HeartbeatResponseReceived(response, generation):
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE and generation == member.generation:
                member.last_response_ms = now_ms
            return _on_error(member, code, generation, now_ms)
        case CommitResultReceived(code, generation):
            return _on_error(member, code, generation, now_ms)
        case Disconnected(during):
            return _disconnected(member, during, now_ms)
        case PartitionsChanged():
            return _prepare(member) if member.phase is Phase.STABLE and member.is_leader else []
        case SubscriptionChanged(topics):
            member.settings = replace(member.settings, topics=topics)
            return []
        case Revoked():
            return _revoked(member) if member.phase is Phase.REVOKING else []
        case PollOverdue():
            return [StopReading(), *_leave(member)] if member.is_in_generation else []
        case Left():
            return _leave(member)
        case GroupHeartbeatResponseReceived() | TopicsNamed():
            return []  # Of the consumer protocol.


def _join(member: Member) -> list[Action]:
    member.phase = Phase.JOINING
    settings = member.settings
    member.joined_topics = settings.topics
    request = JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=member.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols(member),
    )
    return [SendJoin(request)]


def _joined(member: Member, response: JoinGroupResponse, now_ms: int) -> list[Action]:
    code = ErrorCode.of(response.error_code)
    if code is ErrorCode.MEMBER_ID_REQUIRED:
        member.member_id = response.member_id
        return _join(member)
    if code is not ErrorCode.NONE:
        return _start_over(member, code)
    member.member_id, member.generation = response.member_id, response.generation_id
    member.assignor = response.protocol_name or ""
    member.is_leader = response.leader == response.member_id
    member.phase = Phase.SYNCING
    member.last_response_ms = now_ms
    member.is_withholding = False
    if not member.is_leader:
        return _sync(member, [])
    subscribers = tuple(subscriber(joined, member.assignor) for joined in response.members)
    is_cooperative = member.assignor == COOPERATIVE_STICKY
    member.claimed = frozenset(tp for joined in subscribers for tp in joined.claims if is_cooperative)
    return [Assign(member.assignor, subscribers)]


def _send_assignment(member: Member, assignment: Mapping[str, Sequence[TopicPartition]]) -> list[Action]:
    member.is_withholding = not member.claimed.issubset(tp for tps in assignment.values() for tp in tps)
    return _sync(
        member,
        [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_partitions(partitions))
            for member_id, partitions in assignment.items()
        ],
    )


def _sync(member: Member, assignments: list[SyncGroupRequestAssignment]) -> list[Action]:
    request = SyncGroupRequest(
        group_id=member.settings.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.assignor,
        assignments=assignments,
    )
    return [SendSync(request)]


def _synced(member: Member, response: SyncGroupResponse, now_ms: int) -> list[Action]:
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        return _start_over(member, code)
    member.phase = Phase.STABLE
    member.last_response_ms = member.beat_ms = member.synced_ms = now_ms
    member.assigned = decode_partitions(response.assignment)
    member.assigned_generation = member.generation
    before = set(member.owned)
    taken = tuple(tp for tp in member.assigned if tp not in before)
    revoking = tuple(sorted(before.difference(member.assigned)))
    member.owned += taken
    return [StartReading(taken), *(_revoke(member, revoking) if revoking else [])]


def _start_over(member: Member, code: ErrorCode) -> list[Action]:
    """Rejoin after a failed join or sync; a cooperative member keeps its partitions unless its generation is over."""
    if code in _ELSEWHERE:
        member.phase = Phase.OUTSIDE
        return [LookUpCoordinator()]
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return _join(member)
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        _forget(member)
        return [*_lose(member), *_join(member)]
    if code is ErrorCode.ILLEGAL_GENERATION:
        return [*_lose(member), *_join(member)]
    return _fail(member, code)


def _beat(member: Member, now_ms: int) -> list[Action]:
    if member.phase is Phase.OUTSIDE:
        return _notice_end(member, now_ms)
    if not member.is_in_generation:
        return []
    if now_ms >= member.session_end_ms and member.phase is Phase.STABLE:
        return _leave_generation(member)
    has_changed = member.phase is Phase.STABLE and member.joined_topics != member.settings.topics
    if has_changed or _revocation_is_overdue(member, now_ms):
        return _prepare(member)
    if now_ms < member.next_beat_ms:
        return []
    member.beat_ms = now_ms
    request = HeartbeatRequest(
        group_id=member.settings.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.settings.group_instance_id,
    )
    return [SendHeartbeat(request)]


def _revocation_is_overdue(member: Member, now_ms: int) -> bool:
    """Return whether the owner of an unassigned partition has not rejoined in time, so that the leader must rebalance.

    The successor of a static member that failed before revoking (KIP-345) has no partitions to revoke and does not
    rejoin; without this the partition would have no owner until the next rebalance.
    """
    is_late = now_ms >= member.synced_ms + member.settings.session_timeout_ms
    return member.phase is Phase.STABLE and member.is_leader and member.is_withholding and is_late


def _on_error(member: Member, code: ErrorCode, generation: int, now_ms: int) -> list[Action]:
    """Handle an error code in the response to a heartbeat or a commit."""
    if not member.is_in_generation or generation != member.generation or code is ErrorCode.NONE:
        return []
    if code in _ELSEWHERE:
        return _beat_elsewhere(member, now_ms)
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return _prepare(member) if member.phase is Phase.STABLE else []
    if code in {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            _forget(member)
        return _leave_generation(member)
    if code in _FATAL:
        return _fail(member, code)
    return []


def _prepare(member: Member) -> list[Action]:
    """Prepare a rejoin: an eager member revokes everything, a cooperative one only commits."""
    return _revoke(member, () if member.settings.is_cooperative else member.owned)


def _revoke(member: Member, partitions: tuple[TopicPartition, ...]) -> list[Action]:
    member.phase = Phase.REVOKING
    member.revoking = partitions
    return [Revoke(partitions)]


def _revoked(member: Member) -> list[Action]:
    given_up = set(member.revoking)
    member.owned = tuple(tp for tp in member.owned if tp not in given_up)
    member.revoking = ()
    return _join(member)


def _leave_generation(member: Member) -> list[Action]:
    member.phase = Phase.OUTSIDE
    member.owned = member.revoking = ()
    return [StopReading()]


def _notice_end(member: Member, now_ms: int) -> list[Action]:
    """Without a coordinator, a cooperative member continues to read until its session expires."""
    return _lose(member) if now_ms >= member.session_end_ms else []


def _lose(member: Member) -> list[Action]:
    if not member.owned:
        return []
    member.owned = member.revoking = ()
    return [StopReading()]


def _disconnected(member: Member, during: Phase, now_ms: int) -> list[Action]:
    if during in {Phase.JOINING, Phase.SYNCING}:
        if member.phase is not during:
            return []
        member.phase = Phase.OUTSIDE
        return [LookUpCoordinator()]
    return _beat_elsewhere(member, now_ms) if member.is_in_generation else []


def _beat_elsewhere(member: Member, now_ms: int) -> list[Action]:
    """Make the next heartbeat due soon: the session continues while the coordinator is looked up."""
    member.beat_ms = now_ms - member.settings.heartbeat_interval_ms + BEAT_AGAIN_MS
    return [LookUpCoordinator()]


def _leave(member: Member) -> list[Action]:
    """Leave the group; a static member sends no LeaveGroup, and keeps its place until the session times out
    (KIP-345).
    """
    member_id = member.member_id
    member.phase = Phase.OUTSIDE
    member.owned = member.revoking = ()
    _forget(member)
    if not member_id or member.settings.group_instance_id is not None:
        return []
    return [SendLeave(member_id)]


def _forget(member: Member) -> None:
    member.member_id, member.generation = "", NO_GENERATION


_FATAL: Mapping[ErrorCode, str] = {
    ErrorCode.FENCED_INSTANCE_ID: "another member uses the group.instance.id '{instance}'",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "its members have no assignor in common with this member, which supports {assignors}"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to read in this group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.INVALID_GROUP_ID: "'{group}' is not a valid group id",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms={session} is outside the range that the broker allows",
}


def _fail(member: Member, code: ErrorCode) -> list[Action]:
    settings = member.settings
    member.phase = Phase.OUTSIDE
    member.owned = member.revoking = ()
    text = _FATAL.get(code, code.description).format(
        instance=settings.group_instance_id,
        group=settings.group_id,
        session=settings.session_timeout_ms,
        assignors=", ".join(settings.assignors),
    )
    return [Fail(ApiError(code, f"group '{settings.group_id}': {text}"))]
