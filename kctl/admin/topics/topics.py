"""Lists, describes, creates and deletes topics, and adds partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs
from kctl.client.cluster import ClusterClient
from kctl.client.connections.framing import first_result
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.metadata import Topic
from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.client.retrying import Deadline
from kctl.errors import ApiError, ErrorCode, MalformedRequest, UsageError
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kctl.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kctl.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

# Lists and describes topics.


async def list_topics(client: ClusterClient) -> list[Topic]:
    """Return all topics that the user is authorized to describe, by name."""
    metadata = await client.metadata()
    return list(metadata.topics.values())


async def describe_topics(client: ClusterClient, names: Collection[str]) -> list[Topic]:
    """Return the named topics, by name; those that do not exist have an error."""
    metadata = await client.metadata(names)
    return list(metadata.topics.values())


# Creates and deletes topics, and adds partitions.


BROKER_DEFAULT = -1
DEFAULTS_VERSION = 4
"""First version of CreateTopics with broker defaults (KIP-464); older ones get one partition and one replica."""

DELETE_BY_ID_VERSION = 6
"""First version of DeleteTopics with a name or an id per topic (KIP-516)."""

DELETE_TOPIC_ENABLE = "delete.topic.enable"
_DELETION_DISABLED = (
    f"{DELETE_TOPIC_ENABLE} is false, the default before Kafka 1.0: set it to true in the properties of all brokers, "
    "and restart them"
)

KNOWN_WAIT_MS = 5_000

Assignment = Sequence[Sequence[int]]
"""The replicas of each new partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create, with numbers of partitions and replicas, or an assignment."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Assignment = ()
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """Result for a NewTopic; numbers are -1 if the broker does not return them."""

    outcome: Outcome
    topic_id: UUID = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1


def require_live_replicas(assignment: Assignment, alive: Collection[int]) -> None:
    """Raise UsageError if no replica of a partition would be on a live broker.

    A controller with ZooKeeper creates such a topic, but tells no broker of it, and responds only when time is up.
    """
    for partition, replicas in enumerate(assignment):
        if not set(replicas) & set(alive):
            dead, live = (", ".join(map(str, ids)) for ids in (replicas, sorted(alive)))
            text = f"none of its brokers ({dead}) is alive; the cluster has {live}"
            raise UsageError(f"partition {partition} cannot be created: {text}")


async def create_topics(
    client: ClusterClient, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> list[CreatedTopic]:
    """Create topics, or only validate them; return when all brokers have them in their metadata."""

    async def send_to(connection: Connection) -> list[CreatedTopic]:
        version = connection.versions.highest(CreateTopicsRequest)
        request = CreateTopicsRequest(
            topics=[_creatable(topic, version) for topic in topics],
            timeout_ms=client.delayed_timeout_ms,
            validate_only=validate_only,
        )
        response = await connection.send(request, CreateTopicsResponse, version=version)
        for topic in response.topics:
            raise_if(topic.error_code, ErrorCode.NOT_CONTROLLER)
        return [
            CreatedTopic(
                outcome_of(topic.name, topic.error_code, topic.error_message),
                topic.topic_id,
                topic.num_partitions,
                topic.replication_factor,
            )
            for topic in sorted(response.topics, key=lambda topic: topic.name)
        ]

    created = await client.on_controller(send_to)
    if not validate_only:
        done = {created_topic.outcome.name for created_topic in created if created_topic.outcome.is_done}
        counts = {
            requested.name: max(requested.partitions, len(requested.assignment), 1)
            for requested in topics
            if requested.name in done
        }
        await _wait_until_known(client, counts)
    return created


async def delete_topics(client: ClusterClient, names: Collection[str]) -> list[Outcome]:
    """Delete topics with all their records.

    Before Kafka 1.0 a controller with delete.topic.enable=false, which is the default there, neither deletes nor
    refuses: it responds when the time of the request is over.  Its topics get TOPIC_DELETION_DISABLED at once.
    """

    async def send_to(connection: Connection) -> list[Outcome]:
        if not connection.versions.supports(CreatePartitionsRequest) and await _is_deletion_disabled(client):
            return [Outcome(name, ErrorCode.TOPIC_DELETION_DISABLED, _DELETION_DISABLED) for name in sorted(names)]
        version = connection.versions.highest(DeleteTopicsRequest)
        requested = sorted(names)
        by_name = version < DELETE_BY_ID_VERSION
        request = DeleteTopicsRequest(
            topics=[] if by_name else [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in requested],
            topic_names=requested if by_name else [],
            timeout_ms=client.delayed_timeout_ms,
        )
        response = await connection.send(request, DeleteTopicsResponse, version=version)
        for topic in response.responses:
            raise_if(topic.error_code, ErrorCode.NOT_CONTROLLER)
        outcomes = [outcome_of(topic.name or "", topic.error_code, topic.error_message) for topic in response.responses]
        return sorted(outcomes, key=lambda outcome: outcome.name)

    return await client.on_controller(send_to)


async def _is_deletion_disabled(client: ClusterClient) -> bool:
    """Return whether the controller says so; False if it does not describe its properties."""
    controller = ConfigResource(ResourceType.BROKER, str((await client.metadata([])).controller_id))
    described = (await describe_configs(client, [controller], names=[DELETE_TOPIC_ENABLE]))[controller]
    return not isinstance(described, Outcome) and any(
        (entry.name, entry.value) == (DELETE_TOPIC_ENABLE, "false") for entry in described
    )


async def create_partitions(
    client: ClusterClient, name: str, count: int, *, assignment: Assignment = (), validate_only: bool = False
) -> Outcome:
    """Grow a topic to `count` partitions; return when all brokers have them in their metadata.

    `assignment` has the replicas of the new partitions.
    """
    assignments = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignment] or None
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=assignments)],
        timeout_ms=client.delayed_timeout_ms,
        validate_only=validate_only,
    )

    async def send_to(connection: Connection) -> Outcome:
        response = await connection.send(request, CreatePartitionsResponse)
        result = first_result(response.results)
        raise_if(result.error_code, ErrorCode.NOT_CONTROLLER)
        return outcome_of(result.name, result.error_code, result.error_message)

    outcome = await client.on_controller(send_to)
    if outcome.is_done and not validate_only:
        await _wait_until_known(client, {name: count})
    return outcome


