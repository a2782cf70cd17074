"""A share group as a part of `Group`: appends, timers, requests to the share coordinator.

As with groups of the consumer protocol, what a heartbeat changes is applied at once and written as one batch, and its
response waits until the batch is replicated.  If the log refuses the batch, the changes are taken back.

A share group keeps its id: members of other protocols are refused, also while it is empty.  It does not expire, because
the start offsets of its partitions are its position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    DeleteStates,
    GroupState,
    InitializeStates,
    PersistShareGroup,
    Respond,
    ScheduleTimer,
)
from kctl.server.coordination.groups.events import Now, ShareAppend, TimerKey, TimerKind, Token
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.share_groups.group import ShareGroup, StatePartitions
from kctl.server.coordination.share_groups.heartbeat import (
    Decision,
    Environment,
    fence,
    hear,
    reset,
    set_partitions,
)
from kctl.server.coordination.share_groups.requests import (
    ForgetStates,
    ResetOutcome,
    ResetStates,
    ShareHeartbeat,
    ShareOutcome,
    StateOfTopics,
    StatesInitialized,
)

RETRY_MS = 500
"""After the log has refused the removal of a member whose time is up.  Kafka: CoordinatorTimer."""


def hear_share_member(group: Group, event: ShareHeartbeat, now: Now, out: list[Action]) -> None:
    """Process a heartbeat of a member, which may create the group."""
    if group.state is GroupState.DEAD:
        out.append(Respond(event.token, ShareOutcome(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        return
    created = None
    try:
        share = group.share
        if share is None:
            _check_new(group, event)
            share = created = group.share = ShareGroup()
        decision = hear(share, event, _environment(group, now))
    except ApiError as error:
        if created is not None:
            group.share = None
        out.append(Respond(event.token, ShareOutcome(error=error.code, message=error.message)))
        return
    _perform(group, decision, now, out, token=event.token, is_created=created is not None)


def _check_new(group: Group, event: ShareHeartbeat) -> None:
    """Raise ApiError(GROUP_ID_NOT_FOUND) unless the member creates the group."""
    if _is_of_another_type(group):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
    if not event.is_joining:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group.group_id} not found.")


def _is_of_another_type(group: Group) -> bool:
    has_members = bool(group.members or group.pending_members)
    is_typed = group.consumer is not None or group.protocol_type is not None
    return has_members or is_typed or not group.offsets.is_vacant


def _environment(group: Group, now: Now) -> Environment:
    return Environment(group.group_id, group.config.share(group.group_id), group.topics, now.wall_ms)


def _perform(
    group: Group,
    decision: Decision,
    now: Now,
    out: list[Action],
    *,
    token: Token | None = None,
    outcome: ResetOutcome | None = None,
    is_created: bool = False,
) -> None:
    """Write the changes, respond when they are replicated, and start and stop timers."""
    response = decision.outcome if outcome is None else outcome
    waiting = [(token, response)] if response is not None else []
    if decision.changes:
        append = ShareAppend(decision.saved, waiting, decision.fenced, decision.initialize, is_created=is_created)
        append_id = group.last_consumer_append = group.add_pending_append(append)
        out.append(PersistShareGroup(append_id, tuple(decision.changes)))
    elif isinstance(last := group.appends.get(group.last_consumer_append), ShareAppend):
        last.waiting.extend(waiting)
    else:
        out += [Respond(token, done) for token, done in waiting]
    if decision.initialize and not decision.changes:
        _begin(group, decision.initialize, out)
    for member_id in decision.fenced:
        group.sessions.pop(member_id, None)
        out.append(CancelTimer(_session(member_id)))
    if decision.member_id is not None:
        _expect_heartbeat(group, decision.member_id, now, out)


def _begin(group: Group, topics: StateOfTopics, out: list[Action]) -> None:
    share = group.share
    if share is not None and not share.is_initializing:
        share.is_initializing = True
        out.append(InitializeStates(topics, share.epoch.epoch))


def _session(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SHARE_SESSION, member_id)


def _expect_heartbeat(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Move the deadline; the timer, once started, checks it when it fires."""
    timeout_ms = group.config.share(group.group_id).session_timeout_ms
    if member_id not in group.sessions:
        out.append(ScheduleTimer(_session(member_id), timeout_ms))
    group.sessions[member_id] = now.monotonic_ms + timeout_ms


