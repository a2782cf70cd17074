"""Cluster metadata as values: brokers, controller, topics, leaders.

Named tuples, because defining dataclasses takes longer at import than a request to a broker.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID, TopicPartition, topic_name_problem
from kctl.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic


class Broker(NamedTuple):
    """A live broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"


class Partition(NamedTuple):
    """Replicas and leader of one partition; `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: ErrorCode


class Topic(NamedTuple):
    """One topic; with an error other than NONE the other fields may be empty."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[Partition, ...]
    error: ErrorCode

    def partition(self, number: int) -> Partition | None:
        """The partition with this number, or None."""
        # Usually all partitions are present, in order.
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]
        return next((one for one in self.partitions if one.partition == number), None)


class ClusterMetadata(NamedTuple):
    """A snapshot of the metadata; brokers and topics are sorted."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]

    def leader_of(self, tp: TopicPartition) -> tuple[int, ErrorCode]:
        """(node id, NONE), or (-1, error code) if there is no leader."""
        topic = self.topics.get(tp.topic)
        if topic is None:
            return -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.error is not ErrorCode.NONE:
            return -1, topic.error
        partition = topic.partition(tp.partition)
        if partition is None:
            return -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader not in self.brokers:
            return -1, ErrorCode.LEADER_NOT_AVAILABLE
        return partition.leader, ErrorCode.NONE

    def awaits_election(self, tp: TopicPartition) -> bool:
        """Whether the partition has no leader, but a live in-sync replica that the controller can elect."""
        topic = self.topics.get(tp.topic)
        partition = topic.partition(tp.partition) if topic is not None else None
        return (
            partition is not None
            and partition.leader not in self.brokers
            and any(broker in self.brokers and broker not in partition.offline_replicas for broker in partition.isr)
        )


def metadata_of(response: MetadataResponse) -> ClusterMetadata:
    """Converts a Metadata response."""
    brokers = {
        broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    }
    topics = {topic.name: _topic(topic) for topic in sorted(response.topics, key=lambda topic: topic.name)}
    return ClusterMetadata(response.cluster_id, response.controller_id, brokers, topics)


def _topic(topic: MetadataResponseTopic) -> Topic:
    partitions = tuple(
        Partition(
            partition=partition.partition_index,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replicas=tuple(partition.replica_nodes),
            isr=tuple(partition.isr_nodes),
            offline_replicas=tuple(partition.offline_replicas),
            error=ErrorCode.of(partition.error_code),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    error = ErrorCode.of(topic.error_code)
    if error is ErrorCode.NONE and topic_name_problem(topic.name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION  # Requested by this name, which no broker can have.
    return Topic(topic.name, topic.topic_id or ZERO_UUID, topic.is_internal, partitions, error)
