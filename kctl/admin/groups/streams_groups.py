"""Describes streams groups: their topology, and the tasks of their members (KIP-1071)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.leaders import on_coordinators
from kctl.client.outcome import Outcome, outcome_of
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode
from kctl.lag.facts import DESCRIBING_APIS, STREAMS
from kctl.protocol.apis.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
)

ACTIVE, STANDBY, WARMUP = "active", "standby", "warm-up"


@dataclass(frozen=True, slots=True)
class StreamsTask:
    """A task of a member, in one role."""

    subtopology: str
    partition: int
    role: str
    member: Member
    is_assigned: bool
    is_target: bool
    """It is part of the assignment after the rebalance."""


@dataclass(frozen=True, slots=True)
class TopologyTopic:
    """A topic of a subtopology."""

    subtopology: str
    role: str
    topic: str
    partitions: int | None = None
    """Of internal topics whose number is known."""
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsDescription:
    """A streams group; with an error outcome it is empty."""

    outcome: Outcome
    state: str = ""
    topology_epoch: int | None = None
    tasks: tuple[StreamsTask, ...] = ()
    topics: tuple[TopologyTopic, ...] = ()


async def describe_streams_groups(client: ClusterClient, group_ids: Collection[str]) -> list[StreamsDescription]:
    """Return the groups by name; UNSUPPORTED_VERSION for brokers without streams groups, before Kafka 4.1."""

    async def send_to(connection: Connection, names: list[str]) -> dict[str, StreamsDescription | ApiError]:
        if not connection.versions.has(*DESCRIBING_APIS[STREAMS]):
            message = "the broker does not describe streams groups (before Kafka 4.1, or they are not enabled)"
            return dict.fromkeys(names, ApiError(ErrorCode.UNSUPPORTED_VERSION, message))
        response = await connection.send(StreamsGroupDescribeRequest(group_ids=names), StreamsGroupDescribeResponse)
        return {group.group_id: _description(group) for group in response.groups}

    outcomes = await on_coordinators(client, group_ids, send_to)
    return [
        StreamsDescription(Outcome(name, group.code, str(group))) if isinstance(group, ApiError) else group
        for name, group in sorted(outcomes.items())
    ]


def _description(group: DescribedGroup) -> StreamsDescription | ApiError:
    code = ErrorCode.of(group.error_code)
    if code in COORDINATOR_MOVED:
        return ApiError(code)
    if code is not ErrorCode.NONE:
        return StreamsDescription(outcome_of(group.group_id, group.error_code, group.error_message))
    topology = group.topology
    subtopologies = () if topology is None else topology.subtopologies or ()
    return StreamsDescription(
        Outcome(group.group_id),
        group.group_state,
        None if topology is None else topology.epoch,
        tuple(sorted(_tasks(group), key=lambda task: (task.subtopology, task.partition, task.role))),
        tuple(topic for subtopology in subtopologies for topic in _topics(subtopology)),
    )


def _tasks(group: DescribedGroup) -> Iterator[StreamsTask]:
    for member in group.members:
        has, wanted = _by_role(member.assignment), _by_role(member.target_assignment)
        for task in has | wanted:
            subtopology, partition, role = task
            yield StreamsTask(subtopology, partition, role, member, task in has, task in wanted)


def _by_role(assignment: Assignment) -> set[tuple[str, int, str]]:
    roles = ((ACTIVE, assignment.active_tasks), (STANDBY, assignment.standby_tasks), (WARMUP, assignment.warmup_tasks))
    return {
        (ids.subtopology_id, partition, role) for role, tasks in roles for ids in tasks for partition in ids.partitions
    }


def _topics(subtopology: Subtopology) -> Iterator[TopologyTopic]:
    name = subtopology.subtopology_id
    yield from (TopologyTopic(name, "source", topic) for topic in subtopology.source_topics)
    internal = (
        ("repartition source", subtopology.repartition_source_topics),
        ("changelog", subtopology.state_changelog_topics),
    )
    for role, topics in internal:
        for topic in topics:
            configs = tuple((config.key, config.value) for config in topic.topic_configs)
            yield TopologyTopic(name, role, topic.name, topic.partitions or None, configs)
    yield from (TopologyTopic(name, "repartition sink", topic) for topic in subtopology.repartition_sink_topics)
