"""The heartbeat of a member, which does everything: it joins, subscribes, revokes, is assigned, and leaves.

1. The member is created or updated; if subscriptions or topics have changed, the group's epoch increases.
2. If the group's epoch is larger than that of the target assignment, a new one is computed, at most once per
   group.consumer.assignment.interval.ms: many members that join at once are assigned together.
3. The member goes a step from what it owns to its target assignment.

A member is fenced, that is removed, when its session ends or it does not revoke in time.

The changes are applied at once; the caller writes them, and takes them back if the log refuses them.  Pure.  Kafka:
GroupMetadataManager.consumerGroupHeartbeat, consumerGroupLeave, consumerGroupFenceMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.regex.automaton import Matcher
from kctl.regex.syntax import InvalidRegex
from kctl.server.coordination.consumer_groups.assignors import RANGE, UNIFORM, Assignor, Subscriber, assign_ranges
from kctl.server.coordination.consumer_groups.balancing import assign_uniformly
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.reconciliation import Goal, reconcile
from kctl.server.coordination.consumer_groups.requests import (
    CONVERTED_MEMBERS_MAX,
    MEMBERS_MAX,
    ConsumerGroupSettings,
    HeartbeatOutcome,
    HeartbeatRequest,
)
from kctl.server.coordination.consumer_groups.state import (
    MemberAssignment,
    MemberMetadata,
    PartitionEpochs,
    Partitions,
    RecordType,
    ResolvedRegex,
)
from kctl.server.coordination.consumer_groups.topics import existing_ids
from kctl.server.coordination.newer_groups import (
    STATIC_LEAVE_EPOCH,
    BecomesClassic,
    Changes,
    Decision,
    Environment,
    GroupEpoch,
    MemberState,
    RevocationTimer,
    TargetEpoch,
    fenced_epoch,
    full_group,
    unknown_member,
)

GROUP_PARTITIONS_MAX = bound(
    Subject.COORDINATION,
    "partitions of the topics to which a group of the consumer protocol subscribes",
    10_000,
    "partitions",
    on_excess="INVALID_REQUEST for the member that subscribes; the last assignment stays if topics have grown",
)
GROUP_SUBSCRIPTIONS_MAX = bound(
    Subject.COORDINATION,
    "topics of all members of a group of the consumer protocol, each counted for each of its members",
    20_000,
    "topics",
    on_excess="INVALID_REQUEST for the member that subscribes; the last assignment stays if topics were created",
)
"""An assignment of so many takes 20 ms."""
GROUP_REGEXES_MAX = bound(
    Subject.COORDINATION,
    "regular expressions of the members of one group",
    50,
    "expressions",
    on_excess="INVALID_REQUEST",
)
REGEX_REFRESH_MIN_MS = 10_000
"""Regular expressions are not matched again earlier, however often topics change."""

ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}
AVAILABLE_ASSIGNORS = frozenset(ASSIGNORS)
ConsumerEnvironment: TypeAlias = Environment[ConsumerGroupSettings]


@dataclass(slots=True)
class ConsumerDecision(Decision):
    """What follows from an event, besides its changes."""

    needs_resolution: bool = False
    """The regular expressions of the group have to be matched with the topics."""


def hear(group: ConsumerGroup, request: HeartbeatRequest, environment: ConsumerEnvironment) -> ConsumerDecision:
    """Decide on a heartbeat.  Raises ApiError, and then nothing has changed."""
    decision = ConsumerDecision(Changes(group))
    try:
        if request.is_leaving:
            _leave(group, request, environment, decision)
        else:
            _go_on(group, request, environment, decision)
    except ApiError:
        decision.changes.take_back()
        raise
    return decision


def fence(group: ConsumerGroup, member_ids: Iterable[str], environment: ConsumerEnvironment) -> ConsumerDecision:
    """Remove members; the group's epoch increases, or the group becomes classic."""
    decision = ConsumerDecision(Changes(group), fenced=tuple(member_ids))
    _fence(group, environment, decision)
    return decision


def regexes_resolved(
    group: ConsumerGroup, matching: Mapping[str, frozenset[str]], version: int, environment: ConsumerEnvironment
) -> ConsumerDecision:
    """Store the topics that match the regular expressions; the group's epoch increases if they have changed."""
    decision = ConsumerDecision(Changes(group))
    group.resolved_version = version
    has_changed = False
    for regex, names in matching.items():
        if regex not in group.regex_counts:
            continue
        before = group.regexes.get(regex)
        has_changed |= names != (before.topics if before is not None else frozenset())
        decision.changes.put(RecordType.REGEX, regex, ResolvedRegex(names, version, environment.wall_ms))
    _update_epoch(group, environment, decision, is_changed=has_changed)
    return decision


