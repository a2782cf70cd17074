"""From one generation to the next: collect joins, complete the generation, wait for syncs.

Timers: JOIN runs while joins are collected, SYNC from the completion of the joins until every member has synced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.limits import GROUP_MEMBERS_PER_STEP_MAX
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    GroupState,
    JoinedMember,
    JoinOutcome,
    MemberSnapshot,
    PersistGroup,
    Respond,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.coordination.groups.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    UNKNOWN_MEMBER,
    Append,
    EmptyAppend,
    InitialDelay,
    Now,
    TimerKey,
    TimerKind,
)
from kctl.server.coordination.groups.group import Group, Member
from kctl.server.coordination.groups.offsets import SubscribedTopics

# The session timer of a member.
#
# Heartbeats are by far the most frequent request, so they move a deadline and do not touch the timer; the timer
# checks the deadline when it fires and is scheduled again for the rest.


def expect_heartbeat(member: Member, timeout_ms: int, now: Now, out: list[Action]) -> None:
    """Set the session deadline to `timeout_ms` from now."""
    due_ms = now.monotonic_ms + timeout_ms
    member.session_deadline_ms = due_ms
    if member.timer_due_ms is None or due_ms < member.timer_due_ms:
        member.timer_due_ms = due_ms
        out.append(ScheduleTimer(session_timer(member.member_id), timeout_ms))


def forget_session(member: Member, out: list[Action]) -> None:
    """Cancel the member's session timer."""
    if member.timer_due_ms is not None:
        member.timer_due_ms = None
        out.append(CancelTimer(session_timer(member.member_id)))


def session_timer(member_id: str) -> TimerKey:
    """Return the key of the member's session timer; a pending member has one too."""
    return TimerKey(TimerKind.SESSION, member_id)


# Work for all members of a group, which is done in several steps if there are many members.
#
# The rest of the work is part of the group, and the group gets no other event before it is done, so that no event
# sees a group in between. Work that begins while other work is unfinished is done after it.
#
# An event continues it, not the event loop, as all that changes a group: a scenario or a simulation sees each step.


MemberSteps: TypeAlias = Iterator[Sequence[Action]]
"""Does a part for one member each time that it is continued."""


def step_through(group: Group, size: int, work: MemberSteps, out: list[Action]) -> None:
    """Do the work now if it has at most GROUP_MEMBERS_PER_STEP_MAX parts, else with `Continue`."""
    if size > GROUP_MEMBERS_PER_STEP_MAX:
        group.unfinished.append(work)
        return
    for actions in work:
        out += actions


def continue_steps(group: Group, out: list[Action]) -> None:
    """Do the next GROUP_MEMBERS_PER_STEP_MAX parts."""
    left = GROUP_MEMBERS_PER_STEP_MAX
    while group.unfinished:
        for actions in group.unfinished[0]:
            out += actions
            left -= 1
            if left <= 0:
                return
        group.unfinished.popleft()


_SUBSCRIPTION_BYTES_PER_PART = 100
"""The size of a subscription that takes as long to read as a response to a member to make."""


def start_rebalance_if_possible(group: Group, now: Now, out: list[Action]) -> None:
    """Start a rebalance unless one is being prepared already or the group is dead."""
    if group.can_rebalance:
        start_rebalance(group, now, out)


