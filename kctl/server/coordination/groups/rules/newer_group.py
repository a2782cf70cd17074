"""A group of one of the newer types as a part of `Group`, which has its offsets: appends, sessions, revocation.

What a heartbeat changes is applied at once and written as one batch.  Its response waits until the batch is replicated,
as does the response to a heartbeat that changes nothing but sees what is not replicated yet.  If the log refuses the
batch, the changes are taken back; if nobody knows what becomes of it, memory and log have it both.

A group id has one type.  A group without members becomes one of another type when a member of that joins, and keeps its
offsets: from classic to consumer or streams, and back.  Between classic and consumer a group is converted with its
members, see conversion.  What differs between the types is in `Rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    GroupSnapshot,
    GroupState,
    PersistNewerGroup,
    Respond,
    ScheduleTimer,
)
from kctl.server.coordination.groups.events import MemberEvent, NewerAppend, Now, TimerKey, TimerKind, Token
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.rules.conversion import Revert, become_classic, set_classic_aside
from kctl.server.coordination.newer_groups import (
    BecomesClassic,
    Change,
    Changes,
    Decision,
    Environment,
    MemberState,
    RevocationTimer,
)

RETRY_MS = 500
"""After the log has refused the removal of a member whose time is up.  Kafka: CoordinatorTimer."""


class Rules(NamedTuple):
    """The rules of one type of group; each function decides and performs nothing."""

    new_group: type[Any]
    outcome: type[Any]
    """The result of a heartbeat."""
    create: Callable[[Group, Any], Changes]
    """Returns the group that the member creates, with the changes that make it if it was a classic one with members.

    Raises ApiError(GROUP_ID_NOT_FOUND) if the group is of another type, or the member does not join.
    """
    hear: Callable[[Any, Any, Any], Decision]
    """Decides on a heartbeat.  Raises ApiError, and then nothing has changed."""
    fence: Callable[[Any, Iterable[str], Any], Decision]
    """Removes members; the group's epoch increases."""
    settings: Callable[[Group], Any]

    def environment(self, group: Group, now: Now) -> Environment[Any]:
        """Return what decisions depend on besides the group."""
        return Environment(group.group_id, self.settings(group), group.topics, now.wall_ms)


