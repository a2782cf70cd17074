"""Records of __consumer_offsets that Kafka 4 writes for groups of the new consumer protocol (KIP-848).

Our coordinator neither writes nor loads them; they are here for those who look at what a newer broker has written.  The
number in front of a key is its kind.  Kafka: CoordinatorRecordType and the definitions of its group coordinator (4.3).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, bytes_, data, int8, int32, int64, nested, string, struct, uuid


@data(versions="0")
class ConsumerGroupKey:
    """Key of what concerns a whole group: its epoch, its topics, the epoch of its target assignment."""

    group_id: str = string()


@data(versions="0")
class ConsumerGroupMemberKey:
    """Key of what concerns a member: itself, its target and its current assignment."""

    group_id: str = string()
    member_id: str = string()


@data(versions="0")
class ConsumerGroupRegularExpressionKey:
    """Key of the topics that a regular expression has been resolved to."""

    group_id: str = string()
    regular_expression: str = string()


@data(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The group's epoch; the hash stands for the topics it is subscribed to, since 4.1."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


@struct
class PartitionMetadata:
    """Racks of a partition's replicas."""

    partition: int = int32()
    racks: list[str] = array(string)


@struct
class TopicMetadata:
    """A topic as the group saw it when it was last assigned."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@data(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The topics that the group is subscribed to, up to 4.0."""

    topics: list[TopicMetadata] = array(TopicMetadata)


@struct
class ClassicProtocol:
    """A protocol that a member of the classic kind supports."""

    name: str = string()
    metadata: bytes = bytes_()


@struct
class ClassicMemberMetadata:
    """Of members that use the classic protocol in a group of the new one."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@data(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """What a member has said of itself."""

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
        # Not None: Kafka writes null explicitly for members of the new protocol.
        default=ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=[]),
        tag=0,
    )


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Which epoch of the group the target assignment is for, and since 4.3 when it was worked out."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0, ignorable=True)


@struct
class TargetPartitions:
    """Partitions of a topic that a member is to have."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member is to have."""

    topic_partitions: list[TargetPartitions] = array(TargetPartitions)


@struct
class CurrentPartitions:
    """Partitions of a topic that a member has; the epochs are those in which it was given them."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, default=[])


@data(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member has, and what it has yet to give back."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentPartitions] = array(CurrentPartitions)
    partitions_pending_revocation: list[CurrentPartitions] = array(CurrentPartitions)


@data(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that matched, as of a version of the cluster's metadata."""

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
"""Classes of key and value by the number in front of the key."""
