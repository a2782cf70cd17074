"""Cluster metadata as values: brokers, controller, topics, leaders.

Named tuples, because defining dataclasses takes longer at import than a request to a broker.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
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
        """Return the partition with this number, or None."""
        # Usually all partitions are present, in order.
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]
        return next((partition for partition in self.partitions if partition.partition == number), None)


class ClusterMetadata(NamedTuple):
    """A snapshot of the metadata; brokers and topics are sorted."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]

    def leader_of(self, tp: TopicPartition) -> tuple[int, ErrorCode]:
        """Return (node id, NONE), or (-1, error code) if there is no leader."""
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

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic that exists; brokers before Kafka 2.8 name none."""
        topic = self.topics.get(name)
        return None if topic is None or topic.topic_id == ZERO_UUID else topic.topic_id

    def awaits_election(self, tp: TopicPartition) -> bool:
        """Return whether the partition has no leader, but a live in-sync replica that the controller can elect."""
        topic = self.topics.get(tp.topic)
        partition = topic.partition(tp.partition) if topic is not None else None
        return (
            partition is not None
            and partition.leader not in self.brokers
            and any(broker in self.brokers and broker not in partition.offline_replicas for broker in partition.isr)
        )


class TopicRecreated(ApiError):
    """A topic has another id than the one whose records were read; the code is INCONSISTENT_TOPIC_ID."""

    def __init__(self, topic: str, before: UUID, now: UUID) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{topic} was deleted and created again, or belongs to another cluster: its id is {text_of_id(now)} and was"
            f" {text_of_id(before)}",
        )
        self.topic = topic


class TopicIds:
    """The ids of the topics that positions belong to (KIP-516): those of another topic of that name are void."""

    def __init__(self) -> None:
        self._ids: dict[str, UUID] = {}

    def check(self, metadata: ClusterMetadata, topics: Iterable[str]) -> None:
        """Keep the ids of topics that are seen for the first time.  Raises TopicRecreated.

        Brokers before Kafka 2.8 name no ids.
        """
        for name in topics:
            topic = metadata.topics.get(name)
            if topic is None or topic.topic_id == ZERO_UUID:
                continue
            before = self._ids.setdefault(name, topic.topic_id)
            if before != topic.topic_id:
                raise TopicRecreated(name, before, topic.topic_id)

    def get(self, topic: str) -> UUID | None:
        """Return the id of the topic that is read, as far as it is known."""
        return self._ids.get(topic)

    def forget(self, topic: str) -> None:
        """Forget the id: the next one of this name is that of the topic."""
        self._ids.pop(topic, None)


def text_of_id(topic_id: UUID) -> str:
    """Return the id as Kafka's tools show it: base64 without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def metadata_of(response: MetadataResponse) -> ClusterMetadata:
    """Convert a Metadata response."""
    brokers = {
        broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    }
    by_name = {topic.name: topic for topic in response.topics if topic.name is not None}
    topics = {name: _topic(name, by_name[name]) for name in sorted(by_name)}
    return ClusterMetadata(response.cluster_id, response.controller_id, brokers, topics)


def _topic(name: str, topic: MetadataResponseTopic) -> Topic:
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
    if error is ErrorCode.NONE and topic_name_problem(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION  # Requested by this name, which no broker can have.
    return Topic(name, topic.topic_id or ZERO_UUID, topic.is_internal, partitions, error)
