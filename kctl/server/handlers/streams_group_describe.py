"""StreamsGroupDescribe (key 89, version 0): epochs, topology and members of streams groups (KIP-1071).

Served with `streams` in group.coordinator.rebalance.protocols.  A group that is missing or of another type gets
GROUP_ID_NOT_FOUND.  A client that may not describe one of the topics of a group gets TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kctl.errors import ApiError, ErrorCode
from kctl.limits import DESCRIBED_BYTES_MAX, SLICE_OBJECTS
from kctl.protocol.apis.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.streams_groups import state
from kctl.server.coordination.streams_groups.group import StreamsGroup
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NOT_REQUESTED, authorized_operations

_OBJECTS_PER_GROUP = 10
_BYTES_PER_TASK = 4
_BYTES_PER_MEMBER = 200


class StreamsGroupDescribeHandler:
    """Serves StreamsGroupDescribe requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        """Serve one request and return the response."""
        described = self._groups(request, context)
        return StreamsGroupDescribeResponse(groups=[group async for group in sliced(described, SLICE_OBJECTS, _size)])

    def _groups(self, request: StreamsGroupDescribeRequest, context: RequestContext) -> Iterator[DescribedGroup]:
        left = DESCRIBED_BYTES_MAX
        for group_id in dict.fromkeys(request.group_ids):
            try:
                if left < 0:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
                found = self._coordinator.find(group_id, StreamsGroup)
                group = _described(group_id, found, context)
                if request.include_authorized_operations:
                    group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
                left -= found.memory_bytes + sum(map(_bytes_of, group.members))
            except ApiError as error:
                group = _failed(group_id, error)
            yield group


def _described(group_id: str, group: StreamsGroup, context: RequestContext) -> DescribedGroup:
    topology = group.topology
    names: set[str] = set()
    if topology is not None:
        names = topology.required_topics()
        names.update(*(subtopology.repartition_sinks for subtopology in topology.subtopologies.values()))
    if context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names):
        message = "The described group uses topics that the client is not authorized to describe."
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    configured = group.configured
    subtopologies: Iterable[state.Subtopology] = ()
    if configured is not None and configured.is_ready:
        subtopologies = [entry.subtopology for entry in configured.subtopologies.values()]
    elif topology is not None:
        subtopologies = [topology.subtopologies[name] for name in sorted(topology.subtopologies)]
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch.epoch,
        assignment_epoch=group.target.epoch,
        topology=None
        if topology is None
        else Topology(epoch=topology.epoch, subtopologies=list(map(_subtopology, subtopologies))),
        members=[_member(group, member_id) for member_id in group.members],
    )


def _subtopology(subtopology: state.Subtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sinks),
        state_changelog_topics=_topics(subtopology.changelogs),
        repartition_source_topics=_topics(subtopology.repartition_sources),
    )


def _topics(topics: Iterable[state.InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=_pairs(topic.configs),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in pairs]


def _member(group: StreamsGroup, member_id: str) -> Member:
    member, assignment = group.members[member_id], group.assignment(member_id)
    endpoint = member.endpoint
    return Member(
        member_id=member_id,
        member_epoch=assignment.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_pairs(member.client_tags),
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(assignment.assigned.without_epochs()),
        target_assignment=_assignment(group.target_of(member_id)),
        is_classic=False,
    )


def _assignment(tasks: state.TaskSets) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: state.Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(numbers)) for name, numbers in sorted(tasks.items())]


def _failed(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message or error.code.description,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
        authorized_operations=NOT_REQUESTED,
    )


def _size(group: DescribedGroup) -> int:
    return _OBJECTS_PER_GROUP + len(group.members)


def _bytes_of(member: Member) -> int:
    tasks = (member.assignment.active_tasks, member.assignment.standby_tasks, member.target_assignment.active_tasks)
    return _BYTES_PER_MEMBER + sum(_BYTES_PER_TASK * len(entry.partitions) for role in tasks for entry in role)
