"""Consumer groups: list, describe with lag, delete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kctl.admin.group_description import CLASSIC, GroupDescription, GroupMember, GroupOffset
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
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment

DEAD = "Dead"
LIST_WITH_STATES_VERSION_MIN = 4
LIST_WITH_TYPES_VERSION_MIN = 5


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group and the broker that coordinates it; brokers before 2.6 do not tell the state, before 3.8 not the type."""

    group_id: str
    state: str
    protocol_type: str
    coordinator_id: int
    type: str = ""
    """As in Kafka's words: classic, consumer, share, streams, or what newer brokers may have."""


async def list_groups(
    client: ClusterClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> tuple[list[ListedGroup], list[Outcome]]:
    """The groups of all brokers as they told them, and the brokers that could not; only those in `states` and of
    `types`, if given.

    What a broker does not tell cannot be asked for: that is UNSUPPORTED_VERSION.  But one that does not tell types has
    classic groups only, so these can.
    """
    metadata = await client.metadata([])

    async def ask(broker_id: int) -> list[ListedGroup] | Outcome:
        try:
            connection = await client.broker(broker_id)
            version = connection.versions.highest(ListGroupsRequest)
            if states and version < LIST_WITH_STATES_VERSION_MIN:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not tell the states of groups in a list")
            tells_types = version >= LIST_WITH_TYPES_VERSION_MIN
            if types and not tells_types and CLASSIC not in types:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for groups of that type")
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(types) if tells_types else [])
            response = await connection.send(request, ListGroupsResponse)
        except ApiError as error:
            return Outcome(str(broker_id), error.code, str(error))
        if response.error_code:
            return outcome_of(str(broker_id), response.error_code)
        return [
            ListedGroup(group.group_id, group.group_state, group.protocol_type, broker_id, group.group_type)
            for group in response.groups
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
    """What the coordinator knows of one group, without the ends of the partitions: they are -1.

    A group that kctl cannot describe has INVALID_REQUEST, with its type and state.
    """

    async def ask(connection: Connection) -> GroupDescription:
        found = await _described(connection, group_id)
        if not found.outcome.is_done:
            return found
        committed = await _committed(connection, group_id)
        if found.state == DEAD and not committed:
            return GroupDescription(outcome_of(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
        offsets = tuple(sorted(committed, key=lambda offset: offset.tp))
        return replace(found, coordinator=connection.address, offsets=offsets)

    try:
        return await client.on_coordinator(group_id, ask)
    except ApiError as error:
        return GroupDescription(Outcome(group_id, error.code, str(error)))


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


async def _described(connection: Connection, group_id: str) -> GroupDescription:
    """The group without its offsets."""
    response = await connection.send(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
    group = response.groups[0]
    raise_if(group.error_code, *COORDINATOR_MOVED)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not group.error_code and group.group_state == DEAD):
        from kctl.admin.newer_groups import describe_newer_group  # noqa: PLC0415 - most groups are classic ones

        newer = await describe_newer_group(connection, group_id)
        if newer is not None:
            # Without an error Kafka's tool goes by the state: it does not hear the refusal.
            return newer if group.error_code else replace(newer, refusal=None)
    if group.error_code:
        outcome = outcome_of(group_id, group.error_code, group.error_message)
        return GroupDescription(outcome, refusal=group.error_message)
    is_consumer = group.protocol_type == PROTOCOL_TYPE
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
        Outcome(group_id), CLASSIC, group.group_state, group.protocol_type, group.protocol_data, members=members
    )


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
