"""Consumer groups: list, describe with lag, delete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kctl.admin.outcome import Outcome, outcome_of, raise_if
from kctl.client.cluster import ClusterClient
from kctl.client.list_offsets import LATEST, OffsetAt, list_offsets
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.model import TopicPartition
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kctl.protocol.consumer_protocol import decode_assignment

DEAD = "Dead"
CONSUMER_PROTOCOL_TYPE = "consumer"
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
LIST_WITH_STATES_VERSION_MIN = 4


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group and the broker that coordinates it; brokers before 2.6 do not tell the state."""

    group_id: str
    state: str
    protocol_type: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member and what it was given to read, where its assignment is a consumer's."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group has read one partition; -1: nothing committed, or the end is not known."""

    tp: TopicPartition
    committed_offset: int
    leader_epoch: int
    metadata: str
    log_end_offset: int
    error: ErrorCode = ErrorCode.NONE

    @property
    def lag(self) -> int | None:
        """Records behind the end; None when either side is not known."""
        if self.committed_offset < 0 or self.log_end_offset < 0:
            return None
        return max(0, self.log_end_offset - self.committed_offset)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group, its members as the broker told them; with an outcome that is an error the rest is empty."""

    outcome: Outcome
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    coordinator: str = ""
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()


async def list_groups(client: ClusterClient, states: Sequence[str] = ()) -> tuple[list[ListedGroup], list[Outcome]]:
    """The groups of all brokers as they told them, and the brokers that could not; only those in `states`, if given.

    Brokers before 2.6 cannot tell the states, so asking for some of them is UNSUPPORTED_VERSION there.
    """
    metadata = await client.metadata([])

    async def ask(broker_id: int) -> list[ListedGroup] | Outcome:
        try:
            connection = await client.broker(broker_id)
            if states and connection.versions.highest(ListGroupsRequest) < LIST_WITH_STATES_VERSION_MIN:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not tell the states of groups in a list")
            response = await connection.send(ListGroupsRequest(states_filter=list(states)), ListGroupsResponse)
        except ApiError as error:
            return Outcome(str(broker_id), error.code, str(error))
        if response.error_code:
            return outcome_of(str(broker_id), response.error_code)
        return [
            ListedGroup(group.group_id, group.group_state, group.protocol_type, broker_id) for group in response.groups
        ]

    groups: list[ListedGroup] = []
    failed: list[Outcome] = []
    for answer in await client.gather([ask(broker_id) for broker_id in metadata.brokers]):
        if isinstance(answer, Outcome):
            failed.append(answer)
        else:
            groups.extend(answer)
    return groups, failed


async def describe_group(client: ClusterClient, group_id: str) -> GroupDescription:
    """State, members, committed offsets and lag of one group; an unknown group has GROUP_ID_NOT_FOUND."""
    found = await look_up_group(client, group_id)
    assigned = {tp for member in found.members for tp in member.assignment}
    return replace(found, offsets=await _with_ends(client, found.offsets, assigned))


async def look_up_group(client: ClusterClient, group_id: str) -> GroupDescription:
    """What the coordinator knows of one group, without the ends of the partitions: they are -1."""

    async def ask(connection: Connection) -> tuple[DescribeGroupsResponse, list[GroupOffset], str]:
        response = await connection.send(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
        raise_if(response.groups[0].error_code, *COORDINATOR_MOVED)
        return response, await _committed(connection, group_id), connection.address

    try:
        response, committed, coordinator = await client.on_coordinator(group_id, ask)
    except ApiError as error:
        return GroupDescription(Outcome(group_id, error.code, str(error)))
    group = response.groups[0]
    if group.error_code or (group.group_state == DEAD and not committed):
        code = group.error_code or ErrorCode.GROUP_ID_NOT_FOUND
        return GroupDescription(outcome_of(group_id, code))
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            _assignment(member.member_assignment) if is_consumer else (),
        )
        for member in group.members
    )
    return GroupDescription(
        Outcome(group_id),
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        members,
        tuple(sorted(committed, key=lambda offset: offset.tp)),
    )


async def delete_group(client: ClusterClient, group_id: str) -> Outcome:
    """Forget an empty group and its offsets."""

    async def ask(connection: Connection) -> Outcome:
        response = await connection.send(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
        result = response.results[0]
        raise_if(result.error_code, *COORDINATOR_MOVED)
        return outcome_of(group_id, result.error_code)

    try:
        return await client.on_coordinator(group_id, ask)
    except ApiError as error:
        return Outcome(group_id, error.code, str(error))


async def _committed(connection: Connection, group_id: str) -> list[GroupOffset]:
    """All committed offsets of the group, without the ends of the partitions."""
    response = await connection.send(OffsetFetchRequest(group_id=group_id, topics=None), OffsetFetchResponse)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code))
    return [
        GroupOffset(
            TopicPartition(topic.name, partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata or "",
            -1,
            ErrorCode.of(partition.error_code),
        )
        for topic in response.topics
        for partition in topic.partitions
    ]


async def _with_ends(
    client: ClusterClient, committed: Sequence[GroupOffset], assigned: Collection[TopicPartition]
) -> tuple[GroupOffset, ...]:
    """Committed offsets, and partitions that are assigned without one, with the ends of their logs."""
    known = {one.tp: one for one in committed}
    for tp in assigned:
        known.setdefault(tp, GroupOffset(tp, -1, -1, "", -1))
    ends = await list_offsets(client, dict.fromkeys(known, LATEST)) if known else {}
    return tuple(_with_end(known[tp], ends[tp]) for tp in sorted(known))


def _with_end(offset: GroupOffset, end: OffsetAt | ApiError) -> GroupOffset:
    log_end_offset = -1 if isinstance(end, ApiError) else end.offset
    error = end.code if isinstance(end, ApiError) and offset.error is ErrorCode.NONE else offset.error
    return GroupOffset(offset.tp, offset.committed_offset, offset.leader_epoch, offset.metadata, log_end_offset, error)


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a member's assignment; none when it is empty or not in the consumer's format."""
    if not data:
        return ()
    try:
        assignment = decode_assignment(data)
    except MalformedRequest:
        return ()
    return tuple(sorted(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ))  # fmt: skip
