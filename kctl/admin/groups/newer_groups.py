"""Groups that DescribeGroups does not return: the consumer protocol (KIP-848) and other types of Kafka 4."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode
from kctl.lag.facts import CLASSIC, CONSUMER, OTHER_TYPES, GroupDescription, GroupMember
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from kctl.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
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
        others = {
            listed_group.group_id: listed_group for listed_group in listed if listed_group.group_type in OTHER_TYPES
        }
    return {
        group.group_id: _outcome(group, others.get(group.group_id))
        for group in response.groups
        if group.error_code != ErrorCode.UNSUPPORTED_VERSION  # The consumer protocol is disabled.
    }


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
    return f"This is a {group_type} group, which kctl can only list and delete; use {tool} of Kafka 4."


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
