"""Records of __consumer_offsets and __share_group_state that Kafka 4 writes for groups of newer types."""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, bytes_, data, int8, int16, int32, int64, nested, string, struct, uint16, uuid

# Records of __consumer_offsets that Kafka 4 writes for groups of the consumer protocol (KIP-848).
#
# kctl's coordinator writes and loads them too, if it serves the consumer protocol. The number at the start of a key is
# the record type. Kafka: CoordinatorRecordType and the definitions of its group coordinator (4.3).


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


CONSUMER_GROUP_KINDS: dict[int, tuple[type, type]] = {
    3: (ConsumerGroupKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupMemberKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Classes of key and value by record type."""


# Records of __consumer_offsets that Kafka 4 writes for share groups (KIP-932).
#
# kctl's coordinator writes and loads them too, if it serves share groups. The number at the start of a key is the
# record type. Kafka: CoordinatorRecordType and the definitions of its group coordinator (4.3).


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


SHARE_GROUP_KINDS: dict[int, tuple[type, type]] = {
    10: (ConsumerGroupMemberKey, ShareGroupMemberMetadataValue),
    11: (ConsumerGroupKey, ShareGroupMetadataValue),
    12: (ConsumerGroupKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ConsumerGroupMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ConsumerGroupMemberKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ConsumerGroupKey, ShareGroupStatePartitionMetadataValue),
}
"""Classes of key and value by record type."""


# Records of __share_group_state, which share coordinators of Kafka 4 write (KIP-932).
#
# The number at the start of a key is the record type. Kafka: CoordinatorRecordType of the share coordinator (4.3).


@data(versions="0")
class ShareSnapshotKey:
    """Key of a snapshot of a share-partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@struct
class StateBatch:
    """Consecutive offsets in the same state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@data(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share-partition."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@data(versions="0")
class ShareUpdateKey:
    """Key of a change since the last snapshot."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@data(versions="0", flexible="0+")
class ShareUpdateValue:
    """A change of the state; start offset -1 means unchanged."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)


SHARE_GROUP_STATE_KINDS: dict[int, tuple[type, type]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
"""Classes of key and value by record type."""


# Records of __consumer_offsets that Kafka 4 writes for groups of Kafka Streams (KIP-1071).
#
# They are defined to display what a newer broker has written. The number at the start of a key is the record type.
# Kafka: CoordinatorRecordType and the definitions of its group coordinator (4.3).


@struct
class KeyValue:
    """A tag of a client, or a property of an internal topic or an assignor."""

    key: str = string()
    value: str = string()


@data(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The group's epoch and a hash of the topics of its topology."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[KeyValue] | None = array(KeyValue, nullable="0+", default=[], tag=1)


@struct
class Endpoint:
    """The endpoint of a client for interactive queries."""

    host: str = string()
    port: int = uint16()


@data(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """The metadata of a member."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)


@data(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and the time when it was computed."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


@struct
class TargetTasks:
    """Tasks of a subtopology in a target assignment."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@data(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    active_tasks: list[TargetTasks] = array(TargetTasks)
    standby_tasks: list[TargetTasks] = array(TargetTasks)
    warmup_tasks: list[TargetTasks] = array(TargetTasks)


@struct
class CurrentTasks:
    """Tasks of a subtopology that a member owns, with the epochs in which they were assigned."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", default=[], tag=0)


@data(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The tasks that a member owns and those that it has to revoke."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTasks] = array(CurrentTasks)
    standby_tasks: list[CurrentTasks] = array(CurrentTasks)
    warmup_tasks: list[CurrentTasks] = array(CurrentTasks)
    active_tasks_pending_revocation: list[CurrentTasks] = array(CurrentTasks)
    standby_tasks_pending_revocation: list[CurrentTasks] = array(CurrentTasks)
    warmup_tasks_pending_revocation: list[CurrentTasks] = array(CurrentTasks)


@struct
class InternalTopic:
    """An internal topic, created by Kafka Streams."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


@struct
class CopartitionGroup:
    """Topics that must have the same number of partitions, by their indexes in the lists of the subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@struct
class Subtopology:
    """A part of the topology whose tasks are assigned together."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[InternalTopic] = array(InternalTopic)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[InternalTopic] = array(InternalTopic)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@data(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology of the group."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


STREAMS_GROUP_KINDS: dict[int, tuple[type, type]] = {
    17: (ConsumerGroupKey, StreamsGroupMetadataValue),
    19: (ConsumerGroupMemberKey, StreamsGroupMemberMetadataValue),
    20: (ConsumerGroupKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (ConsumerGroupMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (ConsumerGroupMemberKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (ConsumerGroupKey, StreamsGroupTopologyValue),
}
"""Classes of key and value by record type."""
