"""Converts between the values of a group and its records in `__consumer_offsets`.

The definitions are those with which records of Kafka 4 are displayed; the bytes are those that Kafka 4.3 writes.

Pure.  Kafka: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from kctl.records.internal.newer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    TargetPartitions,
)
from kctl.server.coordination.consumer_groups.state import (
    ClassicMember,
    LegacyTopics,
    MemberAssignment,
    MemberMetadata,
    PartitionEpochs,
    Partitions,
    RecordType,
    ResolvedRegex,
    Value,
)
from kctl.server.coordination.newer_groups import MEMBER_STATES, GroupEpoch, MemberState, TargetEpoch


def message_of(value: Value) -> object:
    """Return the message of a value."""
    match value:
        case GroupEpoch(epoch, metadata_hash):
            return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case TargetEpoch(epoch, timestamp_ms):
            return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        case MemberMetadata():
            return ConsumerGroupMemberMetadataValue(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=sorted(value.topic_names),
                subscribed_topic_regex=value.topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic_member_metadata=None if value.classic is None else _classic_message(value.classic),
            )
        case MemberAssignment():
            return ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=value.epoch,
                previous_member_epoch=value.previous_epoch,
                state=value.state.value,
                assigned_partitions=_current(value.assigned),
                partitions_pending_revocation=_current(value.revoking),
            )
        case ResolvedRegex(names, version, timestamp_ms):
            return ConsumerGroupRegularExpressionValue(topics=sorted(names), version=version, timestamp=timestamp_ms)
        case LegacyTopics():
            raise AssertionError("such records are not written")
        case _:
            return ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    TargetPartitions(topic_id=topic_id, partitions=sorted(numbers))
                    for topic_id, numbers in sorted(value.items())
                ]
            )


def _classic_message(member: ClassicMember) -> ClassicMemberMetadata:
    protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols]
    return ClassicMemberMetadata(session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols)


def _current(partitions: PartitionEpochs) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic_id, partitions=sorted(epochs), assignment_epochs=[epochs[n] for n in sorted(epochs)]
        )
        for topic_id, epochs in sorted(partitions.items())
    ]


def value_in(record_type: RecordType, message: Any) -> Value:
    """Return the value in a message."""
    match record_type:
        case RecordType.GROUP:
            return GroupEpoch(message.epoch, message.metadata_hash)
        case RecordType.TARGET:
            return TargetEpoch(message.assignment_epoch, message.assignment_timestamp)
        case RecordType.TOPICS:
            return LegacyTopics()
        case RecordType.MEMBER:
            return _member(message)
        case RecordType.MEMBER_TARGET:
            return _target(message.topic_partitions)
        case RecordType.MEMBER_ASSIGNMENT:
            epoch: int = message.member_epoch
            return MemberAssignment(
                epoch=epoch,
                previous_epoch=message.previous_member_epoch,
                state=MEMBER_STATES.get(message.state, MemberState.UNKNOWN),
                assigned=_epochs(message.assigned_partitions, epoch),
                revoking=_epochs(message.partitions_pending_revocation, epoch),
            )
        case RecordType.REGEX:
            return ResolvedRegex(frozenset(message.topics), message.version, message.timestamp)


def _member(message: ConsumerGroupMemberMetadataValue) -> MemberMetadata:
    classic = message.classic_member_metadata
    return MemberMetadata(
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        client_id=message.client_id,
        client_host=message.client_host,
        topic_names=frozenset(message.subscribed_topic_names),
        topic_regex=message.subscribed_topic_regex,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        server_assignor=message.server_assignor,
        classic=None if classic is None else _classic_member(classic),
    )


def _classic_member(message: ClassicMemberMetadata) -> ClassicMember:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in message.supported_protocols)
    return ClassicMember(message.session_timeout_ms, protocols)


def _target(topics: Sequence[TargetPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _epochs(topics: Sequence[CurrentPartitions], epoch: int) -> Mapping[UUID, Mapping[int, int]]:
    """Return the partitions with their epochs; brokers before 4.3 do not store these."""
    partitions: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        since = cast("list[int]", topic.assignment_epochs)
        if not since or len(since) != len(topic.partitions):
            since = [epoch] * len(topic.partitions)
        partitions[topic.topic_id] = dict(zip(topic.partitions, since, strict=True))
    return partitions
