"""The cluster's brokers, topics and leaders, from UpdateMetadata requests.

Metadata, FindCoordinator and topic creation use this cache, never ZooKeeper.  Kafka: MetadataCache.

Owner: event loop.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kctl.model import LEADER_DURING_DELETE, ZERO_UUID, Endpoint, TopicPartition
from kctl.protocol.apis.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest

UNKNOWN_CONTROLLER = -1
_PLACEHOLDER = "\0"


def is_placeholder(topic: str) -> bool:
    """Return whether this stands for a topic id that is unknown."""
    return topic[:1] == _PLACEHOLDER


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the broker's endpoint for this listener; None if it does not have the listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class PartitionInfo(NamedTuple):
    """The state of one partition: a tuple of atomic values, which the garbage collector does not visit."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(slots=True)
class TopicUpdate:
    """Changes of one topic."""

    topic_id: UUID = ZERO_UUID
    changed: dict[int, PartitionInfo] = field(default_factory=dict)
    deleted: list[int] = field(default_factory=list)


class MetadataUpdate:
    """Changes of topics in the form of the cache: converting takes longer than storing, and may be done in parts."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicUpdate] = {}

    def add(self, request: UpdateMetadataRequest) -> None:
        """Convert the partitions of a request."""
        for topic in request.topic_states:
            update = self._topic(topic.topic_name)
            if topic.topic_id != ZERO_UUID:
                update.topic_id = topic.topic_id
            for state in topic.partition_states:
                _add(state, update)
        for state in request.ungrouped_partition_states:
            _add(state, self._topic(state.topic_name))

    def _topic(self, name: str) -> TopicUpdate:
        update = self.topics.get(name)
        if update is None:
            update = self.topics[name] = TopicUpdate()
        return update


def _add(state: UpdateMetadataPartitionState, update: TopicUpdate) -> None:
    if state.leader == LEADER_DURING_DELETE:
        update.deleted.append(state.partition_index)
        return
    update.changed[state.partition_index] = PartitionInfo(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        tuple(state.offline_replicas),
    )


class MetadataCache:
    """`update` applies a request of the current controller; the other methods are queries."""

    def __init__(self) -> None:
        self.controller_id = UNKNOWN_CONTROLLER
        self.brokers: dict[int, LiveBroker] = {}
        self._topics: dict[str, dict[int, PartitionInfo]] = {}
        self._topic_ids: dict[str, UUID] = {}
        self.names_by_id: dict[bytes, str] = {}
        """The names of topics by the bytes of their ids; always this object, which readers of requests keep."""
        self._partition_count = 0
        self.topics_version = 0
        """Increases whenever a topic is created or deleted, or gets partitions."""

    def racks(self) -> dict[int, str | None]:
        """Return the live brokers with their racks."""
        return {broker_id: broker.rack for broker_id, broker in self.brokers.items()}

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply brokers and partitions; return the partitions that were deleted."""
        update = MetadataUpdate()
        update.add(request)
        return self.apply(request, update)

    def apply(self, request: UpdateMetadataRequest, update: MetadataUpdate) -> list[TopicPartition]:
        """As `update`, with the brokers of a request and partitions that have been converted, which are kept."""
        self.controller_id = request.controller_id
        self.brokers = {
            broker.id: LiveBroker(
                broker.id,
                tuple(
                    Endpoint(e.listener, e.host, e.port, _PROTOCOLS.get(e.security_protocol, "PLAINTEXT"))
                    for e in broker.endpoints
                ),
                broker.rack,
            )
            for broker in request.live_brokers
        }
        deleted: list[TopicPartition] = []
        for name, topic in update.topics.items():
            if topic.topic_id != ZERO_UUID:
                former = self._topic_ids.get(name)
                if former != topic.topic_id:
                    self.topics_version += 1
                    if former is not None:
                        # Whoever has the id of the topic before must not write to this one.
                        self.names_by_id.pop(former.bytes, None)
                    self._topic_ids[name] = topic.topic_id
                    self.names_by_id[topic.topic_id.bytes] = name
            if topic.changed:
                known = self._topics.get(name)
                count = len(known or ())
                self._partition_count -= count
                if known is None:
                    known = self._topics[name] = topic.changed  # Copying 80,000 partitions takes 10 ms.
                else:
                    known.update(topic.changed)
                self._partition_count += len(known)
                self.topics_version += len(known) != count
            if topic.deleted:
                self._delete(name, topic.deleted)
                deleted += [TopicPartition(name, index) for index in topic.deleted]
        return deleted

    def _delete(self, topic: str, indexes: Iterable[int]) -> None:
        partitions = self._topics.get(topic, {})
        for index in indexes:
            if partitions.pop(index, None) is not None:
                self._partition_count -= 1
        self.topics_version += 1
        if not partitions:
            self._topics.pop(topic, None)
            topic_id = self._topic_ids.pop(topic, None)
            if topic_id is not None:
                self.names_by_id.pop(topic_id.bytes, None)

    @property
    def topics(self) -> Collection[str]:
        """The names of all topics."""
        return self._topics.keys()

    def partitions(self, topic: str) -> dict[int, PartitionInfo] | None:
        """Return the partitions of a topic by index, or None if the topic does not exist."""
        return self._topics.get(topic)

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        """Return the state of a partition, or None if it does not exist."""
        return self._topics.get(topic_partition.topic, {}).get(topic_partition.partition)

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists."""
        return partition in self._topics.get(topic, ())

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of the topic, or None if the topic does not exist."""
        partitions = self._topics.get(topic)
        return None if partitions is None else len(partitions)

    def total_partition_count(self) -> int:
        """Return the number of partitions of the cluster."""
        return self._partition_count

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id; the zero id if it has none."""
        return self._topic_ids.get(topic, ZERO_UUID)

    def partition_racks(self, topic: str) -> list[list[str]]:
        """Return the racks of the replicas of each partition."""
        racks = {broker_id: broker.rack for broker_id, broker in self.brokers.items() if broker.rack is not None}
        partitions = self._topics.get(topic, {})
        return [
            [racks[broker_id] for broker_id in partitions[number].replicas if broker_id in racks]
            for number in sorted(partitions)
        ]

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self.names_by_id.get(topic_id.bytes)

    def name_or_placeholder(self, topic_id: UUID) -> str:
        """Return the name of the topic with this id, or one that no topic has; see `is_placeholder`."""
        return self.names_by_id.get(topic_id.bytes) or _PLACEHOLDER + topic_id.hex

    def has_leaders(self, topic: str, partition_count: int) -> bool:
        """Return whether the topic has at least `partition_count` partitions, each with a live leader."""
        partitions = self._topics.get(topic)
        if partitions is None or len(partitions) < partition_count:
            return False
        return all(info.leader in self.brokers for info in partitions.values())


_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
