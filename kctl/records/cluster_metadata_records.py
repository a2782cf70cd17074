"""Records of __cluster_metadata, the log of KRaft controllers, and of its snapshots.  KIP-500, KIP-631, KIP-866.

A record has no key.  Its value is framed (kctl.records.framed).  Kafka: MetadataRecordType and the definitions of its
metadata module, all types of 4.3.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import (
    array,
    boolean,
    bytes_,
    data,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)
from kctl.records.framed import Framed, decode_framed


@struct
class Endpoint:
    """An endpoint of a broker or controller."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class FeatureRange:
    """The versions of a feature that a broker or controller supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@data(versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker registered with the active controller."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+", default=False)
    incarnation_id: UUID = uuid()
    broker_epoch: int = int64()
    end_points: list[Endpoint] = array(Endpoint)
    features: list[FeatureRange] = array(FeatureRange)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean()
    in_controlled_shutdown: bool = boolean("1+", default=False)
    log_dirs: list[UUID] = array(uuid, "3+", default=[], tag=0)
    cordoned_log_dirs: list[UUID] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


@data(versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A registration was removed."""

    broker_id: int = int32()
    broker_epoch: int = int64()


@data(versions="0", flexible="0+")
class TopicRecord:
    """A topic was created."""

    name: str = string()
    topic_id: UUID = uuid()


@data(versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition was created, or its whole state is repeated in a snapshot."""

    partition_id: int = int32()
    topic_id: UUID = uuid()
    replicas: list[int] = array(int32)
    """Broker ids, preferred leader first."""
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32()
    """-1 without a leader."""
    leader_recovery_state: int = int8(default=0, tag=0)
    """0 recovered, 1 recovering after an unclean election (KIP-704)."""
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    directories: list[UUID] = array(uuid, "1+", default=[])
    """Log directory ids, one per replica (KIP-858)."""
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    """Replicas outside of the ISR that may be elected without losing records (KIP-966)."""
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)
    """Last members of the ISR and the eligible leader replicas, for unclean elections (KIP-966)."""


@data(versions="0", flexible="0+")
class ConfigRecord:
    """A property was set, or deleted when the value is null."""

    resource_type: int = int8()
    """As in DescribeConfigs: 2 topic, 4 broker."""
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@data(versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """The changes of a partition; absent fields are unchanged."""

    partition_id: int = int32()
    topic_id: UUID = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    """-1 without a leader, -2 unchanged."""
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    """-1 unchanged."""
    directories: list[UUID] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


@data(versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker was fenced; up to 3.2, later BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()


@data(versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker was unfenced; up to 3.2, later BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()


@data(versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic and all its partitions were deleted."""

    topic_id: UUID = uuid()


@data(versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token was created or renewed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@data(versions="0", flexible="0+")
class UserScramCredentialRecord:
    """A SCRAM credential was set."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


@data(versions="0", flexible="0+")
class FeatureLevelRecord:
    """The finalized version of a feature; 0 removes the feature."""

    name: str = string()
    feature_level: int = int16()


@struct
class EntityData:
    """One part of a quota entity; a null name is the default entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@data(versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota was set or removed."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@data(versions="0", flexible="0+")
class ProducerIdsRecord:
    """A block of producer ids was allocated to a broker."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    next_producer_id: int = int64()


@data(versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """The changes of a registration: 1 for set, -1 for cleared, 0 for unchanged."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(default=0, tag=0)
    in_controlled_shutdown: int = int8("1+", default=0, tag=1)
    log_dirs: list[UUID] = array(uuid, "2+", default=[], tag=2)
    cordoned_log_dirs: list[UUID] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


@data(versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL was added."""

    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@data(versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An ACL was removed."""

    id: UUID = uuid()


@data(versions="0", flexible="0+")
class NoOpRecord:
    """No change; written to advance the log end offset."""


@data(versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """The state of the migration from ZooKeeper (KIP-866)."""

    zk_migration_state: int = int8()


@data(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A SCRAM credential was removed."""

    name: str = string()
    mechanism: int = int8()


@data(versions="0", flexible="0+")
class BeginTransactionRecord:
    """The records up to the end or abort are applied atomically (KIP-868)."""

    name: str | None = string(nullable="0+", default=None, tag=0)


@data(versions="0", flexible="0+")
class EndTransactionRecord:
    """Ends a transaction: its records are applied."""


@data(versions="0", flexible="0+")
class AbortTransactionRecord:
    """Aborts a transaction: its records are ignored."""

    reason: str | None = string(nullable="0+", default=None, tag=0)


@data(versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token was removed."""

    token_id: str = string()


@data(versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller registered with the active controller."""

    controller_id: int = int32()
    incarnation_id: UUID = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[Endpoint] = array(Endpoint)
    features: list[FeatureRange] = array(FeatureRange)


@data(versions="0", flexible="0+")
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all topics when the name is empty, were cleared."""

    topic_name: str = string()


TYPES: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
"""Classes by record type."""


def decode_cluster_metadata(value: bytes) -> Framed:
    """Decode the value of a record.  Raises MalformedRequest."""
    return decode_framed(TYPES, value)
