"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The broker assigns, and each member goes from one assignment to the next by itself, as those of the consumer protocol
do.  JoinGroup is answered at once: the generation is the epoch of the member, and nobody is the leader.  The member
says there what it owns; what it has to revoke, SyncGroup leaves out of its assignment.  Heartbeat is answered with
REBALANCE_IN_PROGRESS when the member is to join again: to follow a new target assignment, when it has revoked, or when
others have revoked what it waits for.  It then has its rebalance timeout to join, and the same time to sync.

Pure.  Kafka: GroupMetadataManager, classicGroupJoinToConsumerGroup and its neighbours.
"""

from __future__ import annotations

from dataclasses import replace

from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.protocol.codec import version_of
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription, decode_subscription
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.heartbeat import (
    ConsumerDecision,
    ConsumerEnvironment,
    advance,
    assign_without_heartbeats,
    check_holder,
    check_size,
    fence,
    take_place,
)
from kctl.server.coordination.consumer_groups.requests import (
    CONVERTED_MEMBERS_MAX,
    DISABLED,
    OWNED_PARTITIONS_MAX,
    SUBSCRIBED_TOPICS_MAX,
    SUBSCRIPTION_BYTES_MAX,
)
from kctl.server.coordination.consumer_groups.state import ClassicMember, MemberMetadata
from kctl.server.coordination.groups.actions import (
    Action,
    JoinOutcome,
    LeaveOutcome,
    Respond,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.coordination.groups.events import (
    UNKNOWN_MEMBER,
    Heartbeat,
    JoinRequest,
    Leaver,
    LeaveRequest,
    Now,
    SyncRequest,
    TimerKey,
    TimerKind,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.rules.consumer_group import RULES
from kctl.server.coordination.groups.rules.conversion import assignment_bytes, partitions_by_id
from kctl.server.coordination.groups.rules.newer_group import fence_members, perform, stop_classic_timer
from kctl.server.coordination.newer_groups import BecomesClassic, Changes, MemberState, unknown_member


def join_consumer_group(group: Group, event: JoinRequest, now: Now, out: list[Action]) -> None:
    """Add or update a member of a group that has members."""
    consumer = _consumer(group)
    member_id = event.member_id or event.fresh_member_id
    decision = ConsumerDecision(Changes(consumer))
    try:
        _check_join(consumer, event, member_id, RULES.environment(group, now))
        if event.requires_known_member_id and event.member_id == UNKNOWN_MEMBER:
            out.append(Respond(event.token, JoinOutcome(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)))
            return
        _join(consumer, event, member_id, RULES.environment(group, now), decision)
    except ApiError as error:
        decision.changes.take_back()
        out.append(Respond(event.token, JoinOutcome(error=error.code, member_id=event.member_id)))
        return
    perform(group, RULES, decision, now, out, token=event.token)
    stop_classic_timer(group, TimerKey(TimerKind.REJOIN, member_id), out)
    if decision.becomes_classic is None:
        _start_timer(group, TimerKey(TimerKind.MEMBER_SYNC, member_id), event.rebalance_timeout_ms, out)


def sync_consumer_group(group: Group, event: SyncRequest, now: Now, out: list[Action]) -> None:
    """Return what the member owns."""
    consumer = _consumer(group)
    try:
        member, classic = _member(group, event.member_id, event.group_instance_id, event.generation)
        has_type = event.protocol_type in {None, PROTOCOL_TYPE}
        if not has_type or event.protocol_name not in {None, classic.protocols[0][0]}:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        assignment = consumer.assignment(event.member_id)
        if consumer.target.epoch > assignment.epoch and assignment.state is not MemberState.UNREVOKED:
            _expect_join(group, event.member_id, member, out)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    except ApiError as error:
        out.append(Respond(event.token, SyncOutcome(error.code)))
        return
    version = version_of(classic.protocols[0][1])
    encoded = assignment_bytes(assignment.assigned, version, group.topics)
    outcome = SyncOutcome(ErrorCode.NONE, event.protocol_type, event.protocol_name, encoded)
    decision = ConsumerDecision(Changes(consumer), outcome=outcome, member_id=event.member_id)
    perform(group, RULES, decision, now, out, token=event.token)
    stop_classic_timer(group, TimerKey(TimerKind.MEMBER_SYNC, event.member_id), out)


def heartbeat_consumer_group(group: Group, event: Heartbeat, now: Now, out: list[Action]) -> None:
    """Extend the session; REBALANCE_IN_PROGRESS requests that the member joins again."""
    consumer = _consumer(group)
    try:
        member, _ = _member(group, event.member_id, event.group_instance_id, event.generation)
    except ApiError as error:
        out.append(Respond(event.token, error.code))
        return
    away = sum(map(consumer.has_left_for_some_time, consumer.members))
    if consumer.classic_count + away == len(consumer.members):
        perform(group, RULES, assign_without_heartbeats(consumer, RULES.environment(group, now)), now, out)
    assignment = consumer.assignment(event.member_id)
    outcome = ErrorCode.NONE
    can_be_given = assignment.state is MemberState.UNRELEASED and not consumer.has_to_wait(event.member_id)
    if assignment.epoch < consumer.target.epoch or assignment.state is MemberState.UNREVOKED or can_be_given:
        outcome = ErrorCode.REBALANCE_IN_PROGRESS
        _expect_join(group, event.member_id, member, out)
    decision = ConsumerDecision(Changes(consumer), outcome=outcome, member_id=event.member_id)
    perform(group, RULES, decision, now, out, token=event.token)


def leave_consumer_group(group: Group, event: LeaveRequest, now: Now, out: list[Action]) -> None:
    """Remove members of either protocol; one error per leaver, in request order."""
    consumer = _consumer(group)
    gone: dict[str, None] = {}
    errors = []
    for leaver in event.leavers:
        try:
            gone[_leaver_id(consumer, leaver, group.group_id)] = None
            errors.append(ErrorCode.NONE)
        except ApiError as error:
            errors.append(error.code)
    outcome = LeaveOutcome(ErrorCode.NONE, tuple(errors))
    decision = ConsumerDecision(Changes(consumer))
    if gone:
        decision = fence(consumer, gone, RULES.environment(group, now))
    decision.outcome = outcome
    perform(group, RULES, decision, now, out, token=event.token)


def classic_time_is_up(group: Group, key: TimerKey, now: Now, out: list[Action]) -> None:
    """Fence a member that has not joined or synced when its timer fired."""
    group.classic_timers.discard(key)
    if group.consumer is not None and group.consumer.is_classic(key.member_id):
        fence_members(group, RULES, (key.member_id,), now, out)


def _consumer(group: Group) -> ConsumerGroup:
    assert group.consumer is not None
    return group.consumer


def _leaver_id(consumer: ConsumerGroup, leaver: Leaver, group_id: str) -> str:
    if leaver.group_instance_id is None:
        if leaver.member_id not in consumer.members:
            raise unknown_member(leaver.member_id, group_id)
        return leaver.member_id
    holder = consumer.static_members.get(leaver.group_instance_id)
    # An administrator knows the instance id only.
    check_holder(holder, leaver.member_id or holder or "", leaver.group_instance_id)
    return holder or ""


def _member(
    group: Group, member_id: str, instance_id: str | None, generation: int
) -> tuple[MemberMetadata, ClassicMember]:
    """Return a member of the classic protocol.  Raises ApiError."""
    consumer = _consumer(group)
    if instance_id is not None:
        check_holder(consumer.static_members.get(instance_id), member_id, instance_id)
    member = consumer.members.get(member_id)
    if member is None or member.classic is None:
        raise unknown_member(member_id, group.group_id)
    if consumer.assignment(member_id).epoch != generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _check_join(consumer: ConsumerGroup, event: JoinRequest, member_id: str, environment: ConsumerEnvironment) -> None:
    settings = environment.settings
    names = [name for name, _ in event.protocols]
    if settings.migration_policy == DISABLED:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_size(consumer, member_id, settings)
    if event.protocol_type != PROTOCOL_TYPE or not consumer.supports_classic(names):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _join(
    consumer: ConsumerGroup,
    event: JoinRequest,
    member_id: str,
    environment: ConsumerEnvironment,
    decision: ConsumerDecision,
) -> None:
    subscription = _subscription(event)
    instance_id, epoch = event.group_instance_id, consumer.epoch.epoch
    becomes_classic = False
    if instance_id is not None:
        holder = consumer.static_members.get(instance_id)
        becomes_classic = holder is not None and _may_replace_last(consumer, holder, environment)
        if event.member_id == UNKNOWN_MEMBER:
            take_place(consumer, member_id, instance_id, decision.changes, is_classic=True)
        else:
            check_holder(holder, member_id, instance_id)
    before = consumer.members.get(member_id, MemberMetadata())
    updated = replace(
        before,
        instance_id=before.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        classic=ClassicMember(event.session_timeout_ms, event.protocols),
    )
    owned = partitions_by_id(subscription.owned_partitions, environment.topics)
    advance(consumer, member_id, updated, owned, environment, decision, keeps_target=becomes_classic)
    if becomes_classic:
        is_rebalanced = consumer.target.epoch < consumer.epoch.epoch
        decision.becomes_classic = BecomesClassic(epoch, is_rebalanced=is_rebalanced)
    else:
        decision.member_id = member_id
    decision.outcome = JoinOutcome(
        member_id=member_id,
        generation=consumer.assignment(member_id).epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=event.protocols[0][0],
    )


def _may_replace_last(consumer: ConsumerGroup, holder: str, environment: ConsumerEnvironment) -> bool:
    """Return whether the group becomes classic when this static member does."""
    settings = environment.settings
    is_last = not consumer.is_classic(holder) and consumer.is_classic_without((holder,))
    most = min(settings.classic_max_size, CONVERTED_MEMBERS_MAX)
    return is_last and settings.may_downgrade and len(consumer.members) <= most


def _subscription(event: JoinRequest) -> ConsumerProtocolSubscription:
    metadata = event.protocols[0][1]
    if len(metadata) > SUBSCRIPTION_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    try:
        subscription = decode_subscription(metadata)
    except MalformedRequest:
        # As Kafka responds.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    owned = sum(len(topic.partitions) for topic in subscription.owned_partitions)
    if len(subscription.topics) > SUBSCRIBED_TOPICS_MAX or owned > OWNED_PARTITIONS_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    return subscription


def _expect_join(group: Group, member_id: str, member: MemberMetadata, out: list[Action]) -> None:
    """Start the timer within which the member has to join, unless it runs."""
    key = TimerKey(TimerKind.REJOIN, member_id)
    if key not in group.classic_timers:
        _start_timer(group, key, member.rebalance_timeout_ms, out)


def _start_timer(group: Group, key: TimerKey, timeout_ms: int, out: list[Action]) -> None:
    group.classic_timers.add(key)
    out.append(ScheduleTimer(key, max(timeout_ms, 0)))
