"""Records of __consumer_offsets that Kafka 4 writes for share groups (KIP-932).

They are here for those who look at what a newer broker has written.  The number in front of a key is its kind.  Kafka:
CoordinatorRecordType and the definitions of its group coordinator (4.3).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, data, int8, int32, int64, string, struct, uuid
from kctl.records.consumer_group_records import ConsumerGroupKey, ConsumerGroupMemberKey


@data(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """What a member has said of itself."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@data(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The group's epoch; the hash stands for the topics it is subscribed to."""

    epoch: int = int32()
    metadata_hash: int = int64()


@data(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """Which epoch of the group the target assignment is for, and when it was worked out."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


@struct
class AssignedPartitions:
    """Partitions of a topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


@data(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """What a member is to have."""

    topic_partitions: list[AssignedPartitions] = array(AssignedPartitions)


@data(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """What a member has."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)


@struct
class NamedPartitions:
    """Partitions of a topic, and its name."""

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
    """For which partitions the share coordinator has state, is to make it or to delete it."""

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
"""Classes of key and value by the number in front of the key."""
