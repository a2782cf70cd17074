"""JoinGroup and SyncGroup: which members may join, which wait, and which get the current generation."""

from __future__ import annotations

from dataclasses import replace

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    GroupState,
    JoinOutcome,
    Respond,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.coordination.groups.events import (
    SYNC_TIMER,
    UNKNOWN_MEMBER,
    AssignmentAppend,
    JoinRequest,
    Now,
    ReplacementAppend,
    SyncRequest,
)
from kctl.server.coordination.groups.group import Group, Member
from kctl.server.coordination.groups.rules.classic_members import join_consumer_group, sync_consumer_group
from kctl.server.coordination.groups.rules.newer_group import become_empty_classic
from kctl.server.coordination.groups.rules.rebalance import (
    assignment_outcome,
    clear_assignments,
    complete_join_if_ready,
    expect_heartbeat,
    forget_session,
    generation_outcome,
    give_assignments,
    persist_generation,
    respond_to_join,
    respond_to_sync,
    session_timer,
    start_rebalance,
    start_rebalance_if_possible,
)

GROUP_MEMBERS_MAX = bound(
    Subject.COORDINATION,
    "members of one group, static members and members that have only received their id included",
    10_000,
    "members",
    on_excess="GROUP_MAX_SIZE_REACHED",
)


# JoinGroup: which members may join, which wait for a rebalance, and which get the current generation at once.


NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""A client that has given up on its first join cannot be distinguished from one that waits, so its membership is
limited in time.
"""


def join(group: Group, event: JoinRequest, now: Now, out: list[Action]) -> None:
    """Add, update or refuse a member.  Kafka: GroupCoordinator.handleJoinGroup."""
    if group.consumer is not None and group.consumer.members and group.state is not GroupState.DEAD:
        join_consumer_group(group, event, now, out)
        return
    if group.newer is not None and group.state is not GroupState.DEAD and not become_empty_classic(group, out):
        _refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id, out)
        return
    if not _has_room_for(group, event.member_id):
        if event.member_id in group.members or event.member_id in group.pending_members:
            out.append(CancelTimer(session_timer(event.member_id)))
        # A refused member does not stay in the group, which would wait for it.
        group.remove(event.member_id)
        _refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER, out)
    elif group.state is GroupState.DEAD:
        _refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, event.member_id, out)
    elif not group.supports(event.protocol_type, event.protocols):
        _refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id, out)
    elif event.member_id == UNKNOWN_MEMBER:
        _join_without_id(group, event, now, out)
    else:
        _join_with_id(group, event, now, out)
    # Whatever the outcome: the group may have waited for this member only, which has joined or was removed.
    complete_join_if_ready(group, now, out)


def replacement_stored(group: Group, append: ReplacementAppend, error: ErrorCode, now: Now, out: list[Action]) -> None:
    """Complete the replacement of a static member's id, which was written to the log, or was refused and is reverted.

    The response names the old leader on purpose: a member that finds itself named as leader would compute an
    assignment, and a stable group does not use it (KIP-345; skip_assignment exists from JoinGroup v9 only).
    """
    if error is not ErrorCode.NONE:
        _skip_refused(group, append)
    member = group.members.get(append.new_member_id)
    # The member was removed, or it has joined again: only its latest request is answered with a generation.
    if member is None or member.join_token is not append.token:
        return
    if error is ErrorCode.NONE:
        outcome = JoinOutcome(
            member_id=append.new_member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=append.leader_before,
        )
        respond_to_join(group, member, outcome, out)
        expect_heartbeat(member, member.session_timeout_ms, now, out)
        return
    outcome = JoinOutcome(
        error=error,
        member_id=UNKNOWN_MEMBER,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=append.leader_before,
    )
    respond_to_join(group, member, outcome, out)
    group.set_protocols(member, append.old_protocols)
    forget_session(member, out)
    group.replace_static(append.new_member_id, append.old_member_id)
    expect_heartbeat(member, member.session_timeout_ms, now, out)


def _skip_refused(group: Group, refused: ReplacementAppend) -> None:
    """Update a later replacement of the same instance: if it is refused too, the id in the log is the first one."""
    for append_id, later in group.appends.items():
        if isinstance(later, ReplacementAppend) and later.old_member_id == refused.new_member_id:
            before = replace(later, old_member_id=refused.old_member_id, old_protocols=refused.old_protocols)
            group.appends[append_id] = before


def _has_room_for(group: Group, member_id: str) -> bool:
    """group.max.size limits members, or parked joins while a rebalance is prepared (KIP-389).

    GROUP_MEMBERS_MAX limits members and pending members in every state: each uses memory until its session ends.
    """
    member = group.members.get(member_id)
    is_known = member is not None or member_id in group.pending_members
    if not is_known and len(group.members) + len(group.pending_members) >= GROUP_MEMBERS_MAX:
        return False
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            return (member is not None and member.is_joining) or group.joining_count < group.config.group_max_size
        case _:
            return member is not None or len(group.members) < group.config.group_max_size


def _join_without_id(group: Group, event: JoinRequest, now: Now, out: list[Action]) -> None:
    if event.group_instance_id is not None and event.group_instance_id in group.static_members:
        _replace_static(group, event, event.group_instance_id, now, out)
    elif event.requires_known_member_id:
        group.add_pending(event.fresh_member_id)
        out.append(ScheduleTimer(session_timer(event.fresh_member_id), event.session_timeout_ms))
        _refuse(event, ErrorCode.MEMBER_ID_REQUIRED, event.fresh_member_id, out)
    else:
        _admit(group, event, event.fresh_member_id, now, out)


def _join_with_id(group: Group, event: JoinRequest, now: Now, out: list[Action]) -> None:
    if event.member_id in group.pending_members and event.group_instance_id is None:
        _admit(group, event, event.member_id, now, out)
        return
    error = group.identity_error(event.member_id, event.group_instance_id)
    if error is ErrorCode.NONE and _names_unknown_instance(group, event):
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error is not ErrorCode.NONE:
        _refuse(event, error, event.member_id, out)
        return
    member = group.members[event.member_id]
    if _may_keep_generation(group, member, event):
        _complete_earlier_join(group, member, out)
        out.append(Respond(event.token, generation_outcome(group, member)))
        expect_heartbeat(member, member.session_timeout_ms, now, out)
        return
    _update(group, member, event, out)
    start_rebalance_if_possible(group, now, out)


def _names_unknown_instance(group: Group, event: JoinRequest) -> bool:
    return event.group_instance_id is not None and event.group_instance_id not in group.static_members


def _may_keep_generation(group: Group, member: Member, event: JoinRequest) -> bool:
    """Return whether the member repeats its request because the response was lost, and nothing else changed.

    A leader of a stable group that joins requests a new assignment, for example because partitions were added.
    """
    if member.protocols != event.protocols:
        return False
    if group.state is GroupState.COMPLETING_REBALANCE:
        return True
    return group.state is GroupState.STABLE and group.leader != member.member_id


def _admit(group: Group, event: JoinRequest, member_id: str, now: Now, out: list[Action]) -> None:
    member = Member(
        member_id=member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        protocols=event.protocols,
        join_token=event.token,
        is_new=True,
    )
    # Only the first rebalance of a group is delayed further for members that arrive late, as in Kafka.
    if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
        group.has_new_member = True
    group.add(member, event.protocol_type)
    expect_heartbeat(member, NEW_MEMBER_JOIN_TIMEOUT_MS, now, out)
    start_rebalance_if_possible(group, now, out)


def _update(group: Group, member: Member, event: JoinRequest, out: list[Action]) -> None:
    """Park the member's join and store its protocols."""
    _complete_earlier_join(group, member, out)
    group.set_protocols(member, event.protocols)
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    member.session_timeout_ms = event.session_timeout_ms
    group.park_join(member, event.token)


