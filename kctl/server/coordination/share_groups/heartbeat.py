"""The heartbeat of a member of a share group: it joins, subscribes, is assigned partitions, and leaves.

1. The member is created or updated; if subscriptions, topics or the partitions with state have changed, the group's
   epoch increases.
2. If the group's epoch is larger than that of the target assignment, a new one is computed.
3. The member gets its target assignment.
4. Partitions of subscribed topics without state are given to the share coordinator to begin it.

The changes are applied at once; the caller writes them, and takes them back if the log refuses them.  Pure.  Kafka:
GroupMetadataManager.shareGroupHeartbeat, shareGroupLeave, shareGroupFenceMember.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.consumer_groups.topics import existing_ids, topics_hash
from kctl.server.coordination.newer_groups import (
    Changes,
    Decision,
    Environment,
    GroupEpoch,
    TargetEpoch,
    fenced_epoch,
    full_group,
    unknown_member,
)
from kctl.server.coordination.share_groups.assignor import Reader, assign_simply
from kctl.server.coordination.share_groups.group import (
    NamedPartitions,
    RecordType,
    ShareAssignment,
    ShareGroup,
    ShareMember,
    StatePartitions,
)
from kctl.server.coordination.share_groups.requests import (
    ShareGroupSettings,
    ShareHeartbeat,
    ShareOutcome,
    StateOfTopics,
)

GROUP_SUBSCRIPTIONS_MAX = bound(
    Subject.COORDINATION,
    "topics of all members of a share group, each counted for each of its members",
    20_000,
    "topics",
    on_excess="INVALID_REQUEST for the member that subscribes",
)
SHARE_PARTITIONS_OF_GROUP_MAX = bound(
    Subject.COORDINATION,
    "partitions of the topics to which a share group subscribes",
    5_000,
    "partitions",
    on_excess="INVALID_REQUEST for the member that subscribes; others are not assigned if topics have grown",
)


ShareEnvironment: TypeAlias = Environment[ShareGroupSettings]


@dataclass(slots=True)
class ShareDecision(Decision):
    """What follows from an event, besides its changes."""

    initialize: StateOfTopics = field(default_factory=dict)
    """What the share coordinator has to begin, after the changes are stored."""


class _Work:
    """A group that is changed, and the decision about it."""

    def __init__(self, group: ShareGroup, environment: ShareEnvironment) -> None:
        self.group = group
        self.environment = environment
        self.decision = ShareDecision(Changes(group))
        self.put = self.decision.changes.put


def hear(group: ShareGroup, request: ShareHeartbeat, environment: ShareEnvironment) -> ShareDecision:
    """Decide on a heartbeat.  Raises ApiError, and then nothing has changed."""
    work = _Work(group, environment)
    try:
        if request.is_leaving:
            _leave(work, request)
        else:
            _go_on(work, request)
    except ApiError:
        work.decision.changes.take_back()
        raise
    return work.decision


def fence(group: ShareGroup, member_ids: Iterable[str], environment: ShareEnvironment) -> ShareDecision:
    """Remove members; the group's epoch increases."""
    work = _Work(group, environment)
    work.decision.fenced = tuple(member_ids)
    _fence(work)
    return work.decision


def set_partitions(group: ShareGroup, partitions: StatePartitions, environment: ShareEnvironment) -> ShareDecision:
    """Store which partitions have state; the next heartbeat assigns them."""
    work = _Work(group, environment)
    if partitions != group.partitions:
        work.put(RecordType.PARTITIONS, "", partitions)
    return work.decision


def reset(group: ShareGroup, topics: StateOfTopics, environment: ShareEnvironment) -> ShareDecision:
    """Note that states begin anew, with the epoch of the group as their epoch."""
    work = _Work(group, environment)
    work.put(RecordType.PARTITIONS, "", group.partitions.with_initializing(topics))
    return work.decision


def _leave(work: _Work, request: ShareHeartbeat) -> None:
    group_id = work.environment.group_id
    if request.member_id not in work.group.members:
        raise unknown_member(request.member_id, group_id)
    work.decision.fenced = (request.member_id,)
    _fence(work)
    work.decision.outcome = ShareOutcome(member_id=request.member_id, member_epoch=request.member_epoch)


def _fence(work: _Work) -> None:
    for member_id in work.decision.fenced:
        work.put(RecordType.MEMBER_ASSIGNMENT, member_id, None)
        work.put(RecordType.MEMBER_TARGET, member_id, None)
        work.put(RecordType.MEMBER, member_id, None)
    _update_epoch(work, is_changed=True)


def _go_on(work: _Work, request: ShareHeartbeat) -> None:
    group, environment, member_id = work.group, work.environment, request.member_id
    before = group.members.get(member_id)
    if before is None:
        _check_new(group, request, environment)
    _check_epoch(group.assignment(member_id), request)
    old = before or ShareMember()
    updated = ShareMember(
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=old.topic_names if request.topic_names is None else frozenset(request.topic_names),
    )
    if updated != before:
        work.put(RecordType.MEMBER, member_id, updated)
    has_changed = updated.topic_names != old.topic_names
    if has_changed or group.settled != (environment.topics.topics_version, group.epoch.epoch, group.partitions):
        _follow_topics(work, has_changed=has_changed)
    assigned_before = group.assignment(member_id)
    _reconcile(work, member_id)
    assignment = group.assignment(member_id)
    is_full = request.is_joining or request.topic_names is not None
    has_other = assignment.partitions != assigned_before.partitions
    work.decision.member_id = member_id
    work.decision.outcome = ShareOutcome(
        member_id=member_id,
        member_epoch=assignment.epoch,
        heartbeat_interval_ms=environment.settings.heartbeat_interval_ms,
        assignment=assignment.partitions if is_full or has_other else None,
    )


