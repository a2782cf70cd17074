"""The state of a cluster after the records of its metadata log.  Kafka: MetadataImage and the deltas of its parts.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kctl.migration.source.cluster import Entity, ScramUser
from kctl.model import LeaderAndIsr
from kctl.records.internal import metadata_records as records
from kctl.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.security.scram import Mechanism, ScramCredential
from kctl.zookeeper.security_znodes import TokenZnode

_UNCHANGED = -2


@dataclass(slots=True)
class ImagePartition:
    """A partition."""

    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: list[int] = field(default_factory=list)
    """Eligible leader replicas: they have all committed records, and are not in the ISR any more (KIP-966)."""
    last_known: list[int] = field(default_factory=list)
    """The last leader, if there is neither an ISR nor an eligible leader replica."""

    @property
    def in_sync(self) -> list[int]:
        """The ISR for brokers before KIP-966, where it was never empty and only its members are elected.

        With eligible leader replicas the last member leaves the ISR when its broker is stopped.
        """
        return self.isr or self.elr or self.last_known

    def state(self, controller_epoch: int) -> LeaderAndIsr:
        """Return its state as in a znode."""
        return LeaderAndIsr(self.leader, self.leader_epoch, tuple(self.in_sync), controller_epoch, 0)


@dataclass(slots=True)
class ImageTopic:
    """A topic."""

    topic_id: UUID
    name: str
    partitions: dict[int, ImagePartition] = field(default_factory=dict)


@dataclass(slots=True)
class Image:
    """What the metadata log says."""

    topics: dict[UUID, ImageTopic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """By type of the resource and its name."""
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    scram: dict[ScramUser, ScramCredential] = field(default_factory=dict)
    acls: dict[UUID, AclBinding] = field(default_factory=dict)
    tokens: dict[str, TokenZnode] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0


def partitions_elsewhere(image: Image, brokers: Collection[int]) -> tuple[list[str], list[str]]:
    """Return the partitions without an in-sync replica on the brokers, and the others with a replica elsewhere."""
    lost, others = [], []
    for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
        for number, partition in sorted(topic.partitions.items()):
            if not any(replica in brokers for replica in partition.in_sync):
                lost.append(f"{topic.name}-{number}")
            elif any(replica not in brokers for replica in partition.replicas):
                others.append(f"{topic.name}-{number}")
    return lost, others


def replay(messages: Iterable[Any]) -> Image:
    """Return the state after the messages; those of a transaction that was aborted or has no end are left out."""
    image = Image()
    pending: list[Any] | None = None
    for message in messages:
        match message:
            case records.BeginTransactionRecord():
                pending = []
            case records.AbortTransactionRecord():
                pending = None
            case records.EndTransactionRecord():
                for applied in pending or ():
                    _apply(image, applied)
                pending = None
            case _ if pending is not None:
                pending.append(message)
            case _:
                _apply(image, message)
    return image


def _apply(image: Image, message: Any) -> None:
    match message:
        case records.TopicRecord():
            image.topics[message.topic_id] = ImageTopic(message.topic_id, message.name)
        case records.RemoveTopicRecord():
            removed = image.topics.pop(message.topic_id, None)
            if removed is not None:
                image.configs.pop((int(ResourceType.TOPIC), removed.name), None)
        case records.PartitionRecord():
            image.topics[message.topic_id].partitions[message.partition_id] = ImagePartition(
                message.replicas,
                message.isr,
                message.adding_replicas,
                message.removing_replicas,
                message.leader,
                message.leader_epoch,
                message.partition_epoch,
                message.eligible_leader_replicas or [],
                message.last_known_elr or [],
            )
        case records.PartitionChangeRecord():
            _change(image.topics[message.topic_id].partitions[message.partition_id], message)
        case records.ClearElrRecord():
            for topic in image.topics.values():
                if message.topic_name in {"", topic.name}:
                    for partition in topic.partitions.values():
                        partition.elr, partition.last_known = [], []
        case records.ConfigRecord():
            config = image.configs.setdefault((message.resource_type, message.resource_name), {})
            if message.value is None:
                config.pop(message.name, None)
            else:
                config[message.name] = message.value
        case records.FeatureLevelRecord():
            image.features[message.name] = message.feature_level
        case records.ProducerIdsRecord():
            image.next_producer_id = max(image.next_producer_id, message.next_producer_id)
        case records.ClientQuotaRecord():
            _change_quota(image, message)
        case _:
            _apply_security(image, message)


def _change(partition: ImagePartition, change: records.PartitionChangeRecord) -> None:
    """Kafka: PartitionRegistration.merge."""
    if change.isr is not None:
        partition.isr = change.isr
    if change.replicas is not None:
        partition.replicas = change.replicas
    if change.adding_replicas is not None:
        partition.adding = change.adding_replicas
    if change.removing_replicas is not None:
        partition.removing = change.removing_replicas
    if change.eligible_leader_replicas is not None:
        partition.elr = change.eligible_leader_replicas
    if change.last_known_elr is not None:
        partition.last_known = change.last_known_elr
    if change.leader != _UNCHANGED:
        partition.leader = change.leader
        partition.leader_epoch += 1
    partition.partition_epoch += 1


def _change_quota(image: Image, message: records.ClientQuotaRecord) -> None:
    entity = Entity(tuple(sorted(((part.entity_type, part.entity_name) for part in message.entity), reverse=True)))
    quotas = image.quotas.setdefault(entity, {})
    if message.remove:
        quotas.pop(message.key, None)
    else:
        quotas[message.key] = message.value


def _apply_security(image: Image, message: Any) -> None:
    match message:
        case records.AccessControlEntryRecord():
            pattern = ResourcePattern(
                ResourceType(message.resource_type), message.resource_name, PatternType(message.pattern_type)
            )
            entry = AclEntry(
                message.principal, message.host, Operation(message.operation), Permission(message.permission_type)
            )
            image.acls[message.id] = AclBinding(pattern, entry)
        case records.RemoveAccessControlEntryRecord():
            image.acls.pop(message.id, None)
        case records.UserScramCredentialRecord():
            image.scram[ScramUser(message.name, Mechanism(message.mechanism))] = ScramCredential(
                message.salt, message.stored_key, message.server_key, message.iterations
            )
        case records.RemoveUserScramCredentialRecord():
            image.scram.pop(ScramUser(message.name, Mechanism(message.mechanism)), None)
        case records.DelegationTokenRecord():
            image.tokens[message.token_id] = TokenZnode(
                message.token_id,
                message.owner,
                tuple(message.renewers),
                message.issue_timestamp,
                message.max_timestamp,
                message.expiration_timestamp,
            )
        case records.RemoveDelegationTokenRecord():
            image.tokens.pop(message.token_id, None)
        case _:
            pass  # Registrations of brokers and controllers, and others that ZooKeeper does not have.
