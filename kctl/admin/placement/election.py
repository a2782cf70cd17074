"""Leader elections on request: preferred, or unclean if no in-sync replica is alive (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kctl.admin.placement.plan import partition_of
from kctl.admin.placement.reassignment import by_topic
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.metadata import ClusterMetadata, Partition, metadata_of
from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.client.retrying import Deadline
from kctl.errors import ApiError, ErrorCode
from kctl.model import NO_LEADER, TopicPartition
from kctl.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

UNCLEAN_VERSION_MIN = 1
"""Older versions of ElectLeaders only support preferred elections."""
NEW_LEADERS_WAIT_MS = 10_000


class ElectionType(IntEnum):
    """Election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Election:
    """Result, or expected result, of the election of one partition; NO_LEADER stands for no leader."""

    tp: TopicPartition
    leader_before: int
    leader: int
    outcome: Outcome

    @property
    def is_needed(self) -> bool:
        """False if the partition already had the leader that the election would select (ELECTION_NOT_NEEDED)."""
        return self.outcome.error is not ErrorCode.ELECTION_NOT_NEEDED

    @property
    def is_elected(self) -> bool:
        """True if the election succeeded, or would succeed."""
        return self.outcome.is_done


def expected_leader(kind: ElectionType, partition: Partition, live: Container[int]) -> int | ErrorCode:
    """Return the leader that an election would select, or the error.

    Kafka's Election.scala (2.8), based on metadata.
    """
    alive = [replica for replica in partition.replicas if replica in live and replica not in partition.offline_replicas]
    in_sync = [replica for replica in alive if replica in partition.isr]
    if kind is ElectionType.PREFERRED:
        preferred = partition.replicas[0] if partition.replicas else NO_LEADER
        if partition.leader == preferred:
            return ErrorCode.ELECTION_NOT_NEEDED
        return preferred if preferred in in_sync else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if partition.leader != NO_LEADER and partition.leader in live:
        return ErrorCode.ELECTION_NOT_NEEDED
    candidates = in_sync or alive
    return candidates[0] if candidates else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def predict_elections(
    kind: ElectionType, metadata: ClusterMetadata, partitions: Collection[TopicPartition] | None
) -> list[Election]:
    """Return the expected results of an election; for all partitions, only those that need one."""
    predicted = [
        _predict(kind, metadata, tp) for tp in sorted(all_partitions(metadata) if partitions is None else partitions)
    ]
    return [election for election in predicted if partitions is not None or election.is_needed]


def all_partitions(metadata: ClusterMetadata) -> list[TopicPartition]:
    """Return all partitions of the cluster."""
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in metadata.topics.values()
        for partition in topic.partitions
    ]


async def elect_leaders(
    client: ClusterClient, kind: ElectionType, partitions: Sequence[TopicPartition] | None, before: ClusterMetadata
) -> list[Election]:
    """Elect leaders; for all partitions, return only those that needed an election.  Raises ApiError."""
    requested = None
    if partitions is not None:
        requested = [
            TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ]

    async def send_to(connection: Connection) -> list[Election]:
        version = connection.versions.highest(ElectLeadersRequest)
        if version < UNCLEAN_VERSION_MIN and kind is not ElectionType.PREFERRED:
            text = f"the broker at {connection.address} supports preferred elections only (before Kafka 2.4)"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=requested, timeout_ms=client.delayed_timeout_ms
        )
        response = await connection.send(request, ElectLeadersResponse, version=version)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code))
        outcomes: dict[TopicPartition, Outcome] = {}
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                raise_if(result.error_code, ErrorCode.NOT_CONTROLLER)
                tp = TopicPartition(topic.topic, result.partition_id)
                outcomes[tp] = outcome_of(str(tp), result.error_code, result.error_message)
        after = await _metadata_after(client, connection, before, outcomes)
        return [
            Election(tp, _leader(before, tp), _leader(after, tp), outcome) for tp, outcome in sorted(outcomes.items())
        ]

    return await client.on_controller(send_to)


async def _metadata_after(
    client: ClusterClient, connection: Connection, before: ClusterMetadata, outcomes: Mapping[TopicPartition, Outcome]
) -> ClusterMetadata:
    """Return the metadata of the controller's broker: new leaders appear there first, in Apache Kafka after the
    response.
    """
    topics = [MetadataRequestTopic(name=name) for name in by_topic(outcomes)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    elected = [tp for tp, outcome in outcomes.items() if outcome.is_done]
    deadline = Deadline(client.transport, NEW_LEADERS_WAIT_MS, client.budget)
    while True:
        after = metadata_of(await connection.send(request, MetadataResponse))
        if all(_leader(after, tp) != _leader(before, tp) for tp in elected) or not await deadline.pause():
            return after


def _predict(kind: ElectionType, metadata: ClusterMetadata, tp: TopicPartition) -> Election:
    partition = partition_of(metadata, tp)
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Election(tp, NO_LEADER, NO_LEADER, Outcome(str(tp), code, f"there is no partition {tp}"))
    expected = expected_leader(kind, partition, metadata.brokers)
    if isinstance(expected, ErrorCode):
        outcome = Outcome(str(tp), expected, expected.description)
        return Election(tp, partition.leader, partition.leader, outcome)
    return Election(tp, partition.leader, expected, Outcome(str(tp)))


def _leader(metadata: ClusterMetadata, tp: TopicPartition) -> int:
    partition = partition_of(metadata, tp)
    return NO_LEADER if partition is None else partition.leader