def _follow_topics(work: _Work, *, has_changed: bool) -> None:
    """Follow changes of subscriptions, topics and partitions with state, up to the target assignment."""
    group, environment = work.group, work.environment
    if has_changed and sum(group.topic_counts.values()) > GROUP_SUBSCRIPTIONS_MAX:
        message = f"the members of a share group subscribe to at most {GROUP_SUBSCRIPTIONS_MAX} topics in all"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    wanted = _wanted(group, environment, is_refused=has_changed)
    ready = _ready(group, wanted)
    is_pending = not _covers(group.targets.values(), ready)
    if has_changed or is_pending or group.checked_version != environment.topics.topics_version:
        _update_epoch(work, is_changed=has_changed or is_pending)
    _update_target(work, ready)
    has_begun = _begin_states(work, wanted)
    group.settled = None
    if group.target.epoch == group.epoch.epoch and has_begun:
        group.settled = environment.topics.topics_version, group.epoch.epoch, group.partitions


def _check_new(group: ShareGroup, request: ShareHeartbeat, environment: ShareEnvironment) -> None:
    if not request.is_joining:
        raise unknown_member(request.member_id, environment.group_id)
    if len(group.members) >= environment.settings.max_size:
        raise full_group("share", environment.settings.max_size)


def _check_epoch(assignment: ShareAssignment, request: ShareHeartbeat) -> None:
    received, known = request.member_epoch, assignment.epoch
    if received in {0, known} or received == assignment.previous_epoch:
        return
    raise fenced_epoch("share", received, known)


def _wanted(group: ShareGroup, environment: ShareEnvironment, *, is_refused: bool) -> dict[UUID, NamedPartitions]:
    """Return all partitions of the topics to which members subscribe."""
    names = existing_ids(group.topic_counts, environment.topics)
    wanted: dict[UUID, NamedPartitions] = {}
    left = SHARE_PARTITIONS_OF_GROUP_MAX
    for name, topic_id in sorted(names.items()):
        count = environment.topics.partition_count(name) or 0
        if count > left:
            if is_refused:
                message = f"the topics of a share group have at most {SHARE_PARTITIONS_OF_GROUP_MAX} partitions"
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            break
        left -= count
        wanted[topic_id] = NamedPartitions(name, frozenset(range(count)))
    return wanted


def _ready(group: ShareGroup, wanted: StateOfTopics) -> dict[UUID, frozenset[int]]:
    """Return the partitions with state."""
    ready = {}
    for topic_id, (_, numbers) in wanted.items():
        known = group.partitions.initialized.get(topic_id)
        if known is not None and numbers & known.numbers:
            ready[topic_id] = numbers & known.numbers
    return ready


def _covers(targets: Iterable[Partitions], ready: Partitions) -> bool:
    """Return whether each of these partitions is assigned."""
    assigned: dict[UUID, set[int]] = {}
    for target in targets:
        for topic_id, numbers in target.items():
            assigned.setdefault(topic_id, set()).update(numbers)
    return all(numbers <= assigned.get(topic_id, set()) for topic_id, numbers in ready.items())


def _update_epoch(work: _Work, *, is_changed: bool) -> None:
    group, topics = work.group, work.environment.topics
    metadata_hash = topics_hash(group.topic_counts, topics)
    group.checked_version = topics.topics_version
    if is_changed or metadata_hash != group.epoch.metadata_hash:
        work.put(RecordType.GROUP, "", GroupEpoch(group.epoch.epoch + 1, metadata_hash))


def _update_target(work: _Work, ready: Partitions) -> None:
    group, environment = work.group, work.environment
    epoch, target = group.epoch.epoch, group.target
    interval_ms = environment.settings.assignment_interval_ms
    is_early = target.timestamp_ms and environment.wall_ms - target.timestamp_ms < interval_ms
    if epoch <= target.epoch or is_early:
        return
    ids = existing_ids(group.topic_counts, environment.topics)
    readers = [
        Reader(
            member_id,
            frozenset(ids[name] for name in member.topic_names if name in ids),
            group.targets.get(member_id, {}),
        )
        for member_id, member in group.members.items()
    ]
    for member_id, assigned in assign_simply(readers, ready).items():
        if group.targets.get(member_id) != assigned:
            work.put(RecordType.MEMBER_TARGET, member_id, assigned)
    work.put(RecordType.TARGET, "", TargetEpoch(epoch, environment.wall_ms))


def _reconcile(work: _Work, member_id: str) -> None:
    group = work.group
    current = group.assignment(member_id)
    names = group.members[member_id].topic_names
    ids = set(existing_ids(names, work.environment.topics).values())
    target = group.targets.get(member_id, {})
    partitions = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in ids}
    if current.epoch != group.target.epoch or current.partitions != partitions:
        new = ShareAssignment(group.target.epoch, current.epoch, partitions)
        work.put(RecordType.MEMBER_ASSIGNMENT, member_id, new)


def _begin_states(work: _Work, wanted: StateOfTopics) -> bool:
    """Let states begin that are missing; return whether there are none."""
    group = work.group
    missing: dict[UUID, NamedPartitions] = {}
    for topic_id, (name, numbers) in wanted.items():
        known = group.partitions.initialized.get(topic_id)
        rest = numbers if known is None else numbers - known.numbers
        if rest:
            missing[topic_id] = NamedPartitions(name, rest)
    if not missing or group.is_initializing:
        return not missing
    partitions = group.partitions.with_initializing(missing)
    if partitions != group.partitions:
        work.put(RecordType.PARTITIONS, "", partitions)
    work.decision.initialize = missing
    return False
