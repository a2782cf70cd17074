"""A group of the consumer protocol as a part of `Group`: regular expressions, static members, conversion."""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.heartbeat import ConsumerDecision, fence, hear, regexes_resolved
from kctl.server.coordination.consumer_groups.requests import HeartbeatOutcome, HeartbeatRequest
from kctl.server.coordination.groups.actions import Action, GroupState, ResolveRegexes
from kctl.server.coordination.groups.events import Now, RegexesResolved
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.rules.conversion import check_upgrade, consumer_group_of
from kctl.server.coordination.groups.rules.newer_group import Rules, hear_member, perform
from kctl.server.coordination.newer_groups import Changes


def hear_consumer(group: Group, event: HeartbeatRequest, now: Now, out: list[Action]) -> None:
    """Process a heartbeat of a member, which may create the group or convert it."""
    decision = hear_member(group, RULES, event, now, out)
    consumer = group.consumer
    if isinstance(decision, ConsumerDecision) and decision.needs_resolution and consumer is not None:
        consumer.is_resolving = True
        out.append(ResolveRegexes(tuple(consumer.regex_counts), event.denied))


def _create(group: Group, event: HeartbeatRequest) -> Changes:
    if not event.is_joining and group.newer is None and group.protocol_type is None and not group.members:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group.group_id} not found.")
    if not event.is_joining or group.newer is not None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    if group.has_no_classic_members:
        return Changes(ConsumerGroup())
    check_upgrade(group)
    return consumer_group_of(group)


RULES = Rules(ConsumerGroup, HeartbeatOutcome, _create, hear, fence, lambda group: group.config.consumer)


def store_resolved(group: Group, event: RegexesResolved, now: Now, out: list[Action]) -> None:
    """Store the topics that match the regular expressions of the group."""
    consumer = group.consumer
    if consumer is None or group.state is GroupState.DEAD:
        return
    consumer.is_resolving = False
    environment = RULES.environment(group, now)
    perform(group, RULES, regexes_resolved(consumer, event.matching, event.version, environment), now, out)
