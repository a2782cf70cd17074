"""SyncGroup: the leader's request carries the assignment, and each member gets its part."""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.server.groups.actions import Action, CancelTimer, Respond, SyncOutcome
from kctl.server.groups.events import SYNC_TIMER, Now, SyncRequest
from kctl.server.groups.group import Group
from kctl.server.groups.members import Member
from kctl.server.groups.pending_appends import AssignmentAppend
from kctl.server.groups.rebalance import (
    assignment_outcome,
    clear_assignments,
    give_assignments,
    persist_generation,
    respond_to_sync,
    start_rebalance_if_possible,
)
from kctl.server.groups.sessions import expect_heartbeat
from kctl.server.groups.states import GroupState


def sync(group: Group, event: SyncRequest, now: Now, out: list[Action]) -> None:
    """Parks the sync until the leader's assignment is stored, or completes it at once if the group is stable.

    A leader that syncs again while its assignment is being written may send another one, which must not be written
    after the one that members get.
    """
    error = _sync_error(group, event)
    if error is not ErrorCode.NONE:
        out.append(Respond(event.token, SyncOutcome(error)))
        return
    member = group.members[event.member_id]
    _has_synced(group, member, out)
    if group.state is GroupState.STABLE:
        out.append(Respond(event.token, assignment_outcome(group, member)))
        expect_heartbeat(member, member.session_timeout_ms, now, out)
        return
    # The member repeated its sync; the earlier one is completed, since its connection waits for a response.
    respond_to_sync(member, SyncOutcome(ErrorCode.REBALANCE_IN_PROGRESS), out)
    member.sync_token = event.token
    if group.leader == event.member_id and not group.is_storing_assignment:
        assignments = {member_id: event.assignments.get(member_id, b"") for member_id in group.members}
        persist_generation(group, AssignmentAppend(group.generation, assignments), assignments, out)


def assignment_stored(group: Group, append: AssignmentAppend, error: ErrorCode, now: Now, out: list[Action]) -> None:
    """The assignment was written or refused.  Another rebalance may have started in the meantime."""
    if group.state is not GroupState.COMPLETING_REBALANCE or append.generation != group.generation:
        return
    if error is ErrorCode.NONE:
        give_assignments(group, append.assignments, now, out)
    else:
        clear_assignments(group, error, now, out)
        start_rebalance_if_possible(group, now, out)


def _sync_error(group: Group, event: SyncRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.identity_error(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if event.protocol_type not in {None, group.protocol_type} or event.protocol_name not in {None, group.protocol_name}:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _has_synced(group: Group, member: Member, out: list[Action]) -> None:
    if member.member_id in group.pending_sync:
        group.pending_sync.remove(member.member_id)
        if not group.pending_sync:
            out.append(CancelTimer(SYNC_TIMER))
