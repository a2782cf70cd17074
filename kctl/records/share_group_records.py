"""Records of __consumer_offsets that Kafka 4 writes for share groups (KIP-932).

They are defined to display what a newer broker has written.  The number at the start of a key is the record type.
Kafka: CoordinatorRecordType and the definitions of its group coordinator (4.3).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, data, int8, int32, int64, string, struct, uuid
from kctl.records.consumer_group_records import ConsumerGroupKey, ConsumerGroupMemberKey


@data(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """The metadata of a member."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@data(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The group's epoch and a hash of the topics that it subscribes to."""

    epoch: int = int32()
    metadata_hash: int = int64()


@data(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and the time when it was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


@struct
class AssignedPartitions:
    """Partitions of a topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


@data(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[AssignedPartitions] = array(AssignedPartitions)


@data(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The current assignment of a member."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)


@struct
class NamedPartitions:
    """Partitions of a topic, with its name."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class NamedTopic:
    """A topic and its name."""

    topic_id: UUID = uuid()
    topic_name: str = string()


@data(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions with state in the share coordinator, and those whose state is being created or deleted."""

    initializing_topics: list[NamedPartitions] = array(NamedPartitions)
    initialized_topics: list[NamedPartitions] = array(NamedPartitions)
    deleting_topics: list[NamedTopic] = array(NamedTopic)


KINDS: dict[int, tuple[type, type]] = {
    10: (ConsumerGroupMemberKey, ShareGroupMemberMetadataValue),
    11: (ConsumerGroupKey, ShareGroupMetadataValue),
    12: (ConsumerGroupKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ConsumerGroupMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ConsumerGroupMemberKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ConsumerGroupKey, ShareGroupStatePartitionMetadataValue),
}
"""Classes of key and value by record type."""
