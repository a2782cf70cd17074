"""Records of __consumer_offsets that Kafka 4 writes for groups of the consumer protocol (KIP-848).

kctl's coordinator neither writes nor loads them; they are defined to display what a newer broker has written.  The
number at the start of a key is the record type.  Kafka: CoordinatorRecordType and the definitions of its group
coordinator (4.3).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, bytes_, data, int8, int32, int64, nested, string, struct, uuid


@data(versions="0")
class ConsumerGroupKey:
    """Key of the records of a whole group: its epoch, its topics, the epoch of its target assignment."""

    group_id: str = string()


@data(versions="0")
class ConsumerGroupMemberKey:
    """Key of the records of a member: its metadata, its target assignment and its current assignment."""

    group_id: str = string()
    member_id: str = string()


@data(versions="0")
class ConsumerGroupRegularExpressionKey:
    """Key of the topics that match a regular expression."""

    group_id: str = string()
    regular_expression: str = string()


@data(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The group's epoch; since 4.1 with a hash of the topics that it subscribes to."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


@struct
class PartitionMetadata:
    """The racks of a partition's replicas."""

    partition: int = int32()
    racks: list[str] = array(string)


@struct
class TopicMetadata:
    """A topic as of the last assignment of the group."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@data(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The topics that the group subscribes to, up to 4.0."""

    topics: list[TopicMetadata] = array(TopicMetadata)


@struct
class ClassicProtocol:
    """A protocol that a member of the classic protocol supports."""

    name: str = string()
    metadata: bytes = bytes_()


@struct
class ClassicMemberMetadata:
    """A member of the classic protocol in a group of the consumer protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@data(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """The metadata of a member."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata,
        "0+",
        nullable="0+",
        # The default is not None: Kafka writes null explicitly for members of the new protocol.
        default=ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=[]),
        tag=0,
    )


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and since 4.3 the time when it was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0, ignorable=True)


@struct
class TargetPartitions:
    """Partitions of a topic in a target assignment."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TargetPartitions] = array(TargetPartitions)


@struct
class CurrentPartitions:
    """Partitions of a topic that a member owns, with the epochs in which they were assigned."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, default=[])


@data(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a member owns and those that it has to revoke."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentPartitions] = array(CurrentPartitions)
    partitions_pending_revocation: list[CurrentPartitions] = array(CurrentPartitions)


@data(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that match a regular expression, as of a version of the cluster's metadata."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


KINDS: dict[int, tuple[type, type]] = {
    3: (ConsumerGroupKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupMemberKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Classes of key and value by record type."""