def start_rebalance(group: Group, now: Now, out: list[Action]) -> None:
    """All members have to join again.  A group that was empty waits for more members (KIP-134)."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        clear_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now, out)
    # It limits the syncs of a generation that ends here.
    out.append(CancelTimer(SYNC_TIMER))
    if group.state is GroupState.EMPTY:
        delay_ms = group.config.group_initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.has_new_member = False
        out.append(ScheduleTimer(JOIN_TIMER, delay_ms))
    else:
        out.append(ScheduleTimer(JOIN_TIMER, group.rebalance_timeout_ms))
    group.transition_to(GroupState.PREPARING_REBALANCE, now)
    complete_join_if_ready(group, now, out)


def complete_join_if_ready(group: Group, now: Now, out: list[Action]) -> None:
    """Complete the join phase if all members have joined.  The initial delay always runs to its end."""
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None and group.have_all_joined:
        out.append(CancelTimer(JOIN_TIMER))
        _begin_to_complete_join(group, now, out)


def join_time_is_up(group: Group, now: Now, out: list[Action]) -> None:
    """Continue, when the JOIN timer fired, with the members that joined, unless the initial delay is extended."""
    # If the group was busy when the timer fired, an earlier event may have ended the phase.
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    initial = group.initial_delay
    if initial is not None and group.has_new_member and initial.remaining_ms > 0:
        # Members are still arriving.  All delays together take no longer than the rebalance timeout (KIP-134).
        group.has_new_member = False
        next_ms = min(group.config.group_initial_rebalance_delay_ms, initial.remaining_ms)
        group.initial_delay = InitialDelay(next_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        out.append(ScheduleTimer(JOIN_TIMER, next_ms))
        return
    group.initial_delay = None
    _begin_to_complete_join(group, now, out)


def sync_time_is_up(group: Group, now: Now, out: list[Action]) -> None:
    """Remove members that have not synced when the SYNC timer fired, and start a rebalance (KAFKA-12898)."""
    # Also in a stable group: a member may never have asked for the assignment that the leader has sent.
    if group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE} or not group.pending_sync:
        return
    step_through(group, len(group.pending_sync), _restart_without(group, sorted(group.pending_sync), now), out)


def remove_member(group: Group, member: Member, out: list[Action]) -> None:
    """Remove the member; its parked requests get UNKNOWN_MEMBER_ID, so that a live client joins again."""
    forget_session(member, out)
    respond_to_join(group, member, JoinOutcome(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=UNKNOWN_MEMBER), out)
    respond_to_sync(member, SyncOutcome(ErrorCode.UNKNOWN_MEMBER_ID), out)
    group.remove(member.member_id)


def respond_to_join(group: Group, member: Member, outcome: JoinOutcome, out: list[Action]) -> bool:
    """Complete the member's parked join; return False if there is none."""
    token = group.take_join(member)
    if token is not None:
        out.append(Respond(token, outcome))
    return token is not None


def respond_to_sync(member: Member, outcome: SyncOutcome, out: list[Action]) -> bool:
    """Complete the member's parked sync; return False if there is none."""
    token, member.sync_token = member.sync_token, None
    if token is not None:
        out.append(Respond(token, outcome))
    return token is not None


def generation_outcome(group: Group, member: Member) -> JoinOutcome:
    """Return the result of a join: the current generation, with the member list for the leader."""
    return _generation_outcome(group, member, _joined_members(group) if group.leader == member.member_id else ())


def _joined_members(group: Group) -> Iterator[JoinedMember]:
    protocol = group.protocol_name or ""
    return (
        JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol))
        for member in group.members.values()
    )


def _generation_outcome(group: Group, member: Member, members: Iterable[JoinedMember]) -> JoinOutcome:
    return JoinOutcome(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=tuple(members),
    )