async def _wait_until_known(client: ClusterClient, counts: Mapping[str, int]) -> None:
    """Return when all live brokers have the partitions with leaders in their metadata, or after KNOWN_WAIT_MS.

    Brokers receive UpdateMetadata one after the other; until then they return UNKNOWN_TOPIC_OR_PARTITION, which the
    next command of the user could get.
    """
    if not counts:
        return
    deadline = Deadline(client.transport, KNOWN_WAIT_MS, client.budget)
    waiting = list((await client.metadata([])).brokers)
    while waiting:
        are_ready = await client.gather([_has_in_metadata(client, node_id, counts) for node_id in waiting])
        waiting = [node_id for node_id, is_ready in zip(waiting, are_ready, strict=True) if not is_ready]
        if waiting and not await deadline.pause():
            return


async def _has_in_metadata(client: ClusterClient, node_id: int, counts: Mapping[str, int]) -> bool:
    try:
        metadata = await client.metadata_from(await client.broker(node_id), counts)
    except (ApiError, ConnectionLost):
        return True  # A broker that fails now reads the metadata before it serves again.
    partitions_of = {name: metadata.topics[name].partitions if name in metadata.topics else () for name in counts}
    return all(
        len(partitions_of[name]) >= count and all(partition.leader >= 0 for partition in partitions_of[name])
        for name, count in counts.items()
    )


def _creatable(topic: NewTopic, version: int) -> CreatableTopic:
    default = BROKER_DEFAULT if version >= DEFAULTS_VERSION or topic.assignment else 1
    return CreatableTopic(
        name=topic.name,
        num_partitions=default if topic.partitions == BROKER_DEFAULT else topic.partitions,
        replication_factor=default if topic.replication_factor == BROKER_DEFAULT else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in sorted(topic.configs.items())],
    )


# Eligible leader replicas (KIP-966).


class EligibleLeaders(NamedTuple):
    """Replicas of a partition that are not in sync, and may become leader without loss of committed records."""

    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    """Replicas that lost this place because they were shut down uncleanly."""


async def eligible_leaders(client: ClusterClient, topics: Collection[str]) -> Mapping[TopicPartition, EligibleLeaders]:
    """Return the eligible leader replicas of the topics; empty before Kafka 3.8, and while the feature is off.

    Raises ClusterUnreachable.
    """

    async def read(connection: Connection) -> dict[TopicPartition, EligibleLeaders]:
        if not topics or not connection.versions.supports(DescribeTopicPartitionsRequest):
            return {}
        found: dict[TopicPartition, EligibleLeaders] = {}
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(topics)])
        while True:
            page = await connection.send(request, DescribeTopicPartitionsResponse)
            for topic in page.topics:
                for partition in topic.partitions:
                    if topic.name is not None and partition.eligible_leader_replicas is not None:
                        found[TopicPartition(topic.name, partition.partition_index)] = EligibleLeaders(
                            tuple(partition.eligible_leader_replicas), tuple(partition.last_known_elr or ())
                        )
            if page.next_cursor is None:
                return found
            at, next_at = _place(request.cursor), _place(page.next_cursor)
            if next_at <= at:
                raise MalformedRequest(f"{connection.address}: the pages of DescribeTopicPartitions do not end")
            request = replace(request, cursor=page.next_cursor)

    return await client.on_any_broker(read)


def _place(cursor: Cursor | None) -> tuple[str, int]:
    return ("", -1) if cursor is None else (cursor.topic_name, cursor.partition_index)