# Step 1: the member, and the epoch of the group.


def _go_on(
    group: ConsumerGroup, request: HeartbeatRequest, environment: ConsumerEnvironment, decision: ConsumerDecision
) -> None:
    member_id = request.member_id or request.fresh_member_id
    check_size(group, member_id, environment.settings)
    if request.instance_id is None:
        _check_dynamic(group, member_id, request, environment.group_id)
    elif request.is_joining:
        take_place(group, member_id, request.instance_id, decision.changes, is_classic=False)
    else:
        check_holder(group.static_members.get(request.instance_id), member_id, request.instance_id)
        _check_epoch(group.assignment(member_id), request)
    updated = _updated(group.members.get(member_id, MemberMetadata()), request)
    assigned_before = group.assignment(member_id).assigned
    advance(group, member_id, updated, request.owned, environment, decision)
    assignment = group.assignment(member_id)
    decision.member_id = member_id
    has_changed = request.has_everything or assignment.assigned != assigned_before
    decision.outcome = HeartbeatOutcome(
        member_id=member_id,
        member_epoch=assignment.epoch,
        heartbeat_interval_ms=environment.settings.heartbeat_interval_ms,
        assignment=_plain(assignment.assigned) if has_changed else None,
    )


def advance(
    group: ConsumerGroup,
    member_id: str,
    updated: MemberMetadata,
    owned: Partitions | None,
    environment: ConsumerEnvironment,
    decision: ConsumerDecision,
    *,
    keeps_target: bool = False,
) -> None:
    """Store what a member has said about itself, and do the three steps.  Raises ApiError.

    With `keeps_target` no target assignment is computed, and the member is led to the last one if that is valid.
    """
    before = group.members.get(member_id)
    old = before if before is not None else MemberMetadata()
    if updated != before:
        decision.changes.put(RecordType.MEMBER, member_id, updated)
    names_changed = updated.topic_names != old.topic_names
    regex_changed, is_known = _change_regex(group, old, updated, decision)
    decision.needs_resolution = _needs_resolution(group, environment)
    # The topics of a new expression are not known yet; when they are, the epoch increases.
    has_topics_changed = names_changed or (regex_changed and is_known)
    if has_topics_changed or group.checked_version != environment.topics.topics_version:
        _update_epoch(group, environment, decision, is_changed=has_topics_changed)
    if not keeps_target:
        _update_target(group, environment, decision, is_refused=has_topics_changed or before is None)
    elif group.target.epoch < group.epoch.epoch:
        return
    _reconcile(group, member_id, owned, environment, decision, has_changed=names_changed or regex_changed)


def assign_without_heartbeats(group: ConsumerGroup, environment: ConsumerEnvironment) -> ConsumerDecision:
    """Do the first two steps for a group none of whose members sends heartbeats of the consumer protocol.

    Kafka 4.3 leaves such a group as it is until a member joins.
    """
    decision = ConsumerDecision(Changes(group))
    if group.checked_version != environment.topics.topics_version:
        _update_epoch(group, environment, decision, is_changed=False)
    _update_target(group, environment, decision, is_refused=False)
    return decision


def _plain(partitions: PartitionEpochs) -> Partitions:
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}


def check_size(group: ConsumerGroup, member_id: str, settings: ConsumerGroupSettings) -> None:
    """Raise ApiError(GROUP_MAX_SIZE_REACHED) for a new member of a full group."""
    most = min(settings.max_size, MEMBERS_MAX)
    if len(group.members) >= most and member_id not in group.members:
        raise full_group("consumer", most)


def _check_dynamic(group: ConsumerGroup, member_id: str, request: HeartbeatRequest, group_id: str) -> None:
    if member_id not in group.members and not request.is_joining:
        raise unknown_member(member_id, group_id)
    _check_epoch(group.assignment(member_id), request)


def _check_epoch(assignment: MemberAssignment, request: HeartbeatRequest) -> None:
    """Accept the previous epoch of a member that cannot use more than it is assigned: a response was lost."""
    received, known = request.member_epoch, assignment.epoch
    if received in {0, known}:
        return
    if received == assignment.previous_epoch and received < known and _is_subset(request.owned, assignment.assigned):
        return
    raise fenced_epoch("consumer", received, known)


