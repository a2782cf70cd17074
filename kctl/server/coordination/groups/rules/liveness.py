"""Sessions of members: heartbeats, session timeouts, leaving."""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.server.coordination.groups.actions import Action, CancelTimer, GroupState, LeaveOutcome, Respond
from kctl.server.coordination.groups.events import UNKNOWN_MEMBER, Heartbeat, Leaver, LeaveRequest, Now
from kctl.server.coordination.groups.group import Group, Member
from kctl.server.coordination.groups.rules.classic_members import heartbeat_consumer_group, leave_consumer_group
from kctl.server.coordination.groups.rules.rebalance import (
    MemberSteps,
    complete_join_if_ready,
    expect_heartbeat,
    remove_member,
    session_timer,
    start_rebalance_if_possible,
    step_through,
)


def heartbeat(group: Group, event: Heartbeat, now: Now, out: list[Action]) -> None:
    """Extend the session; REBALANCE_IN_PROGRESS requests that the member joins again."""
    if group.consumer is not None and group.state is not GroupState.DEAD:
        heartbeat_consumer_group(group, event, now, out)
        return
    error = _heartbeat_error(group, event)
    if error in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
        member = group.members[event.member_id]
        expect_heartbeat(member, member.session_timeout_ms, now, out)
    out.append(Respond(event.token, error))


def leave(group: Group, event: LeaveRequest, now: Now, out: list[Action]) -> None:
    """Remove members; one error per leaver, in request order.  Kafka responds after the last one is removed."""
    if group.state is GroupState.DEAD:
        out.append(Respond(event.token, LeaveOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        return
    if group.consumer is not None:
        leave_consumer_group(group, event, now, out)
        return

    def work() -> MemberSteps:
        errors: list[ErrorCode] = []
        for leaver in event.leavers:
            of_one: list[Action] = []
            errors.append(_leave_one(group, leaver, now, of_one))
            yield of_one
        yield (Respond(event.token, LeaveOutcome(ErrorCode.NONE, tuple(errors))),)

    step_through(group, len(event.leavers), work(), out)


def session_ended(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Remove a member whose session timer fired, unless it sent a request since or has a parked one."""
    if member_id in group.pending_members:
        _remove_pending(group, member_id, now, out)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    member.timer_due_ms = None
    if member.is_parked:
        # Completing the parked request restarts the session.
        return
    if now.monotonic_ms < member.session_deadline_ms:
        expect_heartbeat(member, member.session_deadline_ms - now.monotonic_ms, now, out)
        return
    _remove(group, member, now, out)


def _heartbeat_error(group: Group, event: Heartbeat) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.identity_error(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    # Allowed in CompletingRebalance: consumers start heartbeats when the join is completed.
    return ErrorCode.NONE


def _leave_one(group: Group, leaver: Leaver, now: Now, out: list[Action]) -> ErrorCode:
    if leaver.member_id != UNKNOWN_MEMBER and group.is_fenced(leaver.member_id, leaver.group_instance_id):
        return ErrorCode.FENCED_INSTANCE_ID
    if leaver.member_id in group.pending_members:
        out.append(CancelTimer(session_timer(leaver.member_id)))
        _remove_pending(group, leaver.member_id, now, out)
        return ErrorCode.NONE
    member_id = leaver.member_id
    if leaver.group_instance_id is not None:
        member_id = group.static_members.get(leaver.group_instance_id, member_id)
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    _remove(group, member, now, out)
    return ErrorCode.NONE


def _remove(group: Group, member: Member, now: Now, out: list[Action]) -> None:
    remove_member(group, member, out)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_ready(group, now, out)
    else:
        start_rebalance_if_possible(group, now, out)


def _remove_pending(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Remove a member id with which no client has joined; the rebalance may have waited only for it."""
    group.remove_pending(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_ready(group, now, out)