def share_append_done(
    group: Group, append: ShareAppend, error: ErrorCode, out: list[Action], *, is_written: bool
) -> None:
    """Respond to the requests that waited; take changes back that the log has refused."""
    share = group.share
    if error is not ErrorCode.NONE and not is_written and group.state is not GroupState.DEAD and share is not None:
        if append.saved is not None:
            share.restore(append.saved)
        if append.is_created:
            group.share = None
        for member_id in append.fenced:
            if member_id in share.members:
                group.sessions[member_id] = 0
                out.append(ScheduleTimer(_session(member_id), RETRY_MS))
    for token, outcome in append.waiting:
        if error is not ErrorCode.NONE:
            is_reset = isinstance(outcome, ResetOutcome)
            out.append(Respond(token, ResetOutcome(error) if is_reset else ShareOutcome(error=error)))
        else:
            out.append(Respond(token, outcome))
    if append.initialize and error is ErrorCode.NONE:
        _begin(group, append.initialize, out)


def share_session_ended(group: Group, member_id: str, now: Now, out: list[Action]) -> None:
    """Fence a member whose session timer fired, unless it has sent a heartbeat since."""
    deadline_ms = group.sessions.pop(member_id, None)
    if deadline_ms is None or group.share is None or member_id not in group.share.members:
        return
    if now.monotonic_ms < deadline_ms:
        group.sessions[member_id] = deadline_ms
        out.append(ScheduleTimer(_session(member_id), deadline_ms - now.monotonic_ms))
        return
    _perform(group, fence(group.share, (member_id,), _environment(group, now)), now, out)


def start_share_sessions(group: Group, now: Now, out: list[Action]) -> None:
    """Give members of a loaded group their session timeout to find the new coordinator."""
    if group.share is not None:
        for member_id in group.share.members:
            if member_id not in group.sessions:
                _expect_heartbeat(group, member_id, now, out)


def store_initialized(group: Group, event: StatesInitialized, now: Now, out: list[Action]) -> None:
    """Store the partitions whose state the share coordinator has begun."""
    share = group.share
    if share is None or group.state is GroupState.DEAD:
        return
    if event.is_over:
        share.is_initializing = False
    if event.topics:
        partitions = share.partitions.with_initialized(event.topics)
        _perform(group, set_partitions(share, partitions, _environment(group, now)), now, out)


def reset_states(group: Group, event: ResetStates, now: Now, out: list[Action]) -> None:
    """Note that states of a group without members begin anew; a group that does not exist is created.

    The epoch of the group, with which its former states are fenced, has increased when its last member left.
    """
    share = group.share
    if group.state is GroupState.DEAD or (share is None and _is_of_another_type(group)):
        out.append(Respond(event.token, ResetOutcome(ErrorCode.GROUP_ID_NOT_FOUND)))
        return
    if share is not None and not share.is_empty:
        out.append(Respond(event.token, ResetOutcome(ErrorCode.NON_EMPTY_GROUP)))
        return
    is_created = share is None
    if share is None:
        share = group.share = ShareGroup()
    decision = reset(share, event.topics, _environment(group, now))
    outcome = ResetOutcome(ErrorCode.NONE, share.epoch.epoch)
    _perform(group, decision, now, out, token=event.token, outcome=outcome, is_created=is_created)


def forget_states(group: Group, event: ForgetStates, now: Now, out: list[Action]) -> None:
    """Forget partitions of a group without members, whose states were deleted."""
    share = group.share
    if share is None or group.state is GroupState.DEAD:
        out.append(Respond(event.token, ResetOutcome(ErrorCode.GROUP_ID_NOT_FOUND)))
    elif not share.is_empty:
        out.append(Respond(event.token, ResetOutcome(ErrorCode.NON_EMPTY_GROUP)))
    else:
        decision = set_partitions(share, share.partitions.without_topics(event.topic_ids), _environment(group, now))
        _perform(group, decision, now, out, token=event.token, outcome=ResetOutcome(ErrorCode.NONE))


def forget_share_topics(group: Group, topics: Collection[str], now: Now, out: list[Action]) -> None:
    """Forget deleted topics, and let the share coordinator delete their states."""
    share = group.share
    if share is None or group.state is GroupState.DEAD:
        return
    gone = {topic_id: named for topic_id, named in share.partitions.known().items() if named.name in topics}
    if gone:
        _perform(group, set_partitions(share, _left(share, gone), _environment(group, now)), now, out)
        out.append(DeleteStates(gone))


def _left(share: ShareGroup, gone: Iterable[UUID]) -> StatePartitions:
    return share.partitions.without_topics(gone)