def _is_subset(owned: Partitions | None, assigned: PartitionEpochs) -> bool:
    if owned is None:
        return False
    return all(numbers <= assigned.get(topic_id, {}).keys() for topic_id, numbers in owned.items())


def take_place(group: ConsumerGroup, member_id: str, instance_id: str, changes: Changes, *, is_classic: bool) -> None:
    """Let a static member that joins take the place of another process.  Raises ApiError(UNRELEASED_INSTANCE_ID).

    One of the consumer protocol has to have left for some time, unless the other process uses the classic protocol.
    """
    holder = group.static_members.get(instance_id)
    if holder is None:
        return
    if not (is_classic or group.is_classic(holder) or group.has_left_for_some_time(holder)):
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {holder} member.",
        )
    metadata, target, assignment = group.members[holder], group.target_of(holder), group.assignment(holder)
    _remove(changes, holder)
    changes.put(RecordType.MEMBER, member_id, metadata)
    changes.put(RecordType.MEMBER_TARGET, member_id, target)
    changes.put(RecordType.MEMBER_ASSIGNMENT, member_id, replace(assignment, epoch=0, previous_epoch=0))


def check_holder(holder: str | None, member_id: str, instance_id: str) -> None:
    """Raise ApiError unless the member holds the instance id: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if holder is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}."
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, message)


def _updated(member: MemberMetadata, request: HeartbeatRequest) -> MemberMetadata:
    names, timeout_ms = request.topic_names, request.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _change_regex(
    group: ConsumerGroup, old: MemberMetadata, new: MemberMetadata, decision: ConsumerDecision
) -> tuple[bool, bool]:
    """Check a new regular expression, and forget the old one if it was the last member's.

    Return whether it has changed, and whether the topics of the new one are known.  Raises ApiError.
    """
    if (old.topic_regex or "") == (new.topic_regex or ""):
        return False, False
    if old.topic_regex and old.topic_regex not in group.regex_counts:
        decision.changes.put(RecordType.REGEX, old.topic_regex, None)
    if not new.topic_regex:
        return True, True
    if group.regex_counts[new.topic_regex] == 1:  # The change is applied already.
        _check_regex(new.topic_regex)
        if len(group.regex_counts) > GROUP_REGEXES_MAX:
            message = f"a group has at most {GROUP_REGEXES_MAX} regular expressions"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return True, new.topic_regex in group.regexes


def _check_regex(regex: str) -> None:
    try:
        Matcher(regex)
    except InvalidRegex as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def _needs_resolution(group: ConsumerGroup, environment: ConsumerEnvironment) -> bool:
    """Return whether an expression is new, topics have changed, or the refresh interval has passed."""
    if not group.regex_counts or group.is_resolving:
        return False
    resolved = [group.regexes[regex] for regex in group.regex_counts if regex in group.regexes]
    if len(resolved) < len(group.regex_counts):
        return True
    age_ms = environment.wall_ms - max(regex.timestamp_ms for regex in resolved)
    if age_ms < REGEX_REFRESH_MIN_MS:
        return False
    is_outdated = group.resolved_version != environment.topics.topics_version
    return is_outdated or age_ms >= environment.settings.regex_refresh_interval_ms


def _update_epoch(
    group: ConsumerGroup, environment: ConsumerEnvironment, decision: ConsumerDecision, *, is_changed: bool
) -> None:
    """Increase the group's epoch if something has changed, or its topics have."""
    metadata_hash = group.topic_hashes.of_topics(group.all_subscribed_names(), environment.topics)
    group.checked_version = environment.topics.topics_version
    if is_changed or metadata_hash != group.epoch.metadata_hash:
        decision.changes.put(RecordType.GROUP, "", GroupEpoch(group.epoch.epoch + 1, metadata_hash))
    if group.has_legacy_topics:
        decision.changes.put(RecordType.TOPICS, "", None)


# Step 2: the target assignment.


