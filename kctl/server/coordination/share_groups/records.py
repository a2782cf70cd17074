"""Converts between the values of a share group and its records in `__consumer_offsets`.

Pure.  Kafka: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode_body, encode_versioned, version_of
from kctl.protocol.definition import definition_of
from kctl.records.header import Record
from kctl.records.internal.newer_group_records import (
    SHARE_GROUP_KINDS,
    AssignedPartitions,
    ConsumerGroupKey,
    ConsumerGroupMemberKey,
    NamedTopic,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from kctl.records.internal.newer_group_records import NamedPartitions as RecordedPartitions
from kctl.server.coordination.consumer_groups.state import GroupEpoch, Partitions, TargetEpoch
from kctl.server.coordination.share_groups.group import (
    Change,
    Key,
    NamedPartitions,
    RecordType,
    ShareAssignment,
    ShareMember,
    StatePartitions,
    Value,
)

_TYPE_BYTES = 2
_VERSION = 0
_POSITION_IN_BATCH = 0
"""build_batch sets the offsets of records."""
_OF_MEMBERS = frozenset({RecordType.MEMBER, RecordType.MEMBER_TARGET, RecordType.MEMBER_ASSIGNMENT})
_STABLE = 0
"""The state of every member: there is nothing to revoke."""


def share_group_records(group_id: str, changes: Iterable[Change], timestamp_ms: int) -> list[Record]:
    """Return the records of changes of a group."""
    return [
        Record(_POSITION_IN_BATCH, timestamp_ms, encode_key(group_id, change.key), encode_value(change))
        for change in changes
    ]


def encode_key(group_id: str, key: Key) -> bytes:
    """Return the key of a record: its type in two bytes, and the names."""
    message: object = ConsumerGroupKey(group_id=group_id)
    if key.type in _OF_MEMBERS:
        message = ConsumerGroupMemberKey(group_id=group_id, member_id=key.name)
    return key.type.to_bytes(_TYPE_BYTES, "big") + encode_versioned(message, _VERSION)[_TYPE_BYTES:]


def decode_key(key: bytes) -> tuple[str, Key] | None:
    """Return group id and key, or None if the record is of another kind.  Raises MalformedRequest."""
    record_type = version_of(key)
    if record_type not in SHARE_GROUP_KINDS:
        return None
    message: Any = decode_body(SHARE_GROUP_KINDS[record_type][0], key, _VERSION)
    return message.group_id, Key(RecordType(record_type), getattr(message, "member_id", ""))


def encode_value(change: Change) -> bytes | None:
    """Return the value of a record; None for a tombstone."""
    return None if change.value is None else encode_versioned(_message(change.value), _VERSION)


def _message(value: Value) -> object:
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


def decode_value(record_type: RecordType, encoded: bytes) -> Value:
    """Return the value of a record.  Raises MalformedRequest."""
    cls = SHARE_GROUP_KINDS[record_type][1]
    version = version_of(encoded)
    if version not in definition_of(cls).versions:
        raise MalformedRequest(f"{cls.__name__} has version {version}")
    message: Any = decode_body(cls, encoded, version)
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
