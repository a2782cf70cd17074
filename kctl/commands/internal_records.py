"""Records of __consumer_offsets and __transaction_state as JSON tells them.

Bytes that do not decode, and kinds that are newer than we are, come out as any other record: as text or base64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kctl.commands.records import encode_bytes
from kctl.errors import MalformedRequest
from kctl.protocol.consumer_protocol import decode_assignment, decode_subscription
from kctl.records.header import Record
from kctl.records.internal_topics import (
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
    """(key, value) of a record of __consumer_offsets; the value of a tombstone is None."""
    try:
        key = decode_offsets_key(record.key or b"")
        if isinstance(key, OffsetCommitKey):
            told = {"type": "offset_commit", "group": key.group, "topic": key.topic, "partition": key.partition}
            return told, None if record.value is None else _offset_commit(record.value)
        if isinstance(key, GroupMetadataKey):
            told = {"type": "group_metadata", "group": key.group}
            return told, None if record.value is None else _group(decode_group_metadata_value(record.value))
    except MalformedRequest:
        pass  # shown as it is
    return encode_bytes(record.key)[0], encode_bytes(record.value)[0]


def transaction_record(record: Record) -> tuple[object, object]:
    """(key, value) of a record of __transaction_state; the value of a tombstone is None."""
    try:
        key = decode_transaction_key(record.key or b"")
        if isinstance(key, TransactionLogKey):
            told = {"type": "transaction", "transactional_id": key.transactional_id}
            return told, None if record.value is None else _transaction(record.value)
    except MalformedRequest:
        pass  # shown as it is
    return encode_bytes(record.key)[0], encode_bytes(record.value)[0]


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
        return _partitions([(one.topic, one.partitions) for one in decode_assignment(data).assigned_partitions])
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
        "partitions": _partitions([(one.topic, one.partition_ids) for one in value.transaction_partitions or []]),
        "last_update_timestamp_ms": value.transaction_last_update_timestamp_ms,
        "start_timestamp_ms": value.transaction_start_timestamp_ms,
    }


def _partitions(topics: Sequence[tuple[str, Sequence[int]]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": sorted(partitions)} for topic, partitions in sorted(topics)]
