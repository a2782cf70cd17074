"""Records of internal topics as Kafka's DumpLogSegments writes them.  Pure.

Kafka 2.8 has its own text for each.  Since 3.8 offsets and groups (KAFKA-16470), and in 4.x also transactions, are the
JSON of Kafka's message definitions.  In 2.8 sets and maps are in the order of Scala's hash tables, which is computed
here because scripts may compare with Kafka's output.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kctl.commands.compat.texts.java import ScalaHashTable, java_double, signed
from kctl.errors import MalformedRequest
from kctl.model import java_hash, uuid_text
from kctl.protocol.codec import decode_body, version_of
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE, TopicPartitions, decode_assignment, decode_subscription
from kctl.protocol.definition import definition_of
from kctl.records.header import Record
from kctl.records.internal.entries import NEW_GROUP_KINDS, TRANSACTION_STATES, record_type_name
from kctl.records.internal.metadata_records import (
    DELETE_STATES,
    SEGMENT_STATES,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode_cluster_metadata,
    decode_quorum_control,
    decode_remote_log_metadata,
)
from kctl.records.internal.newer_group_records import SHARE_GROUP_STATE_KINDS
from kctl.records.internal.topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    TransactionLogKey,
    UnknownKey,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
    decode_transaction_key,
    decode_transaction_value,
)

Texts = tuple[str | None, str | None]
"""The texts after `key:` and `payload:`; None if there is none."""

_DELETED = "<DELETE>"
_EMPTY_STATE = 0
_SMALL_SET_MAX = 4
"""Larger sets are hash tables, and adding one to another does not resize the table."""
_CONTROL = re.compile(r"\\u00[0-9a-f]{2}")


def offsets_28(record: Record) -> Texts:
    """GroupMetadataManager.formatRecordKeyAndValue."""
    try:
        key = decode_offsets_key(record.key or b"")
        if isinstance(key, UnknownKey):
            return f"unknown::version={key.version}", None
        if isinstance(key, OffsetCommitKey):
            value = None if record.value is None else decode_offset_commit_value(record.value)
            text = f"offset_commit::group={key.group},partition={key.topic}-{key.partition}"
            if value is None:
                return text, _DELETED
            return text, f"offset={value.offset},metadata={value.metadata}" if value.metadata else (
                f"offset={value.offset}"
            )
        group = None if record.value is None else decode_group_metadata_value(record.value)
        return f"group_metadata::group={key.group}", _DELETED if group is None else _group_28(group)
    except MalformedRequest as error:
        return _error(record, error)


def _group_28(group: GroupMetadataValue) -> str:
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    table = ScalaHashTable()
    for member in group.members:
        table.add(member.member_id, java_hash(member.member_id), member)
    assignment = ",".join(_member_28(member, is_consumer=is_consumer) for member in table)
    json_object = {
        "protocolType": group.protocol_type,
        "protocol": group.protocol,
        "generationId": group.generation,
        "assignment": f"{{{assignment}}}",
    }
    return _json(json_object)


def _member_28(member: MemberMetadata, *, is_consumer: bool) -> str:
    if not is_consumer:
        return f"{member.member_id}={_hex(member.assignment)}"
    assignment = decode_assignment(member.assignment)
    partitions = ", ".join(
        f"{topic.topic}-{partition}" for topic in assignment.assigned_partitions for partition in topic.partitions
    )
    user_data = _hex(assignment.user_data or b"")
    return f"{member.member_id}=[{partitions}]" + (f":{user_data}" if user_data else "")


def _hex(data: bytes) -> str:
    """Return an unsigned number without leading zeros."""
    return f"{int.from_bytes(data, 'big'):X}" if data else ""


def offsets_4(record: Record) -> Texts:
    """DumpLogSegments.OffsetsMessageParser."""
    try:
        key = decode_offsets_key(record.key or b"")
        if isinstance(key, UnknownKey):
            return _coordinator_4(record, NEW_GROUP_KINDS)
        json_object: dict[str, Any] = {"group": key.group}
        if isinstance(key, OffsetCommitKey):
            json_object |= {"topic": key.topic, "partition": key.partition}
        text = _json({"type": str(version_of(record.key or b"")), "data": json_object})
        if record.value is None:
            return text, _DELETED
        version = version_of(record.value)
        if isinstance(key, GroupMetadataKey):
            value = _group_4(decode_group_metadata_value(record.value), version)
        else:
            value = as_json(decode_offset_commit_value(record.value), version)
        return text, _json({"version": str(version), "data": value})
    except MalformedRequest as error:
        return _error(record, error)


def _coordinator_4(record: Record, kinds: Mapping[int, tuple[type, type]]) -> Texts:
    """DumpLogSegments.CoordinatorRecordMessageParser.  Raises MalformedRequest."""
    key = record.key or b""
    version = version_of(key)
    kind = kinds.get(version)
    if kind is None:
        return f"Unknown record type {version} at offset {record.offset}, skipping.", None
    key_class, value_class = kind
    text = _json({"type": str(version), "data": as_json(decode_body(key_class, key, 0), 0)})
    if record.value is None:
        return text, _DELETED
    value_version = version_of(record.value)
    if value_version not in definition_of(value_class).versions:
        raise MalformedRequest(f"{value_class.__name__} has version {value_version}")
    value = as_json(decode_body(value_class, record.value, value_version), value_version)
    return text, _json({"version": str(value_version), "data": value})


def as_json(message: Any, version: int) -> dict[str, Any]:
    """Return a message as JSON, as Kafka's generated converters write it: tagged fields only if they are not the
    default.
    """
    json_object: dict[str, Any] = {}
    for field in definition_of(type(message)).fields:
        value = getattr(message, field.name)
        if version not in field.versions or (field.tag is not None and value == field.default):
            continue
        parts = field.name.split("_")
        json_object[parts[0] + "".join(part.capitalize() for part in parts[1:])] = _json_value(value, version)
    return json_object


def _json_value(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_json_value(element, version) for element in value]
    if isinstance(value, (bytes, memoryview)):
        return _bytes(bytes(value))
    if isinstance(value, UUID):
        return uuid_text(value)
    return as_json(value, version) if hasattr(value, "__definition__") else value


def _group_4(group: GroupMetadataValue, version: int) -> dict[str, Any]:
    json_object: dict[str, Any] = {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
    }
    if version >= 2:
        json_object["currentStateTimestamp"] = group.current_state_timestamp
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    json_object["members"] = [_member_4(member, version, is_consumer=is_consumer) for member in group.members]
    return json_object


def _member_4(member: MemberMetadata, version: int, *, is_consumer: bool) -> dict[str, Any]:
    json_object: dict[str, Any] = {"memberId": member.member_id}
    if version >= 3:
        json_object["groupInstanceId"] = member.group_instance_id
    json_object |= {"clientId": member.client_id, "clientHost": member.client_host}
    if version >= 1:
        json_object["rebalanceTimeout"] = member.rebalance_timeout
    json_object["sessionTimeout"] = member.session_timeout
    json_object["subscription"] = (
        _embedded(member.subscription, _subscription) if is_consumer else _bytes(member.subscription)
    )
    json_object["assignment"] = _embedded(member.assignment, _assignment) if is_consumer else _bytes(member.assignment)
    return json_object


def _embedded(data: bytes, read: Callable[[bytes], dict[str, Any]]) -> object:
    try:
        return read(data)
    except MalformedRequest:
        return _bytes(data)


def _subscription(data: bytes) -> dict[str, Any]:
    version = version_of(data)
    value = decode_subscription(data)
    json_object: dict[str, Any] = {"topics": value.topics, "userData": _bytes(value.user_data)}
    if version >= 1:
        json_object["ownedPartitions"] = _partitions(value.owned_partitions)
    if version >= 2:
        json_object["generationId"] = value.generation_id
    if version >= 3:
        json_object["rackId"] = value.rack_id
    return json_object


def _assignment(data: bytes) -> dict[str, Any]:
    value = decode_assignment(data)
    return {"assignedPartitions": _partitions(value.assigned_partitions), "userData": _bytes(value.user_data)}


def _partitions(topics: Iterable[TopicPartitions]) -> list[dict[str, Any]]:
    return [{"topic": topic.topic, "partitions": topic.partitions} for topic in topics]


def _bytes(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def transactions_4(record: Record) -> Texts:
    """DumpLogSegments.TransactionLogMessageParser."""
    try:
        key = decode_transaction_key(record.key or b"")
        if not isinstance(key, TransactionLogKey):
            return f"Unknown record type {key.version} at offset {record.offset}, skipping.", None
        text = _json({"type": str(version_of(record.key or b"")), "data": {"transactionalId": key.transactional_id}})
        if record.value is None:
            return text, _DELETED
        version = version_of(record.value)
        json_object = as_json(decode_transaction_value(record.value), version)
        return text, _json({"version": str(version), "data": json_object})
    except MalformedRequest as error:
        return _error(record, error)


def share_group_state_4(record: Record) -> Texts:
    """DumpLogSegments.ShareGroupStateMessageParser."""
    try:
        return _coordinator_4(record, SHARE_GROUP_STATE_KINDS)
    except MalformedRequest as error:
        return _error(record, error)


def cluster_metadata_4(record: Record) -> Texts:
    """DumpLogSegments.ClusterMetadataLogMessageParser."""
    try:
        message, version = decode_cluster_metadata(record.value or b"")
    except MalformedRequest as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    name = record_type_name(type(message)).upper()
    return None, _json({"type": name, "version": version, "data": as_json(message, version)})


def quorum_control_3(record: Record) -> str | None:
    """Return the text of a control record of KRaft; None for other control records, and for a change of the leader."""
    text = quorum_control_4(record)
    return None if text is None or text.startswith(" LeaderChange") else text


def quorum_control_4(record: Record) -> str | None:
    """Return the text of a control record of KRaft; None for other control records."""
    try:
        found = decode_quorum_control(record)
    except MalformedRequest:
        return None
    if found is None:
        return None
    name, message = found
    return f" {name}{':' if name == 'LeaderChange' else ''} {_json(as_json(message, message.version))}"


def remote_log_metadata_3(record: Record) -> Texts:
    """DumpLogSegments.RemoteMetadataLogMessageParser of 3.9, whose segments have no txnIdxEmpty."""
    return _remote_log_metadata_texts(record, with_txn_index=False)


def remote_log_metadata_4(record: Record) -> Texts:
    """DumpLogSegments.RemoteMetadataLogMessageParser."""
    return _remote_log_metadata_texts(record, with_txn_index=True)


def _remote_log_metadata_texts(record: Record, *, with_txn_index: bool) -> Texts:
    try:
        decoded = decode_remote_log_metadata(record.value or b"").message
        return None, _remote_log_metadata(decoded, with_txn_index=with_txn_index)
    except MalformedRequest as error:
        return None, f"Error at offset {record.offset}, skipping. {error}"


def _remote_log_metadata(value: object, *, with_txn_index: bool) -> str:
    """RemoteLogMetadata.toString of each kind.  Raises MalformedRequest."""
    match value:
        case RemoteLogSegmentMetadataRecord():
            segment = value.remote_log_segment_id
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(segment.topic_id_partition, segment.id)}, "
                f"startOffset={value.start_offset}, endOffset={value.end_offset}, brokerId={value.broker_id}, "
                f"maxTimestampMs={value.max_timestamp_ms}, eventTimestampMs={value.event_timestamp_ms}, "
                f"{_segment(value, with_txn_index=with_txn_index)}}}"
            )
        case RemoteLogSegmentMetadataSnapshotRecord():
            return (
                f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuid_text(value.segment_id)}, "
                f"startOffset={value.start_offset}, endOffset={value.end_offset}, "
                f"maxTimestampMs={value.max_timestamp_ms}, {_segment(value, with_txn_index=with_txn_index)}}}"
            )
        case RemoteLogSegmentMetadataUpdateRecord():
            segment = value.remote_log_segment_id
            return (
                f"RemoteLogSegmentMetadataUpdate{{"
                f"remoteLogSegmentId={_segment_id(segment.topic_id_partition, segment.id)}, "
                f"customMetadata={_custom(value.custom_metadata)}, "
                f"state={_state(value.remote_log_segment_state, SEGMENT_STATES)}, "
                f"eventTimestampMs={value.event_timestamp_ms}, brokerId={value.broker_id}}}"
            )
        case RemotePartitionDeleteMetadataRecord():
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={_topic_id_partition(value.topic_id_partition)}, "
                f"state={_state(value.remote_partition_delete_state, DELETE_STATES)}, "
                f"eventTimestampMs={value.event_timestamp_ms}, brokerId={value.broker_id}}}"
            )
    raise TypeError(f"{type(value).__name__} is not a record of __remote_log_metadata")


def _segment(
    value: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataSnapshotRecord, *, with_txn_index: bool
) -> str:
    text = (
        f"segmentLeaderEpochs={_leader_epochs(value.segment_leader_epochs)}, "
        f"segmentSizeInBytes={value.segment_size_in_bytes}, customMetadata={_custom(value.custom_metadata)}, "
        f"state={_state(value.remote_log_segment_state, SEGMENT_STATES)}"
    )
    return f"{text}, txnIdxEmpty={'true' if value.txn_index_empty else 'false'}" if with_txn_index else text


def _segment_id(partition: TopicIdPartitionEntry, segment: UUID) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_topic_id_partition(partition)}, id={uuid_text(segment)}}}"


def _topic_id_partition(partition: TopicIdPartitionEntry) -> str:
    return f"{uuid_text(partition.id)}:{partition.name}-{partition.partition}"


def _leader_epochs(entries: Iterable[SegmentLeaderEpochEntry]) -> str:
    offsets = {entry.leader_epoch: entry.offset for entry in entries}
    return f"{{{', '.join(f'{epoch}={offsets[epoch]}' for epoch in sorted(offsets))}}}"


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(number: int, names: Sequence[str]) -> str:
    if not 0 <= number < len(names):
        raise MalformedRequest(f"state {number} is unknown")
    return names[number]


def transactions_28(record: Record) -> Texts:
    """TransactionLog.formatRecordKeyAndValue, up to 3.9."""
    try:
        key = decode_transaction_key(record.key or b"")
        if not isinstance(key, TransactionLogKey):
            return f"unknown::version={key.version}", None
        text = f"transaction_metadata::transactionalId={key.transactional_id}"
        return text, _DELETED if record.value is None else _transaction(record.value)
    except MalformedRequest as error:
        return _error(record, error)


def _transaction(data: bytes) -> str:
    value = decode_transaction_value(data)
    status = value.transaction_status
    if not 0 <= status < len(TRANSACTION_STATES):
        raise MalformedRequest(f"transaction status {status}")
    table = ScalaHashTable()
    for topic in (value.transaction_partitions or []) if status != _EMPTY_STATE else []:
        partitions = set(topic.partition_ids)
        table.expect(len(partitions))
        for partition in partitions:
            # TopicPartition.hashCode
            hashed = signed(31 * (31 + partition) + java_hash(topic.topic))
            table.add((topic.topic, partition), hashed, None, may_resize=len(partitions) <= _SMALL_SET_MAX)
    listed = ",".join(f"{topic}-{partition}" for topic, partition in table.keys())  # noqa: SIM118 - not a dict
    return (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={TRANSACTION_STATES[status]},"
        f"partitions=[{listed}],txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )


def _error(record: Record, error: MalformedRequest) -> Texts:
    return f"Error at offset {record.offset}, skipping. {error}", None


def _json(value: object) -> str:
    """Return a value as Jackson writes it: control characters in upper-case hexadecimal, doubles as Double.toString."""
    match value:
        case dict():
            return f"{{{','.join(f'{_json(name)}:{_json(member)}' for name, member in value.items())}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case float():
            text = java_double(value)
            return text if math.isfinite(value) else f'"{text}"'
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: "\\u" + match[0][2:].upper(), text)
