"""Groups that DescribeGroups does not return: the consumer protocol (KIP-848) and other types of Kafka 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode
from kctl.lag.facts import (
    CLASSIC,
    CONSUMER,
    DESCRIBING_APIS,
    OTHER_TYPES,
    SHARE,
    STREAMS,
    GroupDescription,
    GroupMember,
    GroupOffset,
)
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from kctl.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestedGroup,
)
from kctl.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.share_group_describe import DescribedGroup as ShareGroup
from kctl.protocol.apis.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kctl.protocol.apis.streams_group_describe import DescribedGroup as StreamsGroup
from kctl.protocol.apis.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
)
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE

MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}


async def describe_newer_groups(
    connection: Connection, group_ids: list[str]
) -> Mapping[str, GroupDescription | ApiError]:
    """Describe the groups without offsets; empty for brokers without newer types.

    A group of a type that kctl cannot describe has INVALID_REQUEST, with its type and state.
    """
    if not connection.versions.supports(ConsumerGroupDescribeRequest):
        return {}
    response = await connection.send(ConsumerGroupDescribeRequest(group_ids=group_ids), ConsumerGroupDescribeResponse)
    others: Mapping[str, ListedGroup] = {}
    if any(group.error_code == ErrorCode.GROUP_ID_NOT_FOUND for group in response.groups):
        listed = (await connection.send(ListGroupsRequest(), ListGroupsResponse)).groups
        others = {group.group_id: group for group in listed if group.group_type in OTHER_TYPES}
    described = await _described_others(connection, others)
    return {
        group.group_id: described.get(group.group_id) or _outcome(group, others.get(group.group_id))
        for group in response.groups
        if group.error_code != ErrorCode.UNSUPPORTED_VERSION  # The consumer protocol is disabled.
    }


async def _described_others(
    connection: Connection, listed: Mapping[str, ListedGroup]
) -> dict[str, GroupDescription | ApiError]:
    """Return the share and streams groups, as far as the broker describes them (Kafka 4.1)."""
    shares = sorted(name for name, group in listed.items() if group.group_type == SHARE)
    streams = sorted(name for name, group in listed.items() if group.group_type == STREAMS)
    found: dict[str, GroupDescription | ApiError] = {}
    if shares and connection.versions.has(*DESCRIBING_APIS[SHARE]):
        shared = await connection.send(ShareGroupDescribeRequest(group_ids=shares), ShareGroupDescribeResponse)
        found |= {group.group_id: _share_group(group) for group in shared.groups}
    if streams and connection.versions.has(*DESCRIBING_APIS[STREAMS]):
        streamed = await connection.send(StreamsGroupDescribeRequest(group_ids=streams), StreamsGroupDescribeResponse)
        counts = await _partition_counts(connection, streamed)
        found |= {group.group_id: _streams_group(group, counts) for group in streamed.groups}
    return found


async def share_offsets(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[GroupOffset] | ApiError]:
    """Return the share-partition start offsets of the groups, of partitions that a group has read."""
    request = DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=name) for name in group_ids])
    response = await connection.send(request, DescribeShareGroupOffsetsResponse)
    return {
        group.group_id: ApiError(ErrorCode.of(group.error_code), group.error_message)
        if group.error_code
        else [
            GroupOffset(
                TopicPartition(topic.topic_name, partition.partition_index),
                partition.start_offset,
                partition.leader_epoch,
                "",
                -1,
                ErrorCode.of(partition.error_code),
                None if partition.lag < 0 else partition.lag,
            )
            for topic in group.topics
            for partition in topic.partitions
        ]
        for group in response.groups
    }


async def _partition_counts(connection: Connection, response: StreamsGroupDescribeResponse) -> Mapping[str, int]:
    """Return the partitions of the topics that the groups read."""
    topics = {name for group in response.groups for names in _sources(group).values() for name in names}
    if not topics:
        return {}
    requested = [MetadataRequestTopic(name=name) for name in sorted(topics)]
    metadata = await connection.send(
        MetadataRequest(topics=requested, allow_auto_topic_creation=False), MetadataResponse
    )
    return {topic.name or "": len(topic.partitions) for topic in metadata.topics}


def _sources(group: StreamsGroup) -> dict[str, list[str]]:
    """Return the topics that each subtopology reads, with those for repartitioning."""
    subtopologies = group.topology.subtopologies if group.topology is not None else None
    return {
        subtopology.subtopology_id: [
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
        ]
        for subtopology in subtopologies or ()
    }


def _share_group(group: ShareGroup) -> GroupDescription | ApiError:
    failure = _failure(group.group_id, group.error_code, group.error_message, SHARE, group.group_state)
    if failure is not None:
        return failure
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host.removeprefix("/"),
            tuple(
                sorted(
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                )
            ),
            member.member_epoch,
            None,
            tuple(sorted(member.subscribed_topic_names)),
            None,
            SHARE,
        )
        for member in group.members
    )
    return GroupDescription(
        Outcome(group.group_id),
        SHARE,
        group.group_state,
        SHARE,
        group.assignor_name,
        members=members,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
        refusal=f"Group {group.group_id} is not a consumer group.",
    )


def _streams_group(group: StreamsGroup, counts: Mapping[str, int]) -> GroupDescription | ApiError:
    failure = _failure(group.group_id, group.error_code, group.error_message, STREAMS, group.group_state)
    if failure is not None:
        return failure
    sources = _sources(group)

    def read_by(tasks: Iterable[TaskIds]) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(topic, partition)
                for task in tasks
                for topic in sources.get(task.subtopology_id, ())
                for partition in task.partitions
                if partition < counts.get(topic, 0)
            )
        )

    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            read_by(member.assignment.active_tasks),
            member.member_epoch,
            read_by(member.target_assignment.active_tasks),
            None,
            None,
            CLASSIC if member.is_classic else STREAMS,
        )
        for member in group.members
    )
    return GroupDescription(
        Outcome(group.group_id),
        STREAMS,
        group.group_state,
        STREAMS,
        members=members,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
        refusal=f"Group {group.group_id} is not a consumer group.",
    )


def _failure(
    group_id: str, error_code: int, message: str | None, group_type: str, state: str
) -> GroupDescription | ApiError | None:
    code = ErrorCode.of(error_code)
    if code is ErrorCode.NONE:
        return None
    if code in COORDINATOR_MOVED:
        return ApiError(code)
    return GroupDescription(outcome_of(group_id, error_code, message), group_type, state)


def _outcome(group: DescribedGroup, listed: ListedGroup | None) -> GroupDescription | ApiError:
    code = ErrorCode.of(group.error_code)
    if code in COORDINATOR_MOVED:
        return ApiError(code)
    if code is ErrorCode.NONE:
        return _description(group)
    if code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(outcome_of(group.group_id, group.error_code, group.error_message))
    if listed is None:
        return GroupDescription(outcome_of(group.group_id, group.error_code), refusal=group.error_message)
    outcome = Outcome(group.group_id, ErrorCode.INVALID_REQUEST, _cannot_describe(listed.group_type))
    return GroupDescription(outcome, listed.group_type, listed.group_state, refusal=group.error_message)


def _cannot_describe(group_type: str) -> str:
    tool = OTHER_TYPES[group_type]
    return f"This is a {group_type} group, which brokers describe from Kafka 4.1 on; use {tool} of their version."


def _description(group: DescribedGroup) -> GroupDescription:
    return GroupDescription(
        Outcome(group.group_id),
        CONSUMER,
        group.group_state,
        PROTOCOL_TYPE,
        group.assignor_name,
        members=tuple(map(_member, group.members)),
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
    )


def _member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        _partitions(member.assignment),
        member.member_epoch,
        _partitions(member.target_assignment),
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        MEMBER_TYPES.get(member.member_type),
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(sorted(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    ))  # fmt: skip
