"""`step(group, event, now) -> actions`: the only way in which a group changes.

The caller performs the actions in order and passes their results as further events.  Errors are results; an exception
is a bug.
"""

from __future__ import annotations

from typing import assert_never

from kctl.errors import ErrorCode
from kctl.server.coordination.consumer_groups.requests import HeartbeatRequest
from kctl.server.coordination.groups.actions import Action, Discard, GroupState, JoinOutcome, SyncOutcome
from kctl.server.coordination.groups.events import (
    AppendDone,
    AssignmentAppend,
    CommitAppend,
    CommitRequest,
    Continue,
    DecideOffsets,
    DeleteGroup,
    DeleteOffsets,
    EmptyAppend,
    Event,
    ExpireOffsets,
    ForgetTopics,
    GroupLoaded,
    Heartbeat,
    JoinRequest,
    LeaveRequest,
    NewerAppend,
    Now,
    RegexesResolved,
    ReplacementAppend,
    SyncRequest,
    TimerFired,
    TimerKind,
    TransactionalCommit,
    TransactionCompleted,
    Unload,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.rules import consumer_group, share_group, streams_group
from kctl.server.coordination.groups.rules.classic_members import classic_time_is_up
from kctl.server.coordination.groups.rules.committing import (
    commit,
    commit_in_transaction,
    commit_stored,
    decide_offsets,
    delete_group,
    delete_offsets,
    expire_offsets,
    forget_topics,
    transaction_completed,
)
from kctl.server.coordination.groups.rules.consumer_group import (
    hear_consumer,
    store_resolved,
)
from kctl.server.coordination.groups.rules.joining import assignment_stored, join, replacement_stored, sync
from kctl.server.coordination.groups.rules.liveness import heartbeat, leave, session_ended
from kctl.server.coordination.groups.rules.newer_group import (
    Rules,
    member_session_ended,
    newer_append_done,
    revocation_overdue,
    start_sessions,
)
from kctl.server.coordination.groups.rules.rebalance import (
    MemberSteps,
    continue_steps,
    expect_heartbeat,
    join_time_is_up,
    respond_to_join,
    respond_to_sync,
    start_rebalance_if_possible,
    step_through,
    sync_time_is_up,
)
from kctl.server.coordination.groups.rules.share_group import (
    begin_states,
    forget_states,
    hear_share_member,
    reset_states,
    store_initialized,
)
from kctl.server.coordination.groups.rules.streams_group import delay_ended, hear_streams_member
from kctl.server.coordination.replay import commit_error, group_error, heartbeat_error
from kctl.server.coordination.share_groups.requests import (
    ForgetStates,
    ResetStates,
    ShareHeartbeat,
    StatesInitialized,
)
from kctl.server.coordination.streams_groups.requests import StreamsHeartbeat

_RULES = {rules.new_group: rules for rules in (consumer_group.RULES, share_group.RULES, streams_group.RULES)}


def step(group: Group, event: Event, now: Now) -> list[Action]:
    """Update `group` for the event and return the actions to perform.

    While there is unfinished work, the only event is Continue.
    """
    out: list[Action] = []
    match event:
        case Heartbeat():
            heartbeat(group, event, now, out)
        case CommitRequest():
            commit(group, event, now, out)
        case TransactionalCommit():
            commit_in_transaction(group, event, out)
        case AppendDone():
            _append_done(group, event, now, out)
        case TimerFired():
            _timer_fired(group, event, now, out)
        case HeartbeatRequest():
            hear_consumer(group, event, now, out)
        case ShareHeartbeat():
            hear_share_member(group, event, now, out)
        case StreamsHeartbeat():
            hear_streams_member(group, event, now, out)
        case StatesInitialized():
            store_initialized(group, event, now, out)
        case ResetStates():
            reset_states(group, event, now, out)
        case ForgetStates():
            forget_states(group, event, now, out)
        case RegexesResolved():
            store_resolved(group, event, now, out)
        case JoinRequest():
            join(group, event, now, out)
        case SyncRequest():
            sync(group, event, now, out)
        case LeaveRequest():
            leave(group, event, now, out)
        case DeleteGroup():
            delete_group(group, event, now, out)
        case DeleteOffsets():
            delete_offsets(group, event, now, out)
        case ForgetTopics():
            forget_topics(group, event, now, out)
        case ExpireOffsets():
            expire_offsets(group, event, now, out)
        case TransactionCompleted():
            transaction_completed(group, event, out)
        case DecideOffsets():
            decide_offsets(group, out)
        case GroupLoaded():
            _loaded(group, now, out)
        case Continue():
            continue_steps(group, out)
        case Unload():
            _unload(group, now, out)
        case _:
            assert_never(event)
    return out


def _append_done(group: Group, event: AppendDone, now: Now, out: list[Action]) -> None:
    append = group.appends.pop(event.append_id)
    match append:
        case CommitAppend():
            commit_stored(group, append, commit_error(event.error), event.base_offset, out)
        case AssignmentAppend():
            assignment_stored(group, append, group_error(event.error), now, out)
        case ReplacementAppend():
            replacement_stored(group, append, group_error(event.error), now, out)
        case EmptyAppend():
            # Not stored: if it is restored, it has members that are gone, whose sessions expire again.
            pass
        case NewerAppend():
            newer_append_done(group, append, heartbeat_error(event.error), now, out, is_written=event.is_written)
            if append.initialize and event.error is ErrorCode.NONE:
                begin_states(group, append.initialize, out)
        case _:
            assert_never(append)


def _timer_fired(group: Group, event: TimerFired, now: Now, out: list[Action]) -> None:
    match event.key.kind:
        case TimerKind.SESSION:
            session_ended(group, event.key.member_id, now, out)
        case TimerKind.JOIN:
            join_time_is_up(group, now, out)
        case TimerKind.SYNC:
            sync_time_is_up(group, now, out)
        case TimerKind.MEMBER_SESSION:
            if (rules := _rules_of(group)) is not None:
                member_session_ended(group, rules, event.key.member_id, now, out)
        case TimerKind.REVOCATION:
            if (rules := _rules_of(group)) is not None:
                revocation_overdue(group, rules, event.key.member_id, now, out)
        case TimerKind.REJOIN | TimerKind.MEMBER_SYNC:
            classic_time_is_up(group, event.key, now, out)
        case TimerKind.FIRST_ASSIGNMENT:
            delay_ended(group, now, out)
        case _:
            assert_never(event.key.kind)


def _rules_of(group: Group) -> Rules | None:
    """Return the rules of a group of one of the newer types."""
    return None if group.newer is None else _RULES[type(group.newer)]


def _loaded(group: Group, now: Now, out: list[Action]) -> None:
    """Give members their session timeout to find the new coordinator; if there are too many, all have to join again.

    Members that sent a request already have their timer.
    """

    def work() -> MemberSteps:
        for member in list(group.members.values()):
            of_one: list[Action] = []
            if member.timer_due_ms is None:
                expect_heartbeat(member, member.session_timeout_ms, now, of_one)
            yield of_one

    if (rules := _rules_of(group)) is not None:
        start_sessions(group, rules, now, out)
    if group.is_over_capacity:
        start_rebalance_if_possible(group, now, out)
    step_through(group, len(group.members), work(), out)


def _unload(group: Group, now: Now, out: list[Action]) -> None:
    """Complete all parked requests with NOT_COORDINATOR."""
    group.transition_to(GroupState.DEAD, now)

    def work() -> MemberSteps:
        moved = ErrorCode.NOT_COORDINATOR
        for member in list(group.members.values()):
            of_one: list[Action] = []
            respond_to_join(group, member, JoinOutcome(error=moved, member_id=member.member_id), of_one)
            respond_to_sync(member, SyncOutcome(moved), of_one)
            yield of_one

    step_through(group, len(group.members), work(), out)
    out.append(Discard())
