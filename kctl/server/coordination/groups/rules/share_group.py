"""A share group as a part of `Group`: requests to the share coordinator.

A share group keeps its id: members of other protocols are refused, also while it is empty.  It does not expire, because
the start offsets of its partitions are its position.
"""

from __future__ import annotations

from collections.abc import Collection

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.groups.actions import Action, DeleteStates, GroupState, InitializeStates, Respond
from kctl.server.coordination.groups.events import NewerAppend, Now
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.rules.newer_group import Rules, hear_member, perform
from kctl.server.coordination.newer_groups import Changes
from kctl.server.coordination.share_groups.group import ShareGroup
from kctl.server.coordination.share_groups.heartbeat import (
    ShareDecision,
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


def hear_share_member(group: Group, event: ShareHeartbeat, now: Now, out: list[Action]) -> None:
    """Process a heartbeat of a member, which may create the group."""
    decision = hear_member(group, RULES, event, now, out)
    if isinstance(decision, ShareDecision) and decision.initialize:
        initialize_after(group, decision, out)


def initialize_after(group: Group, decision: ShareDecision, out: list[Action]) -> None:
    """Let the share coordinator begin states, after the changes of the decision are stored."""
    append = group.appends.get(group.last_newer_append)
    if decision.changes.made and isinstance(append, NewerAppend):
        append.initialize = decision.initialize
    else:
        begin_states(group, decision.initialize, out)


def _create(group: Group, event: ShareHeartbeat) -> Changes:
    if _is_of_another_type(group):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
    if not event.is_joining:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group.group_id} not found.")
    return Changes(ShareGroup())


def _is_of_another_type(group: Group) -> bool:
    is_typed = group.newer is not None or group.protocol_type is not None
    return not group.has_no_classic_members or is_typed or not group.offsets.is_vacant


RULES = Rules(ShareGroup, ShareOutcome, _create, hear, fence, lambda group: group.config.share(group.group_id))


def begin_states(group: Group, topics: StateOfTopics, out: list[Action]) -> None:
    """Let the share coordinator begin states, unless it does so already."""
    share = group.share
    if share is not None and not share.is_initializing:
        share.is_initializing = True
        out.append(InitializeStates(topics, share.epoch.epoch))


def store_initialized(group: Group, event: StatesInitialized, now: Now, out: list[Action]) -> None:
    """Store the partitions whose state the share coordinator has begun."""
    share = group.share
    if share is None or group.state is GroupState.DEAD:
        return
    if event.is_over:
        share.is_initializing = False
    if event.topics:
        partitions = share.partitions.with_initialized(event.topics)
        perform(group, RULES, set_partitions(share, partitions, RULES.environment(group, now)), now, out)


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
    created = None
    if share is None:
        share = ShareGroup()
        created = Changes(share)
    decision = reset(share, event.topics, RULES.environment(group, now))
    decision.outcome = ResetOutcome(ErrorCode.NONE, share.epoch.epoch)
    perform(group, RULES, decision, now, out, token=event.token, created=created)


def forget_states(group: Group, event: ForgetStates, now: Now, out: list[Action]) -> None:
    """Forget partitions of a group without members, whose states were deleted."""
    share = group.share
    if share is None or group.state is GroupState.DEAD:
        out.append(Respond(event.token, ResetOutcome(ErrorCode.GROUP_ID_NOT_FOUND)))
    elif not share.is_empty:
        out.append(Respond(event.token, ResetOutcome(ErrorCode.NON_EMPTY_GROUP)))
    else:
        left = share.partitions.without_topics(event.topic_ids)
        decision = set_partitions(share, left, RULES.environment(group, now))
        decision.outcome = ResetOutcome(ErrorCode.NONE)
        perform(group, RULES, decision, now, out, token=event.token)


def forget_share_topics(group: Group, topics: Collection[str], now: Now, out: list[Action]) -> None:
    """Forget deleted topics, and let the share coordinator delete their states."""
    share = group.share
    if share is None or group.state is GroupState.DEAD:
        return
    gone = {topic_id: named for topic_id, named in share.partitions.known().items() if named.name in topics}
    if gone:
        left = share.partitions.without_topics(gone)
        perform(group, RULES, set_partitions(share, left, RULES.environment(group, now)), now, out)
        out.append(DeleteStates(gone))
