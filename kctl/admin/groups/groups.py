"""Lists, describes (with lag) and deletes groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.consuming.committed_offsets import fetch_commits, groups_per_request
from kctl.client.consuming.list_offsets import LATEST, OffsetAt, list_offsets
from kctl.client.leaders import NO_RESULT, Outcomes, on_coordinators
from kctl.client.outcome import Outcome, failure_of, outcome_of
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.lag.facts import CLASSIC, SHARE, GroupDescription, GroupMember, GroupOffset
from kctl.model import TopicPartition
from kctl.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kctl.protocol.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kctl.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.offset_fetch import OffsetFetchResponseTopic
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment

DEAD = "Dead"
LIST_WITH_STATES_VERSION_MIN = 4
LIST_WITH_TYPES_VERSION_MIN = 5
SEVERAL_MEMBERS_VERSION_MIN = 3
GROUPS_PER_REQUEST = 100


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group and its coordinator.  Brokers before 2.6 do not return the state, before 3.8 not the type."""

    group_id: str
    state: str
    protocol_type: str
    coordinator_id: int
    type: str = ""
    """Kafka's name of the type: classic, consumer, share, streams, or a newer one."""


async def list_groups(
    client: ClusterClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> tuple[list[ListedGroup], list[Outcome]]:
    """Return the groups of all brokers, and the brokers with an error; only those with `states` and `types`, if given.

    A filter that a broker does not support is UNSUPPORTED_VERSION, except for the type classic, because brokers that
    do not return types have only classic groups.
    """
    metadata = await client.metadata([])

    async def send_to(broker_id: int) -> list[ListedGroup] | Outcome:
        try:
            connection = await client.broker(broker_id)
            version = connection.versions.highest(ListGroupsRequest)
            if states and version < LIST_WITH_STATES_VERSION_MIN:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "the broker does not list the states of groups (before Kafka 2.6)",
                )
            has_types = version >= LIST_WITH_TYPES_VERSION_MIN
            if types and not has_types and CLASSIC not in types:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION, "the broker supports groups of type classic only (before Kafka 3.8)"
                )
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(types) if has_types else [])
            response = await connection.send(request, ListGroupsResponse)
        except (ApiError, ConnectionLost) as error:
            return failure_of(str(broker_id), error)
        if response.error_code:
            return outcome_of(str(broker_id), response.error_code)
        return [
            ListedGroup(group.group_id, group.group_state, group.protocol_type, broker_id, group.group_type)
            for group in response.groups
        ]

    groups: list[ListedGroup] = []
    failed: list[Outcome] = []
    for reply in await client.gather([send_to(broker_id) for broker_id in metadata.brokers]):
        if isinstance(reply, Outcome):
            failed.append(reply)
        else:
            groups.extend(reply)
    client.cache_coordinators({group.group_id: group.coordinator_id for group in groups})
    return groups, failed


async def describe_groups(client: ClusterClient, group_ids: Collection[str]) -> list[GroupDescription]:
    """Return the state, members, committed offsets and lag of the groups, by name; GROUP_ID_NOT_FOUND for unknown
    groups.
    """
    groups = await look_up_groups(client, group_ids)
    partitions = {tp for group in groups for tp in _partitions_of(group)}
    ends = await list_offsets(client, dict.fromkeys(partitions, LATEST)) if partitions else {}
    return [replace(group, offsets=_with_ends(group, ends)) for group in groups]


async def look_up_group(client: ClusterClient, group_id: str) -> GroupDescription:
    """As `look_up_groups`, for one group."""
    (group,) = await look_up_groups(client, [group_id])
    return group


async def look_up_groups(client: ClusterClient, group_ids: Collection[str]) -> list[GroupDescription]:
    """Return the groups and committed offsets by name, with -1 as the end of all partitions.

    A group of a type that kctl cannot describe has INVALID_REQUEST, with its type and state.
    """

    async def send_to(connection: Connection, names: list[str]) -> dict[str, GroupDescription | ApiError]:
        descriptions = await _described(client, connection, names)
        done = {
            name: group
            for name, group in descriptions.items()
            if isinstance(group, GroupDescription) and group.outcome.is_done
        }
        shares = [name for name, group in done.items() if group.type == SHARE]
        committed = await _committed(client, connection, [name for name in done if name not in shares])
        if shares:
            from kctl.admin.groups.newer_groups import share_offsets  # noqa: PLC0415 - few clusters have such groups

            committed |= await share_offsets(connection, shares)
        for name, offsets in committed.items():
            descriptions[name] = _with_offsets(descriptions[name], offsets, connection.address)
        return descriptions

    outcomes = await on_coordinators(client, group_ids, send_to)
    return [
        GroupDescription(Outcome(name, description.code, str(description)))
        if isinstance(description, ApiError)
        else description
        for name, description in outcomes.items()
    ]


async def delete_groups(client: ClusterClient, group_ids: Collection[str]) -> list[Outcome]:
    """Delete empty groups and their offsets; one outcome per group."""

    async def send_to(connection: Connection, names: list[str]) -> dict[str, Outcome | ApiError]:
        response = await connection.send(DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse)
        return {
            result.group_id: _moved(result.error_code) or outcome_of(result.group_id, result.error_code)
            for result in response.results
        }

    outcomes = await on_coordinators(client, group_ids, send_to)
    return [
        Outcome(name, outcome.code, str(outcome)) if isinstance(outcome, ApiError) else outcome
        for name, outcome in sorted(outcomes.items())
    ]