def _update_target(
    group: ConsumerGroup, environment: ConsumerEnvironment, decision: ConsumerDecision, *, is_refused: bool
) -> None:
    """Compute the target assignment for a new group epoch.

    If the topics have too many partitions, the request is refused with ApiError, or the last assignment stays.
    """
    epoch, target = group.epoch.epoch, group.target
    is_early = target.timestamp_ms and environment.wall_ms - target.timestamp_ms < (
        environment.settings.assignment_interval_ms
    )
    if epoch <= target.epoch or is_early:
        return
    ids = existing_ids(group.all_subscribed_names(), environment.topics)
    counts = {topic_id: environment.topics.partition_count(name) or 0 for name, topic_id in ids.items()}
    subscriptions: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    subscribers = []
    for member_id, member in group.members.items():
        subscription = member.topic_names, member.topic_regex
        topic_ids = subscriptions.get(subscription)
        if topic_ids is None:
            names = group.subscribed_names(member)
            topic_ids = subscriptions[subscription] = frozenset(ids[name] for name in names if name in ids)
        subscribers.append(Subscriber(member_id, member.instance_id, topic_ids, group.target_of(member_id)))
    topics = sum(len(subscriber.topic_ids) for subscriber in subscribers)
    if sum(counts.values()) > GROUP_PARTITIONS_MAX or topics > GROUP_SUBSCRIPTIONS_MAX:
        if is_refused:
            message = (
                f"the topics of a consumer group have at most {GROUP_PARTITIONS_MAX} partitions, and its members "
                f"subscribe to at most {GROUP_SUBSCRIPTIONS_MAX} topics, each counted for each member"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        return
    name = group.preferred_assignor(environment.settings.assignors[0])
    new = ASSIGNORS.get(name, assign_uniformly)(subscribers, counts)
    for member_id in group.members:
        before, after = group.targets.get(member_id), new[member_id]
        if before is not after and before != after:
            decision.changes.put(RecordType.MEMBER_TARGET, member_id, after)
    decision.changes.put(RecordType.TARGET, "", TargetEpoch(epoch, environment.wall_ms))


# Step 3: the assignment of the member.


def _reconcile(
    group: ConsumerGroup,
    member_id: str,
    owned: Partitions | None,
    environment: ConsumerEnvironment,
    decision: ConsumerDecision,
    *,
    has_changed: bool,
) -> None:
    if not has_changed and group.has_reached_target(member_id):
        return
    member, current = group.members[member_id], group.assignment(member_id)
    goal = Goal(
        target=group.target_of(member_id),
        target_epoch=group.target.epoch,
        subscribed_ids=frozenset(existing_ids(group.subscribed_names(member), environment.topics).values()),
        has_subscription_changed=has_changed,
        is_free=lambda topic_id, number: group.owner(topic_id, number) is None,
        owned=owned,
    )
    new = reconcile(current, goal)
    if new == current:
        return
    decision.changes.put(RecordType.MEMBER_ASSIGNMENT, member_id, new)
    if member.classic is not None:
        return  # It has to join again and to sync in time instead.
    if new.state is MemberState.UNREVOKED:
        decision.revocation = RevocationTimer(member_id, new.epoch, member.rebalance_timeout_ms)
    else:
        decision.revocation = RevocationTimer(member_id)


# Leaving.


def _leave(
    group: ConsumerGroup, request: HeartbeatRequest, environment: ConsumerEnvironment, decision: ConsumerDecision
) -> None:
    member_id = request.member_id
    if request.instance_id is not None:
        check_holder(group.static_members.get(request.instance_id), member_id, request.instance_id)
    elif member_id not in group.members:
        raise unknown_member(member_id, environment.group_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        left = replace(group.assignment(member_id), epoch=STATIC_LEAVE_EPOCH, revoking={})
        decision.changes.put(RecordType.MEMBER_ASSIGNMENT, member_id, left)
    else:
        decision.fenced = (member_id,)
        _fence(group, environment, decision)
    decision.outcome = HeartbeatOutcome(member_id=member_id, member_epoch=request.member_epoch)


def _fence(group: ConsumerGroup, environment: ConsumerEnvironment, decision: ConsumerDecision) -> None:
    left, settings = len(group.members) - len(decision.fenced), environment.settings
    is_classic = left > 0 and group.is_classic_without(decision.fenced)
    if is_classic and settings.may_downgrade and left <= min(settings.classic_max_size, CONVERTED_MEMBERS_MAX):
        decision.becomes_classic = BecomesClassic(group.epoch.epoch, is_rebalanced=True)
        return
    for member_id in decision.fenced:
        _remove(decision.changes, member_id)
    for regex in [regex for regex in group.regexes if regex not in group.regex_counts]:
        decision.changes.put(RecordType.REGEX, regex, None)
    _update_epoch(group, environment, decision, is_changed=True)


def _remove(changes: Changes, member_id: str) -> None:
    changes.put(RecordType.MEMBER_ASSIGNMENT, member_id, None)
    changes.put(RecordType.MEMBER_TARGET, member_id, None)
    changes.put(RecordType.MEMBER, member_id, None)
