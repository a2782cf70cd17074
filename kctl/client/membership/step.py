"""One member of a consumer group, from its own side: when to join, to sync, to heartbeat, and what it may read.  Pure.

    OUTSIDE -> JOINING -> SYNCING -> STABLE -> REVOKING -> JOINING ...

The eager protocol: whoever rejoins first gives up all it reads (`Revoke`, at its own pace, so that it can commit), and
has nothing until it is assigned again (`Take`).  What is lost without being asked (`Abandon`) cannot be committed any
more, because the group has given it to others.  `step` takes one event and changes the member; what it returns is to be
done by whoever owns the connection.  Source: Kafka's AbstractCoordinator and ConsumerCoordinator, KIP-62, KIP-345,
KIP-394.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kctl.client.assignors import ASSIGNORS, Subscriber
from kctl.client.membership.actions import (
    Abandon,
    Action,
    Assign,
    Fail,
    LookUpCoordinator,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Take,
)
from kctl.client.membership.events import (
    Assigned,
    CommitAnswered,
    Disconnected,
    Event,
    HeartbeatAnswered,
    HeartbeatDue,
    Joined,
    Left,
    PartitionsChanged,
    Revoked,
    Synced,
    Wanted,
)
from kctl.client.membership.member import (
    NO_GENERATION,
    Member,
    Phase,
)
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kctl.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kctl.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

BEAT_AGAIN_MS = 100
"""How long to wait after a heartbeat that found no coordinator: retry.backoff.ms of Kafka's clients."""
_ELSEWHERE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


def step(member: Member, event: Event, now_ms: int) -> list[Action]:
    """Let one event happen to a member, and say what is to be done; times are of a clock that never goes back."""
    match event:
        case Wanted():
            return _join(member) if member.phase is Phase.OUTSIDE else []
        case Joined(response):
            return _joined(member, response) if member.phase is Phase.JOINING else []
        case Assigned(assignment):
            return _hand_in(member, assignment) if member.phase is Phase.SYNCING else []
        case Synced(response):
            return _synced(member, response, now_ms) if member.phase is Phase.SYNCING else []
        case HeartbeatDue():
            return _beat(member, now_ms)
        case HeartbeatAnswered(response, generation):
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE and generation == member.generation:
                member.heard_ms = now_ms
            return _told(member, code, generation, now_ms)
        case CommitAnswered(code, generation):
            return _told(member, code, generation, now_ms)
        case Disconnected(during):
            return _disconnected(member, during, now_ms)
        case PartitionsChanged():
            return _revoke(member) if member.phase is Phase.STABLE and member.is_leader else []
        case Revoked():
            return _join(member) if member.phase is Phase.REVOKING else []
        case Left():
            return _leave(member)


def _join(member: Member) -> list[Action]:
    member.phase = Phase.JOINING
    settings = member.settings
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=sorted(settings.topics)))
    request = JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=member.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in ASSIGNORS],
    )
    return [SendJoin(request)]


def _joined(member: Member, response: JoinGroupResponse) -> list[Action]:
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
    if not member.is_leader:
        return _sync(member, [])
    subscribers = tuple(
        Subscriber(one.member_id, one.group_instance_id, frozenset(decode_subscription(one.metadata).topics))
        for one in response.members
    )
    return [Assign(member.assignor, subscribers)]


def _hand_in(member: Member, assignment: Mapping[str, Sequence[TopicPartition]]) -> list[Action]:
    return _sync(
        member,
        [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_encode(partitions))
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
    member.heard_ms = member.beat_ms = now_ms
    return [Take(_decode(response.assignment))]


def _start_over(member: Member, code: ErrorCode) -> list[Action]:
    """A join or sync that failed: nothing is read meanwhile, so there is nothing to give up."""
    if code in _ELSEWHERE:
        member.phase = Phase.OUTSIDE
        return [LookUpCoordinator()]
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        _forget(member)
        return _join(member)
    if code in {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}:
        return _join(member)
    return _fail(member, code)


def _beat(member: Member, now_ms: int) -> list[Action]:
    if not member.is_in_generation:
        return []
    if now_ms >= member.session_end_ms and member.phase is Phase.STABLE:
        member.phase = Phase.OUTSIDE
        return [Abandon()]
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


def _told(member: Member, code: ErrorCode, generation: int, now_ms: int) -> list[Action]:
    """What the coordinator says to a member that reads: in an answer to a heartbeat or to a commit."""
    if not member.is_in_generation or generation != member.generation or code is ErrorCode.NONE:
        return []
    if code in _ELSEWHERE:
        return _beat_elsewhere(member, now_ms)
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return _revoke(member) if member.phase is Phase.STABLE else []
    if code in {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            _forget(member)
        member.phase = Phase.OUTSIDE
        return [Abandon()]
    if code in _FATAL:
        return _fail(member, code)
    return []


def _revoke(member: Member) -> list[Action]:
    member.phase = Phase.REVOKING
    return [Revoke()]


def _disconnected(member: Member, during: Phase, now_ms: int) -> list[Action]:
    if during in {Phase.JOINING, Phase.SYNCING}:
        if member.phase is not during:
            return []
        member.phase = Phase.OUTSIDE
        return [LookUpCoordinator()]
    return _beat_elsewhere(member, now_ms) if member.is_in_generation else []


def _beat_elsewhere(member: Member, now_ms: int) -> list[Action]:
    """The session goes on while the coordinator is looked for, so the next heartbeat is due soon."""
    member.beat_ms = now_ms - member.settings.heartbeat_interval_ms + BEAT_AGAIN_MS
    return [LookUpCoordinator()]


def _leave(member: Member) -> list[Action]:
    """A static member only goes away: the group keeps its place for it until the session times out (KIP-345)."""
    member_id = member.member_id
    member.phase = Phase.OUTSIDE
    _forget(member)
    if not member_id or member.settings.group_instance_id is not None:
        return []
    return [SendLeave(member_id)]


def _forget(member: Member) -> None:
    member.member_id, member.generation = "", NO_GENERATION


_FATAL: Mapping[ErrorCode, str] = {
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken the group.instance.id '{instance}'",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the members of the group have no way of sharing in common with this one, which knows " + ", ".join(ASSIGNORS)
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to read in this group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.INVALID_GROUP_ID: "'{group}' is no name for a group",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms={session} is outside of what the broker allows",
}


def _fail(member: Member, code: ErrorCode) -> list[Action]:
    settings = member.settings
    member.phase = Phase.OUTSIDE
    words = _FATAL.get(code, code.description).format(
        instance=settings.group_instance_id, group=settings.group_id, session=settings.session_timeout_ms
    )
    return [Fail(ApiError(code, f"group '{settings.group_id}': {words}"))]


def _encode(partitions: Sequence[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    told = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=told))


def _decode(blob: memoryview | bytes) -> tuple[TopicPartition, ...]:
    """A member that joined too late for the leader to know it is given no bytes at all: nothing to read."""
    if not len(blob):
        return ()
    told = decode_assignment(blob).assigned_partitions
    return tuple(sorted(TopicPartition(one.topic, number) for one in told for number in one.partitions))
