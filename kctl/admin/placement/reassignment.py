"""Lists, starts and cancels reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.outcome import Outcome, outcome_of
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@dataclass(frozen=True, slots=True)
class Ongoing:
    """One ongoing reassignment; `replicas` includes added and removed ones, those of the target first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment, the preferred leader first."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment, in unknown order."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)


async def list_reassignments(
    client: ClusterClient, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Ongoing]:
    """Return the ongoing reassignments of the partitions, or all.  Raises ApiError."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]

    async def send_to(connection: Connection) -> dict[TopicPartition, Ongoing]:
        request = ListPartitionReassignmentsRequest(timeout_ms=client.settings.timeout_ms, topics=topics)
        response = await connection.send(request, ListPartitionReassignmentsResponse)
        _raise_whole(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, partition.partition_index): Ongoing(
                tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
            )
            for topic in sorted(response.topics, key=lambda topic: topic.name)
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        }

    return await client.on_controller(send_to)


async def alter_reassignments(
    client: ClusterClient, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, Outcome]:
    """Start the reassignment of each partition to its target; None cancels it.  Raises ApiError."""
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=_listed(targets[TopicPartition(topic, number)]))
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(targets).items()
    ]

    async def send_to(connection: Connection) -> dict[TopicPartition, Outcome]:
        request = AlterPartitionReassignmentsRequest(timeout_ms=client.settings.timeout_ms, topics=topics)
        response = await connection.send(request, AlterPartitionReassignmentsResponse)
        _raise_whole(response.error_code, response.error_message)
        outcomes = {}
        for topic in response.responses:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                outcomes[tp] = outcome_of(str(tp), partition.error_code, partition.error_message)
        return {tp: outcomes[tp] for tp in sorted(outcomes)}

    return await client.on_controller(send_to)


def by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _listed(target: tuple[int, ...] | None) -> list[int] | None:
    return None if target is None else list(target)


def _raise_whole(error_code: int, message: str | None) -> None:
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, message)


NOT_LISTED = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


async def ongoing_if_supported(client: ClusterClient) -> Mapping[TopicPartition, Ongoing]:
    """Return the ongoing reassignments; empty if the brokers are older than 2.4 or the user is denied."""
    try:
        return await list_reassignments(client)
    except ApiError as error:
        if error.code in NOT_LISTED:
            return {}
        raise
