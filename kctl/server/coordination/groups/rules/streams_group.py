"""A streams group as a part of `Group`: the delay of its first assignment, and conversion of a classic group."""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.groups.actions import Action, GroupState, ScheduleTimer
from kctl.server.coordination.groups.events import Now, TimerKey, TimerKind
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.rules.newer_group import Rules, hear_member, perform
from kctl.server.coordination.newer_groups import Changes
from kctl.server.coordination.streams_groups.group import StreamsGroup
from kctl.server.coordination.streams_groups.heartbeat import StreamsDecision, assign_after_delay, fence, hear
from kctl.server.coordination.streams_groups.requests import StreamsHeartbeat, StreamsOutcome

_DELAY = TimerKey(TimerKind.FIRST_ASSIGNMENT)


def hear_streams_member(group: Group, event: StreamsHeartbeat, now: Now, out: list[Action]) -> None:
    """Process a heartbeat of a member, which may create the group or convert a classic one without members."""
    decision = hear_member(group, RULES, event, now, out)
    if isinstance(decision, StreamsDecision) and decision.starts_delay:
        out.append(ScheduleTimer(_DELAY, RULES.settings(group).initial_rebalance_delay_ms))


def delay_ended(group: Group, now: Now, out: list[Action]) -> None:
    """Compute the first assignment, which the members get with their next heartbeats."""
    if group.streams is not None and group.state is not GroupState.DEAD:
        perform(group, RULES, assign_after_delay(group.streams, RULES.environment(group, now)), now, out)


def _create(group: Group, event: StreamsHeartbeat) -> Changes:
    if group.newer is None and group.protocol_type is None and not event.is_joining:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group.group_id} not found.")
    if group.newer is not None or not group.has_no_classic_members or not event.is_joining:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a streams group.")
    return Changes(StreamsGroup())


RULES = Rules(StreamsGroup, StreamsOutcome, _create, hear, fence, lambda group: group.config.streams(group.group_id))
