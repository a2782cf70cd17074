"""Heartbeats of members of share groups: their bounds, and that a refused one changes nothing."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.newer_groups import Environment
from kctl.server.coordination.share_groups.group import NamedPartitions, ShareGroup
from kctl.server.coordination.share_groups.heartbeat import (
    GROUP_SUBSCRIPTIONS_MAX,
    SHARE_PARTITIONS_OF_GROUP_MAX,
    hear,
    set_partitions,
)
from kctl.server.coordination.share_groups.requests import (
    SUBSCRIBED_TOPICS_MAX,
    ShareGroupSettings,
    ShareHeartbeat,
    check_share_request,
)

JOIN = ShareHeartbeat(member_id="m", member_epoch=0, topic_names=("t0",))


class Topics:
    """state.ClusterTopics with one size."""

    topics_version = 1

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def topic_id(self, topic: str) -> UUID:
        return UUID(int=1 + int(topic[1:]))

    def topic_name(self, topic_id: UUID) -> str | None:
        return f"t{topic_id.int - 1}"

    def partition_count(self, topic: str) -> int | None:
        return self._partitions

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(self._partitions)]


def environment(partitions: int = 1) -> Environment[ShareGroupSettings]:
    return Environment("g", ShareGroupSettings(assignment_interval_ms=0), Topics(partitions), 1)


def refusal_of(group: ShareGroup, request: ShareHeartbeat, partitions: int) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        hear(group, request, environment(partitions))
    return refusal.value.code


def test_requests_are_bounded() -> None:
    names = tuple(f"t{number}" for number in range(SUBSCRIBED_TOPICS_MAX + 1))
    for request in (
        replace(JOIN, topic_names=names),
        replace(JOIN, member_id="m" * 1_001),
        replace(JOIN, rack_id="r" * 1_001),
    ):
        with pytest.raises(ApiError):
            check_share_request("g", request)
    check_share_request("g", JOIN)


@pytest.mark.long
def test_topics_of_a_group_are_bounded_and_a_refused_member_changes_nothing() -> None:
    group = ShareGroup()
    assert refusal_of(group, JOIN, SHARE_PARTITIONS_OF_GROUP_MAX + 1) is ErrorCode.INVALID_REQUEST
    names = tuple(f"t{number}" for number in range(SUBSCRIBED_TOPICS_MAX))
    for number in range(GROUP_SUBSCRIPTIONS_MAX // len(names)):
        hear(group, replace(JOIN, member_id=f"m{number}", topic_names=names), environment())
    before = deepcopy(group.values())
    assert refusal_of(group, replace(JOIN, member_id="more"), 1) is ErrorCode.INVALID_REQUEST
    assert group.values() == before


def test_a_heartbeat_without_news_needs_no_record() -> None:
    group = ShareGroup()
    first = hear(group, JOIN, environment(3))
    (topic_id,) = first.initialize
    set_partitions(group, group.partitions.with_initialized(first.initialize), environment(3))
    assert group.partitions.initialized == {topic_id: NamedPartitions("t0", frozenset(range(3)))}
    epoch = group.assignment("m").epoch
    second = hear(group, ShareHeartbeat(member_id="m", member_epoch=epoch), environment(3))
    assert second.outcome is not None
    assert second.outcome.assignment == {topic_id: frozenset(range(3))}
    third = hear(group, ShareHeartbeat(member_id="m", member_epoch=epoch + 1), environment(3))
    assert third.changes.made == []
    late = hear(group, ShareHeartbeat(member_id="m", member_epoch=epoch), environment(3))
    assert late.outcome is not None
    assert late.outcome.member_epoch == epoch + 1, "the response with the new epoch was lost"
