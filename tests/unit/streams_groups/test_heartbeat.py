"""Heartbeats of members of streams groups: bounds, and what a heartbeat without news costs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.newer_groups import Environment
from kctl.server.coordination.streams_groups.group import StreamsGroup
from kctl.server.coordination.streams_groups.heartbeat import GROUP_TASKS_MAX, hear
from kctl.server.coordination.streams_groups.requests import (
    CLIENT_TAGS_MAX,
    MEMBERS_MAX,
    OWNED_TASKS_MAX,
    SUBTOPOLOGIES_MAX,
    TOPOLOGY_BYTES_MAX,
    TOPOLOGY_ELEMENTS_MAX,
    TOPOLOGY_TOPICS_MAX,
    StreamsGroupSettings,
    StreamsHeartbeat,
    check_streams_request,
    check_topology_size,
)
from kctl.server.coordination.streams_groups.state import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    StreamsMember,
    Subtopology,
    TaskSets,
    Topology,
)

TOPOLOGY = Topology(0, {"0": Subtopology(subtopology_id="0", source_topics=("t",))})
JOIN = StreamsHeartbeat(
    member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topology=TOPOLOGY, owned=TaskSets(), process_id="p"
)


class Topics:
    """Every topic exists."""

    topics_version = 1

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def topic_id(self, topic: str) -> UUID:
        return UUID(int=len(topic))

    def topic_name(self, topic_id: UUID) -> str | None:
        return "t" * topic_id.int

    def partition_count(self, topic: str) -> int | None:
        return self._partitions

    def partition_racks(self, topic: str) -> list[list[str]]:
        return [[] for _ in range(self._partitions)]


def environment(partitions: int = 2, **settings: int) -> Environment[StreamsGroupSettings]:
    usual = StreamsGroupSettings(assignment_interval_ms=0, initial_rebalance_delay_ms=0)
    return Environment("g", replace(usual, **settings), Topics(partitions), 1)


def test_requests_are_bounded() -> None:
    tags = tuple((str(number), "") for number in range(CLIENT_TAGS_MAX + 1))
    for request in (
        replace(JOIN, member_id="m" * 1_001),
        replace(JOIN, rack_id="r" * 1_001),
        replace(JOIN, process_id="p" * 1_001),
        replace(JOIN, endpoint=Endpoint("h" * 1_001, 1)),
        replace(JOIN, client_tags=tags),
        replace(JOIN, client_tags=(("t" * 1_001, ""),)),
        replace(JOIN, topology=None, member_epoch=1, owned=TaskSets({"0": frozenset(range(OWNED_TASKS_MAX + 1))})),
    ):
        with pytest.raises(ApiError) as refusal:
            check_streams_request("g", request)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
    check_streams_request("g", JOIN)


def test_topologies_are_bounded() -> None:
    many = tuple(str(number) for number in range(TOPOLOGY_ELEMENTS_MAX))
    configs = tuple((name, "") for name in many)
    group = CopartitionGroup(source_topics=(0,) * TOPOLOGY_ELEMENTS_MAX)
    for subtopologies in (
        [Subtopology(subtopology_id=str(number)) for number in range(SUBTOPOLOGIES_MAX + 1)],
        [Subtopology(subtopology_id="0", source_topics=many[: TOPOLOGY_TOPICS_MAX + 1])],
        [Subtopology(subtopology_id="0", changelogs=(InternalTopic(name="c", configs=configs),))],
        [Subtopology(subtopology_id="0", source_topics=("t",), copartition_groups=(group,))],
        [Subtopology(subtopology_id="0" * (TOPOLOGY_BYTES_MAX + 1))],
    ):
        with pytest.raises(ApiError) as refusal:
            check_topology_size(subtopologies)
        assert refusal.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_tasks_are_bounded_and_a_refused_member_changes_nothing() -> None:
    group = StreamsGroup()
    before = deepcopy(group.values())
    with pytest.raises(ApiError) as refusal:
        hear(group, JOIN, environment(GROUP_TASKS_MAX + 1))
    assert refusal.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert group.values() == before
    hear(group, JOIN, environment(GROUP_TASKS_MAX))
    assert group.target_of("m").active == {"0": frozenset(range(GROUP_TASKS_MAX))}


def test_topics_that_have_grown_beyond_the_bound_leave_the_assignment() -> None:
    group = StreamsGroup()
    hear(group, JOIN, environment())
    target = group.targets
    grown = environment(GROUP_TASKS_MAX + 1)
    grown.topics.topics_version = 2  # type: ignore[misc]
    decision = hear(group, StreamsHeartbeat(member_id="m", member_epoch=group.assignment("m").epoch), grown)
    assert decision.outcome.error is ErrorCode.NONE
    assert group.targets == target


def test_members_are_bounded() -> None:
    group = StreamsGroup()
    group.members = {str(number): StreamsMember() for number in range(MEMBERS_MAX)}
    with pytest.raises(ApiError) as refusal:
        hear(group, JOIN, environment())
    assert refusal.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_heartbeat_without_news_needs_no_record() -> None:
    group = StreamsGroup()
    hear(group, JOIN, environment())
    epoch = group.assignment("m").epoch
    again = hear(group, StreamsHeartbeat(member_id="m", member_epoch=epoch), environment())
    assert again.changes.made == []
    assert again.outcome.assigned is None
