"""A group of the consumer protocol as a part of `Group`, which has its offsets: appends, timers, conversions.

What a heartbeat changes is applied at once and written as one batch.  Its response waits until the batch is replicated,
as does the response to a heartbeat that changes nothing but sees what is not replicated yet.  If the log refuses the
batch, the changes are taken back; if nobody knows what becomes of it, memory and log have it both.

A group id has one type.  A group without members becomes one of the other type when a member of that type joins, and
keeps its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.consumer_groups.group import Changes, ConsumerGroup
from kctl.server.coordination.consumer_groups.heartbeat import (
    Decision,
    Environment,
    RevocationTimer,
    fence,
    hear,
    regexes_resolved,
)
from kctl.server.coordination.consumer_groups.requests import HeartbeatOutcome, HeartbeatRequest
from kctl.server.coordination.consumer_groups.state import Change, MemberState
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    GroupState,
    PersistConsumerGroup,
    ResolveRegexes,
    Respond,
    ScheduleTimer,
)
from kctl.server.coordination.groups.events import ConsumerAppend, Now, RegexesResolved, TimerKey, TimerKind, Token
from kctl.server.coordination.groups.group import Group

RETRY_MS = 500
"""After the log has refused the removal of a member whose time is up.  Kafka: CoordinatorTimer."""


def hear_member(group: Group, event: HeartbeatRequest, now: Now, out: list[Action]) -> None:
    """Process a heartbeat of a member, which may create the group or convert it."""
    if group.state is GroupState.DEAD:
        _refuse(event.token, ErrorCode.COORDINATOR_NOT_AVAILABLE, None, out)
        return
    created = None
    try:
        consumer = group.consumer
        if consumer is None:
            _check_convertible(group, event)
            consumer = created = group.consumer = ConsumerGroup()
        decision = hear(consumer, event, _environment(group, now))
    except ApiError as error:
        if created is not None:
            group.consumer = None
        _refuse(event.token, error.code, error.message, out)
        return
    _perform(group, decision, now, out, token=event.token, is_created=created is not None)
    if decision.needs_resolution:
        consumer.is_resolving = True
        out.append(ResolveRegexes(tuple(consumer.regex_counts), event.denied))


def _check_convertible(group: Group, event: HeartbeatRequest) -> None:
    """Raise ApiError(GROUP_ID_NOT_FOUND) unless the member creates the group, or converts one without members."""
    if group.share is not None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    if not event.is_joining and group.protocol_type is None and not group.members:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group.group_id} not found.")
    if not event.is_joining:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    if group.state is not GroupState.EMPTY or group.members or group.pending_members:
        what = f"Cannot upgrade classic group {group.group_id} to consumer group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} because online upgrade is disabled.")


def _environment(group: Group, now: Now) -> Environment:
    return Environment(group.group_id, group.config.consumer, group.topics, now.wall_ms)


def _refuse(token: Token, code: ErrorCode, message: str | None, out: list[Action]) -> None:
    out.append(Respond(token, HeartbeatOutcome(error=code, message=message)))


def _perform(
    group: Group,
    decision: Decision,
    now: Now,
    out: list[Action],
    *,
    token: Token | None = None,
    is_created: bool = False,
) -> None:
    """Write the changes, respond when they are replicated, and start and stop timers."""
    changes, outcome = decision.changes, decision.outcome
    waiting = [(token, outcome)] if outcome is not None else []
    if changes.made:
        deletes_classic = is_created and group.generation > 0
        append = ConsumerAppend(changes, waiting, decision.fenced, is_created=is_created)
        append_id = group.last_consumer_append = group.add_pending_append(append)
        out.append(PersistConsumerGroup(append_id, tuple(changes.made), deletes_classic))
    elif isinstance(last := group.appends.get(group.last_consumer_append), ConsumerAppend):
        last.waiting.extend(waiting)
    else:
        out += [Respond(token, outcome) for token, outcome in waiting]
    for member_id in decision.fenced:
        group.sessions.pop(member_id, None)
        group.revocation_epochs.pop(member_id, None)
        out += [CancelTimer(_session(member_id)), CancelTimer(_revocation(member_id))]
    if decision.member_id is not None:
        _expect_heartbeat(group, decision.member_id, now, out)
    if decision.revocation is not None:
        _set_revocation_timer(group, decision.revocation, out)


def _session(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.CONSUMER_SESSION, member_id)


def _revocation(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REVOCATION, member_id)


def _expect_heartbeat(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Move the deadline; the timer, once started, checks it when it fires."""
    timeout_ms = group.config.consumer.session_timeout_ms
    if member_id not in group.sessions:
        out.append(ScheduleTimer(_session(member_id), timeout_ms))
    group.sessions[member_id] = now.monotonic_ms + timeout_ms


