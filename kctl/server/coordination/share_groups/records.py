"""Converts between the values of a share group and its records in `__consumer_offsets`.

Pure.  Kafka: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from kctl.records.internal.newer_group_records import (
    AssignedPartitions,
    NamedTopic,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from kctl.records.internal.newer_group_records import NamedPartitions as RecordedPartitions
from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.newer_groups import GroupEpoch, TargetEpoch
from kctl.server.coordination.share_groups.group import (
    NamedPartitions,
    RecordType,
    ShareAssignment,
    ShareMember,
    StatePartitions,
)

Value: TypeAlias = GroupEpoch | TargetEpoch | ShareMember | ShareAssignment | StatePartitions | Partitions
_STABLE = 0
"""The state of every member: there is nothing to revoke."""


def message_of(value: Value) -> object:
    """Return the message of a value."""
    match value:
        case GroupEpoch(epoch, metadata_hash):
            return ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case TargetEpoch(epoch, timestamp_ms):
            return ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        case ShareMember():
            return ShareGroupMemberMetadataValue(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=sorted(value.topic_names),
            )
        case ShareAssignment():
            return ShareGroupCurrentMemberAssignmentValue(
                member_epoch=value.epoch,
                previous_member_epoch=value.previous_epoch,
                state=_STABLE,
                assigned_partitions=_recorded(value.partitions),
            )
        case StatePartitions():
            return ShareGroupStatePartitionMetadataValue(
                initializing_topics=_named(value.initializing),
                initialized_topics=_named(value.initialized),
                deleting_topics=[
                    NamedTopic(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(value.deleting.items())
                ],
            )
        case _:
            return ShareGroupTargetAssignmentMemberValue(topic_partitions=_recorded(value))


def _recorded(partitions: Partitions) -> list[AssignedPartitions]:
    return [
        AssignedPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions.items())
    ]


def _named(topics: Mapping[UUID, NamedPartitions]) -> list[RecordedPartitions]:
    return [
        RecordedPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
        for topic_id, (name, numbers) in sorted(topics.items())
    ]


def value_in(record_type: RecordType, message: Any) -> Value:
    """Return the value in a message."""
    match record_type:
        case RecordType.GROUP:
            return GroupEpoch(message.epoch, message.metadata_hash)
        case RecordType.TARGET:
            return TargetEpoch(message.assignment_epoch, message.assignment_timestamp)
        case RecordType.MEMBER:
            return ShareMember(
                rack_id=message.rack_id,
                client_id=message.client_id,
                client_host=message.client_host,
                topic_names=frozenset(message.subscribed_topic_names),
            )
        case RecordType.MEMBER_TARGET:
            return _assigned(message.topic_partitions)
        case RecordType.MEMBER_ASSIGNMENT:
            partitions = _assigned(message.assigned_partitions)
            return ShareAssignment(message.member_epoch, message.previous_member_epoch, partitions)
        case RecordType.PARTITIONS:
            return StatePartitions(
                _with_names(message.initializing_topics),
                _with_names(message.initialized_topics),
                {topic.topic_id: topic.topic_name for topic in message.deleting_topics},
            )


def _assigned(topics: Iterable[AssignedPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _with_names(topics: Iterable[RecordedPartitions]) -> Mapping[UUID, NamedPartitions]:
    return {topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics}
