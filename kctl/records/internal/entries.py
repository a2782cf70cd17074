"""Records of internal topics and of KRaft's metadata log as JSON objects.

Bytes that do not decode, and records of unknown kinds, are shown like those of other topics: as text or base64.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.model import uuid_text
from kctl.protocol.codec import decode_body, version_of
from kctl.protocol.consumer_protocol import decode_assignment, decode_subscription
from kctl.protocol.definition import definition_of
from kctl.records.dump_text import encode_bytes
from kctl.records.header import Record
from kctl.records.internal import newer_group_records
from kctl.records.internal.metadata_records import decode_cluster_metadata, decode_remote_log_metadata
from kctl.records.internal.topics import (
    Framed,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    TransactionLogKey,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
    decode_transaction_key,
    decode_transaction_value,
)

NEW_GROUP_KINDS = (
    newer_group_records.CONSUMER_GROUP_KINDS
    | newer_group_records.SHARE_GROUP_KINDS
    | newer_group_records.STREAMS_GROUP_KINDS
)
"""Records of groups in __consumer_offsets that only Kafka 4 writes."""

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")

TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def offsets_record(record: Record) -> tuple[object, object]:
    """Return (key, value) of a record of __consumer_offsets; the value of a tombstone is None."""
    try:
        key = decode_offsets_key(record.key or b"")
        if isinstance(key, OffsetCommitKey):
            key_item = {"type": "offset_commit", "group": key.group, "topic": key.topic, "partition": key.partition}
            return key_item, None if record.value is None else _offset_commit(record.value)
        if isinstance(key, GroupMetadataKey):
            key_item = {"type": "group_metadata", "group": key.group}
            return key_item, None if record.value is None else _group(decode_group_metadata_value(record.value))
    except MalformedRequest:
        pass  # not decoded
    return _coordinator_record(record, NEW_GROUP_KINDS)


def transaction_record(record: Record) -> tuple[object, object]:
    """Return (key, value) of a record of __transaction_state; the value of a tombstone is None."""
    try:
        key = decode_transaction_key(record.key or b"")
        if isinstance(key, TransactionLogKey):
            key_item = {"type": "transaction", "transactional_id": key.transactional_id}
            return key_item, None if record.value is None else _transaction(record.value)
    except MalformedRequest:
        pass  # not decoded
    return encode_bytes(record.key)[0], encode_bytes(record.value)[0]


# The kinds of records that the formatters of `kctl consume` show.

OFFSETS = "offsets"
GROUP_METADATA = "group-metadata"
TRANSACTIONS = "transactions"

FormatterKey = OffsetCommitKey | GroupMetadataKey | TransactionLogKey


def formatter_key(formatter: str, record: Record) -> FormatterKey | None:
    """Return the key if it is of the kind that the formatter shows, else None.  Raises MalformedRequest."""
    if record.key is None:
        return None
    if formatter == TRANSACTIONS:
        transaction = decode_transaction_key(record.key)
        return transaction if isinstance(transaction, TransactionLogKey) else None
    key = decode_offsets_key(record.key)
    key_type = OffsetCommitKey if formatter == OFFSETS else GroupMetadataKey
    return key if isinstance(key, key_type) else None


def formatted_record(formatter: str, record: Record) -> tuple[object, object] | None:
    """Return (key, value) of a record that the formatter shows, else None.  Raises MalformedRequest."""
    if formatter_key(formatter, record) is None:
        return None
    if record.value is not None:
        _VALUE_DECODERS[formatter](record.value)
    return transaction_record(record) if formatter == TRANSACTIONS else offsets_record(record)


_VALUE_DECODERS: dict[str, Callable[[bytes], object]] = {
    OFFSETS: decode_offset_commit_value,
    GROUP_METADATA: decode_group_metadata_value,
    TRANSACTIONS: decode_transaction_value,
}


def share_group_state_record(record: Record) -> tuple[object, object]:
    """Return (key, value) of a record of __share_group_state; the value of a tombstone is None."""
    return _coordinator_record(record, newer_group_records.SHARE_GROUP_STATE_KINDS)


def _coordinator_record(record: Record, kinds: Mapping[int, tuple[type, type]]) -> tuple[object, object]:
    """`kinds` are the classes of key and value by the number in front of the key."""
    key, value = record.key or b"", record.value
    try:
        kind = kinds.get(version_of(key))
        if kind is not None:
            key_class, value_class = kind
            key_item = {"type": record_type_name(value_class), **message_item(decode_body(key_class, key, 0), 0)}
            if value is None:
                return key_item, None
            version = version_of(value)
            if version in definition_of(value_class).versions:
                return key_item, message_item(decode_body(value_class, value, version), version)
    except MalformedRequest:
        pass  # not decoded
    return encode_bytes(record.key)[0], encode_bytes(value)[0]


def cluster_metadata_record(record: Record) -> tuple[object, object]:
    """Return (key, value) of a record of __cluster_metadata or of a snapshot of it."""
    return _framed_record(record, decode_cluster_metadata)


def remote_log_metadata_record(record: Record) -> tuple[object, object]:
    """Return (key, value) of a record of __remote_log_metadata."""
    return _framed_record(record, decode_remote_log_metadata)


def _framed_record(record: Record, decode: Callable[[bytes], Framed]) -> tuple[object, object]:
    try:
        message, version = decode(record.value or b"")
    except MalformedRequest:
        return encode_bytes(record.key)[0], encode_bytes(record.value)[0]
    key_item = {"type": record_type_name(type(message)), "version": version, **message_item(message, version)}
    return encode_bytes(record.key)[0], key_item


def record_type_name(cls: type) -> str:
    """Return the kind of a record in snake case: `partition_change_record` for PartitionChangeRecord."""
    return _WORD_START.sub("_", cls.__name__.removesuffix("Value")).lower()


def message_item(message: Any, version: int) -> dict[str, Any]:
    """Return the fields that a message has in this version."""
    return {
        field.name: _field_item(getattr(message, field.name), version)
        for field in definition_of(type(message)).fields
        if version in field.versions
    }


def _field_item(value: Any, version: int) -> Any:
    match value:
        case list():
            return [_field_item(item, version) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case UUID():
            return uuid_text(value)
    return message_item(value, version) if hasattr(value, "__definition__") else value


def _offset_commit(data: bytes) -> dict[str, Any]:
    value = decode_offset_commit_value(data)
    return {
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "commit_timestamp_ms": value.commit_timestamp,
        "expire_timestamp_ms": value.expire_timestamp,
    }


def _group(value: GroupMetadataValue) -> dict[str, Any]:
    return {
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "current_state_timestamp_ms": value.current_state_timestamp,
        "members": [_member(member, is_consumer=value.protocol_type == "consumer") for member in value.members],
    }


def _member(member: MemberMetadata, *, is_consumer: bool) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout,
        "session_timeout_ms": member.session_timeout,
        "subscription": _subscription(member.subscription) if is_consumer else encode_bytes(member.subscription)[0],
        "assignment": _assignment(member.assignment) if is_consumer else encode_bytes(member.assignment)[0],
    }


def _subscription(data: bytes) -> object:
    try:
        return sorted(decode_subscription(data).topics)
    except MalformedRequest:
        return encode_bytes(data)[0]


def _assignment(data: bytes) -> object:
    try:
        return _partitions([(entry.topic, entry.partitions) for entry in decode_assignment(data).assigned_partitions])
    except MalformedRequest:
        return encode_bytes(data)[0]


def _transaction(data: bytes) -> dict[str, Any]:
    value = decode_transaction_value(data)
    state = value.transaction_status
    return {
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "transaction_timeout_ms": value.transaction_timeout_ms,
        "state": TRANSACTION_STATES[state] if 0 <= state < len(TRANSACTION_STATES) else state,
        "partitions": _partitions([(entry.topic, entry.partition_ids) for entry in value.transaction_partitions or []]),
        "last_update_timestamp_ms": value.transaction_last_update_timestamp_ms,
        "start_timestamp_ms": value.transaction_start_timestamp_ms,
    }


def _partitions(topics: Sequence[tuple[str, Sequence[int]]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": sorted(partitions)} for topic, partitions in sorted(topics)]