def _set_revocation_timer(group: Group, timer: RevocationTimer, out: list[Action]) -> None:
    if timer.timeout_ms is None:
        if group.revocation_epochs.pop(timer.member_id, None) is not None:
            out.append(CancelTimer(_revocation(timer.member_id)))
        return
    group.revocation_epochs[timer.member_id] = timer.epoch
    out.append(ScheduleTimer(_revocation(timer.member_id), max(timer.timeout_ms, 0)))


def consumer_append_done(
    group: Group, append: ConsumerAppend, error: ErrorCode, out: list[Action], *, is_written: bool
) -> None:
    """Respond to the heartbeats that waited; take changes back that the log has refused."""
    if append.is_created and error is ErrorCode.NONE:
        group.forget_classic()
    if error is not ErrorCode.NONE and not is_written and group.state is not GroupState.DEAD:
        append.changes.take_back()
        if append.is_created:
            group.consumer = None
        for member_id in append.fenced:
            if group.consumer is not None and member_id in group.consumer.members:
                group.sessions[member_id] = 0
                out.append(ScheduleTimer(_session(member_id), RETRY_MS))
    for token, outcome in append.waiting:
        out.append(Respond(token, outcome if error is ErrorCode.NONE else HeartbeatOutcome(error=error)))


def consumer_session_ended(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Fence a member whose session timer fired, unless it has sent a heartbeat since."""
    deadline_ms = group.sessions.pop(member_id, None)
    if deadline_ms is None or group.consumer is None or member_id not in group.consumer.members:
        return
    if now.monotonic_ms < deadline_ms:
        group.sessions[member_id] = deadline_ms
        out.append(ScheduleTimer(_session(member_id), deadline_ms - now.monotonic_ms))
        return
    _perform(group, fence(group.consumer, (member_id,), _environment(group, now)), now, out)


def revocation_overdue(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Fence a member that has not revoked in time, unless it has gone on to another epoch."""
    epoch = group.revocation_epochs.pop(member_id, None)
    consumer = group.consumer
    if consumer is None or member_id not in consumer.members:
        return
    assignment = consumer.assignment(member_id)
    # The log may have refused the change for which the timer was started.
    if assignment.epoch != epoch or assignment.state is not MemberState.UNREVOKED_PARTITIONS:
        return
    _perform(group, fence(consumer, (member_id,), _environment(group, now)), now, out)


def store_resolved(group: Group, event: RegexesResolved, now: Now, out: list[Action]) -> None:
    """Store the topics that match the regular expressions of the group."""
    consumer = group.consumer
    if consumer is None or group.state is GroupState.DEAD:
        return
    consumer.is_resolving = False
    _perform(group, regexes_resolved(consumer, event.matching, event.version, _environment(group, now)), now, out)


def remove_static(group: Group, instance_ids: Iterable[str], now: Now, out: list[Action]) -> None:
    """Fence static members that an administrator removes by LeaveGroup."""
    assert group.consumer is not None
    member_ids = [group.consumer.static_members[instance_id] for instance_id in instance_ids]
    if member_ids:
        _perform(group, fence(group.consumer, member_ids, _environment(group, now)), now, out)


def start_sessions(group: Group, now: Now, out: list[Action]) -> None:
    """Give members of a loaded group their session timeout to find the new coordinator, and time to revoke."""
    consumer = group.consumer
    if consumer is None:
        return
    for member_id, member in consumer.members.items():
        if member_id not in group.sessions:
            _expect_heartbeat(group, member_id, now, out)
        assignment = consumer.assignment(member_id)
        if assignment.state is MemberState.UNREVOKED_PARTITIONS and member_id not in group.revocation_epochs:
            timer = RevocationTimer(member_id, assignment.epoch, member.rebalance_timeout_ms)
            _set_revocation_timer(group, timer, out)


def become_classic(group: Group, out: list[Action]) -> None:
    """Convert a group without members, since a member of the classic protocol joins."""
    assert group.consumer is not None
    assert group.consumer.is_empty
    tombstones = group.consumer.tombstones()
    group.consumer = None
    if tombstones:
        changes = Changes(ConsumerGroup())
        append_id = group.add_pending_append(ConsumerAppend(changes, [], ()))
        out.append(PersistConsumerGroup(append_id, tuple(tombstones), deletes_classic=False))


def tombstones_of(group: Group) -> tuple[Change, ...]:
    """Return what deletes the records of a group of the consumer protocol; nothing for a classic group."""
    return () if group.consumer is None else tuple(group.consumer.tombstones())