def assignment_outcome(group: Group, member: Member) -> SyncOutcome:
    """Return the result of a sync: the member's assignment."""
    return SyncOutcome(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def clear_assignments(group: Group, error: ErrorCode, now: Now, out: list[Action]) -> None:
    """Drop all assignments; parked syncs get `error`."""

    def work() -> MemberSteps:
        refusal = SyncOutcome(error)
        for member in list(group.members.values()):
            member.assignment = b""
            yield _end_sync(member, refusal, now)

    step_through(group, len(group.members), work(), out)


def give_assignments(group: Group, assignments: dict[str, bytes], now: Now, out: list[Action]) -> None:
    """Complete parked syncs with their assignment, after which the group is stable; members without one get empty
    bytes.
    """

    def work() -> MemberSteps:
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            yield _end_sync(member, assignment_outcome(group, member), now)
        group.transition_to(GroupState.STABLE, now)

    step_through(group, len(group.members), work(), out)


def persist_generation(group: Group, append: Append, assignments: Mapping[str, bytes], out: list[Action]) -> None:
    """Write the record of this generation with these assignments."""
    # Before the record is made in steps: `is_storing_assignment` has to be true at once.
    append_id = group.add_pending_append(append)

    def work() -> MemberSteps:
        members: list[MemberSnapshot] = []
        for member in group.member_snapshots(assignments):
            members.append(member)
            yield ()
        yield (PersistGroup(append_id, group.snapshot(members)),)

    step_through(group, len(group.members), work(), out)


def _end_sync(member: Member, outcome: SyncOutcome, now: Now) -> list[Action]:
    """Complete the sync and restart the session, whose timer is ignored while a sync is parked."""
    out: list[Action] = []
    if respond_to_sync(member, outcome, out):
        expect_heartbeat(member, member.session_timeout_ms, now, out)
    return out


def _restart_without(group: Group, member_ids: Iterable[str], now: Now) -> MemberSteps:
    """Remove members and start a rebalance of the others."""
    for member_id in member_ids:
        out: list[Action] = []
        remove_member(group, group.members[member_id], out)
        yield out
    out = []
    start_rebalance(group, now, out)
    yield out


def _begin_to_complete_join(group: Group, now: Now, out: list[Action]) -> None:
    """Complete the join phase, unless that has begun."""
    if not group.is_completing_join:
        group.is_completing_join = True
        step_through(group, len(group.members), _complete_join(group, now), out)


def _complete_join(group: Group, now: Now) -> MemberSteps:
    """Remove the members that have not joined, and begin a generation with the others."""
    # Static members keep their place until their session ends (KIP-345).
    for member in [absent for absent in group.members.values() if not absent.is_joining and not absent.is_static]:
        out: list[Action] = []
        remove_member(group, member, out)
        yield out
    group.is_completing_join = False
    if not group.members:
        # Without this record a new coordinator would restore the members of the last generation.
        group.begin_generation(None, now)
        group.subscribed_topics = frozenset()
        yield (PersistGroup(group.add_pending_append(EmptyAppend()), group.snapshot(())),)
    elif group.elect_joined_leader():
        election = group.election()
        if not election.is_decided:
            for member in group.members.values():
                election.vote(member)
                yield ()
        group.begin_generation(election.winner(), now)
        yield from _respond_to_joins(group, now)
        # Last, because no response depends on it: it decides which offsets expire and may be deleted.
        yield from _read_subscriptions(group)
    else:
        # Only static members are left and none has joined; wait until they join or their sessions expire.
        yield (ScheduleTimer(JOIN_TIMER, group.rebalance_timeout_ms),)


def _respond_to_joins(group: Group, now: Now) -> MemberSteps:
    # The list is complete before the first response, because the leader may be any of the members.
    joined: list[JoinedMember] = []
    for joined_member in _joined_members(group):
        joined.append(joined_member)
        yield ()
    for member in group.members.values():
        out: list[Action] = []
        others = joined if group.leader == member.member_id else ()
        respond_to_join(group, member, _generation_outcome(group, member, others), out)
        expect_heartbeat(member, member.session_timeout_ms, now, out)
        member.is_new = False
        yield out
    yield (ScheduleTimer(SYNC_TIMER, group.rebalance_timeout_ms),)


def _read_subscriptions(group: Group) -> MemberSteps:
    """Read the subscriptions; yield after each 100 bytes, which are up to 30 topics."""
    if group.is_consumer_group:
        topics = SubscribedTopics()
        for member in group.members.values():
            subscription = member.metadata(group.protocol_name or "")
            topics.add(subscription)
            for _ in range(1 + len(subscription) // _SUBSCRIPTION_BYTES_PER_PART):
                yield ()
        group.subscribed_topics = topics.known
