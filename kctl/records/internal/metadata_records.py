"""Records of KRaft's __cluster_metadata, its control records, and records of __remote_log_metadata."""

from __future__ import annotations

import struct as binary
from typing import Any
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode
from kctl.protocol.definition import definition_of
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
    nested,
    string,
    struct,
    uint16,
    uuid,
)
from kctl.records.header import Record
from kctl.records.internal.topics import Framed, decode_framed, encode_framed

# Records of __cluster_metadata, the log of KRaft controllers, and of its snapshots. KIP-500, KIP-631, KIP-866.
#
# A record has no key. Its value is framed (kctl.records.internal.topics). Kafka: MetadataRecordType and the definitions
# of its metadata module, all types of 4.3.


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
class UnregisterControllerRecord:
    """The registration of a controller was removed.  Since Kafka 4.4 (KIP-1312)."""

    controller_id: int = int32()


@data(versions="0", flexible="0+")
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all topics when the name is empty, were cleared."""

    topic_name: str = string()


CLUSTER_METADATA_TYPES: dict[int, type] = {
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
    29: UnregisterControllerRecord,
}
"""Classes by record type."""


def decode_cluster_metadata(value: bytes) -> Framed:
    """Decode the value of a record.  Raises MalformedRequest."""
    return decode_framed(CLUSTER_METADATA_TYPES, value)


def encode_cluster_metadata(message: object, version: int) -> bytes:
    """Encode the value of a record."""
    return encode_framed(CLUSTER_METADATA_TYPES, message, version)


# Control records of KRaft's metadata log and its snapshots. KIP-595, KIP-630, KIP-853.
#
# The type is the second number of a control record's key. Kafka: ControlRecordType and ControlRecordUtils (4.3),
# which read all of them in version 0.


_KEY = binary.Struct(">hh")
_NO_DIRECTORY = UUID(int=0)


@struct
class LeaderChangeVoter:
    """A member of the quorum."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid("1+", default=_NO_DIRECTORY, ignorable=True)


@data(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """A new leader was elected."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


@data(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The start of a snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


@data(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The end of a snapshot."""

    version: int = int16()


@data(versions="0", flexible="0+")
class KRaftVersionRecord:
    """The version of the quorum's protocol (KIP-853)."""

    version: int = int16()
    k_raft_version: int = int16()


@struct
class VoterEndpoint:
    """An endpoint of a voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class KRaftVersionFeature:
    """The versions of the quorum's protocol that a voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@struct
class Voter:
    """A member of the quorum and its endpoints."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


@data(versions="0", flexible="0+")
class VotersRecord:
    """The members of the quorum."""

    version: int = int16()
    voters: list[Voter] = array(Voter)


TYPES: dict[int, tuple[str, type]] = {
    2: ("LeaderChange", LeaderChangeMessage),
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}
"""Names as in Kafka's tools and classes, by the type in the key."""


def decode_quorum_control(record: Record) -> tuple[str, Any] | None:
    """Return (name, message) of a control record; None for end transaction markers and unknown types.

    Raises MalformedRequest.
    """
    key = record.key or b""
    found = TYPES.get(_KEY.unpack_from(key)[1]) if len(key) >= _KEY.size else None
    if found is None:
        return None
    name, cls = found
    message: Any
    message, _ = decode(cls, record.value or b"", 0)
    if message.version not in definition_of(cls).versions:
        raise MalformedRequest(f"{name} has version {message.version}")
    return name, message


# Records of __remote_log_metadata: which segments are in remote storage (KIP-405).
#
# A record has no key. Its value is framed (kctl.records.internal.topics). Kafka: RemoteLogMetadataSerde and the
# definitions of its storage module (4.3).


@struct
class TopicIdPartitionEntry:
    """A partition of a topic."""

    name: str = string()
    id: UUID = uuid()
    partition: int = int32()


@struct
class RemoteLogSegmentIdEntry:
    """A copy of a segment in remote storage."""

    topic_id_partition: TopicIdPartitionEntry = nested(TopicIdPartitionEntry)
    id: UUID = uuid()


@struct
class SegmentLeaderEpochEntry:
    """The first offset of a leader epoch."""

    leader_epoch: int = int32()
    offset: int = int64()


@data(versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    """A segment is being copied or was copied to remote storage."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = nested(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+")
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(default=False, tag=0)


@data(versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    """The state of a copied segment changed."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = nested(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = bytes_(nullable="0+")
    remote_log_segment_state: int = int8()


@data(versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    """The copies of a partition are being deleted."""

    topic_id_partition: TopicIdPartitionEntry = nested(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


@data(versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    """A copied segment, in the snapshot of a partition that a broker keeps."""

    segment_id: UUID = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+")
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(default=False, tag=0)


REMOTE_LOG_METADATA_TYPES: dict[int, type] = {
    0: RemoteLogSegmentMetadataRecord,
    1: RemoteLogSegmentMetadataUpdateRecord,
    2: RemotePartitionDeleteMetadataRecord,
    3: RemoteLogSegmentMetadataSnapshotRecord,
}
"""Classes by record type."""

SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
"""RemoteLogSegmentState by number."""
DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")
"""RemotePartitionDeleteState by number."""


def decode_remote_log_metadata(value: bytes) -> Framed:
    """Decode the value of a record.  Raises MalformedRequest."""
    return decode_framed(REMOTE_LOG_METADATA_TYPES, value)
