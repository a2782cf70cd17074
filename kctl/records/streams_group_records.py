"""Records of __consumer_offsets that Kafka 4 writes for groups of Kafka Streams (KIP-1071).

They are defined to display what a newer broker has written.  The number at the start of a key is the record type.
Kafka: CoordinatorRecordType and the definitions of its group coordinator (4.3).
"""

from __future__ import annotations

from kctl.protocol.message import array, data, int8, int16, int32, int64, nested, string, struct, uint16
from kctl.records.consumer_group_records import ConsumerGroupKey, ConsumerGroupMemberKey


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


KINDS: dict[int, tuple[type, type]] = {
    17: (ConsumerGroupKey, StreamsGroupMetadataValue),
    19: (ConsumerGroupMemberKey, StreamsGroupMemberMetadataValue),
    20: (ConsumerGroupKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (ConsumerGroupMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (ConsumerGroupMemberKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (ConsumerGroupKey, StreamsGroupTopologyValue),
}
"""Classes of key and value by record type."""