def hear_member(group: Group, rules: Rules, event: MemberEvent, now: Now, out: list[Action]) -> Decision | None:
    """Process a heartbeat of a member, which may create or convert the group; return None if it is refused."""
    if group.state is GroupState.DEAD:
        out.append(Respond(event.token, rules.outcome(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        return None
    newer, created = group.newer, None
    try:
        if not isinstance(newer, rules.new_group):
            created = rules.create(group, event)
            newer = created.group
        decision = rules.hear(newer, event, rules.environment(group, now))
    except ApiError as error:
        out.append(Respond(event.token, rules.outcome(error=error.code, message=error.message)))
        return None
    perform(group, rules, decision, now, out, token=event.token, created=created)
    return decision


def perform(
    group: Group,
    rules: Rules,
    decision: Decision,
    now: Now,
    out: list[Action],
    *,
    token: Token | None = None,
    created: Changes | None = None,
) -> None:
    """Write the changes, respond when they are replicated, and start and stop timers.

    `created` is the group if there was none of this type, with the changes that come before.
    """
    changes, outcome = decision.changes, decision.outcome
    waiting = [(token, outcome)] if outcome is not None else []
    earlier: list[Change] = []
    deletes_classic, classic, revert = False, None, None
    if created is not None:
        earlier, deletes_classic = created.made, group.generation > 0
        revert = _become_newer(group, rules, created, now, out)
    elif decision.becomes_classic is not None:
        classic, revert = _become_classic(group, rules, decision, decision.becomes_classic, now, out)
    if made := (*earlier, *changes.made):
        append_id = group.add_pending_append(NewerAppend(changes, waiting, decision.fenced, revert=revert))
        group.last_newer_append = append_id
        out.append(PersistNewerGroup(append_id, made, deletes_classic, classic))
    elif isinstance(last := group.appends.get(group.last_newer_append), NewerAppend):
        last.waiting.extend(waiting)
    else:
        out += [Respond(token, outcome) for token, outcome in waiting]
    for member_id in decision.fenced:
        group.sessions.pop(member_id, None)
        group.revocation_epochs.pop(member_id, None)
        out += [CancelTimer(_session(member_id)), CancelTimer(_revocation(member_id))]
        for kind in (TimerKind.REJOIN, TimerKind.MEMBER_SYNC):
            stop_classic_timer(group, TimerKey(kind, member_id), out)
    if decision.member_id is not None:
        _expect_heartbeat(group, rules, decision.member_id, now, out)
    if decision.revocation is not None:
        _set_revocation_timer(group, decision.revocation, out)


def _become_newer(group: Group, rules: Rules, created: Changes, now: Now, out: list[Action]) -> Revert:
    """Become a group of another type, with the members of the classic group, if it had any."""
    put_back = set_classic_aside(group, now, out)
    group.newer = created.group
    for member_id in created.group.members:
        _expect_heartbeat(group, rules, member_id, now, out)

    def revert(now: Now, out: list[Action]) -> None:
        _stop_timers(group, out)
        group.newer = None
        put_back(now, out)

    return revert


def _become_classic(
    group: Group, rules: Rules, decision: Decision, end: BecomesClassic, now: Now, out: list[Action]
) -> tuple[GroupSnapshot, Revert]:
    _stop_timers(group, out)
    snapshot, put_back = become_classic(group, end, decision.changes, decision.fenced, now, out)

    def revert(now: Now, out: list[Action]) -> None:
        put_back(now, out)
        start_sessions(group, rules, now, out)

    return snapshot, revert


def _stop_timers(group: Group, out: list[Action]) -> None:
    """Stop the timers of all members of a group that becomes one of another type."""
    out += [CancelTimer(_session(member_id)) for member_id in group.sessions]
    out += [CancelTimer(_revocation(member_id)) for member_id in group.revocation_epochs]
    group.sessions.clear()
    group.revocation_epochs.clear()
    for key in sorted(group.classic_timers):
        stop_classic_timer(group, key, out)


def stop_classic_timer(group: Group, key: TimerKey, out: list[Action]) -> None:
    """Stop a timer of a member of the classic protocol, if it runs."""
    if key in group.classic_timers:
        group.classic_timers.remove(key)
        out.append(CancelTimer(key))


def _session(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.MEMBER_SESSION, member_id)


def _revocation(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REVOCATION, member_id)


def _expect_heartbeat(group: Group, rules: Rules, member_id: str, now: Now, out: list[Action]) -> None:
    """Move the deadline; the timer, once started, checks it when it fires."""
    timeout_ms: int = rules.settings(group).session_timeout_ms
    consumer = group.consumer
    if consumer is not None and member_id in consumer.members:
        classic = consumer.members[member_id].classic
        timeout_ms = timeout_ms if classic is None else classic.session_timeout_ms
    deadline_ms = now.monotonic_ms + timeout_ms
    if group.sessions.get(member_id, deadline_ms + 1) > deadline_ms:
        out.append(ScheduleTimer(_session(member_id), timeout_ms))
    group.sessions[member_id] = deadline_ms


def _set_revocation_timer(group: Group, timer: RevocationTimer, out: list[Action]) -> None:
    if timer.timeout_ms is None:
        if group.revocation_epochs.pop(timer.member_id, None) is not None:
            out.append(CancelTimer(_revocation(timer.member_id)))
        return
    group.revocation_epochs[timer.member_id] = timer.epoch
    out.append(ScheduleTimer(_revocation(timer.member_id), max(timer.timeout_ms, 0)))


def newer_append_done(
    group: Group, append: NewerAppend, error: ErrorCode, now: Now, out: list[Action], *, is_written: bool
) -> None:
    """Respond to the requests that waited; take changes back that the log has refused."""
    if error is not ErrorCode.NONE and not is_written and group.state is not GroupState.DEAD:
        append.changes.take_back()
        if append.revert is not None:
            append.revert(now, out)
        for member_id in append.fenced:
            if group.newer is not None and member_id in group.newer.members:
                group.sessions[member_id] = 0
                out.append(ScheduleTimer(_session(member_id), RETRY_MS))
                # A heartbeat ends the wait of the first timer, but not that of the second.
                _expect_revocation(group, member_id, RETRY_MS, out)
    for token, outcome in append.waiting:
        out.append(Respond(token, outcome if error is ErrorCode.NONE else _failed(outcome, error)))


def _failed(outcome: Any, error: ErrorCode) -> Any:
    return error if isinstance(outcome, ErrorCode) else type(outcome)(error=error)


def _expect_revocation(group: Group, member_id: str, timeout_ms: int, out: list[Action]) -> None:
    """Start the timer of a member that has to revoke, but for one of the classic protocol."""
    reconciled = group.reconciled
    if group.consumer is not None and group.consumer.is_classic(member_id):
        return
    if reconciled is not None and reconciled.assignment(member_id).state is MemberState.UNREVOKED:
        timer = RevocationTimer(member_id, reconciled.assignment(member_id).epoch, timeout_ms)
        _set_revocation_timer(group, timer, out)


def member_session_ended(group: Group, rules: Rules, member_id: str, now: Now, out: list[Action]) -> None:
    """Fence a member whose session timer fired, unless it has sent a heartbeat since."""
    deadline_ms = group.sessions.pop(member_id, None)
    if deadline_ms is None or group.newer is None or member_id not in group.newer.members:
        return
    if now.monotonic_ms < deadline_ms:
        group.sessions[member_id] = deadline_ms
        out.append(ScheduleTimer(_session(member_id), deadline_ms - now.monotonic_ms))
        return
    fence_members(group, rules, (member_id,), now, out)


def fence_members(group: Group, rules: Rules, member_ids: Iterable[str], now: Now, out: list[Action]) -> None:
    """Remove members."""
    perform(group, rules, rules.fence(group.newer, member_ids, rules.environment(group, now)), now, out)


def revocation_overdue(group: Group, rules: Rules, member_id: str, now: Now, out: list[Action]) -> None:
    """Fence a member that has not revoked in time, unless it has gone on to another epoch."""
    epoch = group.revocation_epochs.pop(member_id, None)
    reconciled = group.reconciled
    if reconciled is None or member_id not in reconciled.members:
        return
    assignment = reconciled.assignment(member_id)
    # The log may have refused the change for which the timer was started.
    if assignment.epoch == epoch and assignment.state is MemberState.UNREVOKED:
        fence_members(group, rules, (member_id,), now, out)


def start_sessions(group: Group, rules: Rules, now: Now, out: list[Action]) -> None:
    """Give members of a loaded group their session timeout to find the new coordinator, and time to revoke."""
    assert group.newer is not None
    for member_id in group.newer.members:
        if member_id not in group.sessions:
            _expect_heartbeat(group, rules, member_id, now, out)
    reconciled = group.reconciled
    if reconciled is None:
        return
    for member_id, member in reconciled.members.items():
        if member_id not in group.revocation_epochs:
            _expect_revocation(group, member_id, member.rebalance_timeout_ms, out)


def become_empty_classic(group: Group, out: list[Action]) -> bool:
    """Convert a group without members, since a member of the classic protocol joins; return False if it cannot be."""
    newer = group.reconciled
    if newer is None or newer.members:
        return False
    tombstones = newer.tombstones()
    group.newer = None
    if tombstones:
        append_id = group.add_pending_append(NewerAppend(Changes(newer), []))
        out.append(PersistNewerGroup(append_id, tuple(tombstones)))
    return True