def _replace_static(group: Group, event: JoinRequest, instance_id: str, now: Now, out: list[Action]) -> None:
    """Let a new process of a known instance take over its place; the old process is fenced at once.  KIP-345."""
    leader_before = group.leader or ""
    old_member_id = group.static_members[instance_id]
    member = group.members[old_member_id]
    fenced = ErrorCode.FENCED_INSTANCE_ID
    respond_to_join(group, member, JoinOutcome(error=fenced, member_id=old_member_id), out)
    respond_to_sync(member, SyncOutcome(fenced), out)
    # The key of the timer has the old id.
    forget_session(member, out)
    old_protocols = member.protocols
    group.replace_static(old_member_id, event.fresh_member_id)
    _update(group, member, event, out)
    expect_heartbeat(member, member.session_timeout_ms, now, out)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be computing an assignment for the old id.
        start_rebalance(group, now, out)
    elif group.state is GroupState.STABLE and group.elect_protocol() != group.protocol_name:
        # The new process supports other protocols, so that another one has the most votes.
        start_rebalance(group, now, out)
    elif group.state is GroupState.STABLE:
        # The others keep their assignments.  The new id is in the log before the member learns it.
        append = ReplacementAppend(event.token, old_member_id, event.fresh_member_id, old_protocols, leader_before)
        assignments = {other.member_id: other.assignment for other in group.members.values()}
        persist_generation(group, append, assignments, out)


def _complete_earlier_join(group: Group, member: Member, out: list[Action]) -> None:
    """Complete an earlier parked join of the same member; its connection still waits for the response."""
    outcome = JoinOutcome(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    respond_to_join(group, member, outcome, out)


def _refuse(event: JoinRequest, error: ErrorCode, member_id: str, out: list[Action]) -> None:
    out.append(Respond(event.token, JoinOutcome(error=error, member_id=member_id)))


# SyncGroup: the leader's request carries the assignment, and each member gets its part.


def sync(group: Group, event: SyncRequest, now: Now, out: list[Action]) -> None:
    """Park the sync until the leader's assignment is stored, or complete it at once if the group is stable.

    A leader that syncs again while its assignment is being written may send another one, which must not be written
    after the one that members get.
    """
    if group.consumer is not None and group.state is not GroupState.DEAD:
        sync_consumer_group(group, event, now, out)
        return
    error = _sync_error(group, event)
    if error is not ErrorCode.NONE:
        out.append(Respond(event.token, SyncOutcome(error)))
        return
    member = group.members[event.member_id]
    _has_synced(group, member, out)
    if group.state is GroupState.STABLE:
        # The leader was faster, or the response to an earlier sync was lost.
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
    """Process the outcome of an append of an assignment.  Another rebalance may have started in the meantime."""
    if group.state is not GroupState.COMPLETING_REBALANCE or append.generation != group.generation:
        return
    if error is ErrorCode.NONE:
        give_assignments(group, append.assignments, now, out)
    else:
        # No member may use an assignment that another coordinator would not find in the log.
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