async def remove_members(
    client: ClusterClient, group_id: str, *, member_ids: Collection[str] = (), instance_ids: Collection[str] = ()
) -> dict[str, Outcome]:
    """Remove members by their ids, and static ones by their group.instance.id; return one outcome for each.

    The group rebalances, and a member that is alive joins again.  Raises ApiError.  KIP-345, Kafka 2.4.
    """
    members = [MemberIdentity(member_id=name) for name in member_ids]
    members += [MemberIdentity(member_id="", group_instance_id=name) for name in instance_ids]

    async def send_to(connection: Connection) -> dict[str, Outcome]:
        version = connection.versions.highest(LeaveGroupRequest)
        if version < SEVERAL_MEMBERS_VERSION_MIN:
            text = f"the broker at {connection.address} cannot remove members of groups (before Kafka 2.4)"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        request = LeaveGroupRequest(group_id=group_id, members=members)
        response = await connection.send(request, LeaveGroupResponse, version=version)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code))
        codes = {member.group_instance_id or member.member_id: member.error_code for member in response.members}
        return {name: outcome_of(name, code) for name, code in codes.items()}

    return await client.on_coordinator(group_id, send_to)


async def _described(
    client: ClusterClient, connection: Connection, names: list[str]
) -> dict[str, GroupDescription | ApiError]:
    """Describe the groups without offsets."""
    responses = await client.gather(
        [
            connection.send(DescribeGroupsRequest(groups=piece), DescribeGroupsResponse)
            for piece in _pieces(names, GROUPS_PER_REQUEST)
        ]
    )
    described = {group.group_id: group for response in responses for group in response.groups}
    unknown = [
        name
        for name, group in described.items()
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not group.error_code and group.group_state == DEAD)
    ]
    newer: Mapping[str, GroupDescription | ApiError] = {}
    if unknown:
        from kctl.admin.groups.newer_groups import describe_newer_groups  # noqa: PLC0415 - most groups are classic ones

        newer = await describe_newer_groups(connection, unknown)
    return {name: _description(group, newer.get(name)) for name, group in described.items()}


def _description(group: DescribedGroup, newer: GroupDescription | ApiError | None) -> GroupDescription | ApiError:
    moved = _moved(group.error_code)
    if moved is not None:
        return moved
    if isinstance(newer, ApiError):
        return newer
    if newer is not None:
        # Kafka's tool evaluates the state only, and ignores this message.
        return newer if group.error_code else replace(newer, refusal=None)
    if group.error_code:
        outcome = outcome_of(group.group_id, group.error_code, group.error_message)
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
        Outcome(group.group_id), CLASSIC, group.group_state, group.protocol_type, group.protocol_data, members=members
    )


def _moved(error_code: int) -> ApiError | None:
    """Return the error if it makes the client look up the coordinator again."""
    code = ErrorCode.of(error_code)
    return ApiError(code) if code in COORDINATOR_MOVED else None


async def _committed(
    client: ClusterClient, connection: Connection, names: list[str]
) -> dict[str, list[GroupOffset] | ApiError]:
    """Return all committed offsets of the groups, without the ends of the partitions."""
    pieces = _pieces(names, groups_per_request(connection)) if names else []
    replies = await client.gather([fetch_commits(connection, dict.fromkeys(piece)) for piece in pieces])
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, NO_RESULT)
    topics_by_group = {name: topics for reply in replies for name, topics in reply.items()}
    return {name: _offsets(topics_by_group.get(name, missing)) for name in names}


def _offsets(topics: list[OffsetFetchResponseTopic] | ApiError) -> list[GroupOffset] | ApiError:
    if isinstance(topics, ApiError):
        return topics
    return [
        GroupOffset(
            TopicPartition(topic.name, partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata or "",
            -1,
            ErrorCode.of(partition.error_code),
        )
        for topic in topics
        for partition in topic.partitions
    ]


def _pieces(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _with_offsets(
    group: GroupDescription | ApiError, committed: list[GroupOffset] | ApiError, coordinator: str
) -> GroupDescription | ApiError:
    if isinstance(group, ApiError):
        return group
    if isinstance(committed, ApiError):
        return committed
    if group.state == DEAD and not committed:
        return GroupDescription(outcome_of(group.outcome.name, ErrorCode.GROUP_ID_NOT_FOUND))
    return replace(group, coordinator=coordinator, offsets=tuple(sorted(committed, key=lambda offset: offset.tp)))


def _partitions_of(group: GroupDescription) -> set[TopicPartition]:
    """Return the partitions with a committed offset or assigned to a member."""
    return {offset.tp for offset in group.offsets} | {tp for member in group.members for tp in member.assignment}


def _with_ends(group: GroupDescription, ends: Outcomes[OffsetAt]) -> tuple[GroupOffset, ...]:
    """Return committed offsets, and assigned partitions without one, with the ends of their logs."""
    known = {offset.tp: offset for offset in group.offsets}
    return tuple(
        _with_end(known.get(tp) or GroupOffset(tp, -1, -1, "", -1), ends[tp]) for tp in sorted(_partitions_of(group))
    )


def _with_end(offset: GroupOffset, end: OffsetAt | ApiError) -> GroupOffset:
    log_end_offset = -1 if isinstance(end, ApiError) else end.offset
    error = end.code if isinstance(end, ApiError) and offset.error is ErrorCode.NONE else offset.error
    return replace(offset, log_end_offset=log_end_offset, error=error)


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in a member's assignment; none when it is empty or not in the consumer's format."""
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
