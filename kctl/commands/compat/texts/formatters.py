"""Records of the internal topics as the formatters of Kafka's console consumer show them, byte for byte.  Pure.

kafka-2.8: the texts of GroupMetadataManager's and TransactionLog's MessageFormatters, a line for each record. kafka-3
and kafka-4: the JSON of org.apache.kafka.tools.consumer, without separators between objects.  A formatter returns None
for records of another kind, for records of unknown kinds, and for those without a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from kctl.commands.compat.texts.internal_records import as_json
from kctl.commands.compat.texts.java import KAFKA_3, KAFKA_28, ScalaHashTable, signed
from kctl.errors import MalformedRequest
from kctl.model import TopicPartition, java_hash
from kctl.protocol.codec import version_of
from kctl.records.header import Record
from kctl.records.internal.entries import TRANSACTION_STATES, FormatterKey, formatter_key
from kctl.records.internal.topics import (
    NO_TIMESTAMP,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    TransactionLogKey,
    TransactionLogValue,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_transaction_value,
)

_EMPTY_STATE = 0
_SMALL_SET_MAX = 4
"""Larger sets are hash tables, and adding one to another does not resize the table."""
_CONTROL = re.compile(r"\\u00[0-9a-f]{2}")


def classic_text(formatter: str, compat: str, record: Record) -> str | None:
    """Return the text that Kafka prints for the record.  Raises MalformedRequest for bytes that do not decode."""
    key = formatter_key(formatter, record)
    if key is None:
        return None
    if compat == KAFKA_28:
        return _text_28(key, record.value)
    return _json_text(key, record, "version" if compat == KAFKA_3 else "type")


def _text_28(key: FormatterKey, value: bytes | None) -> str:
    match key:
        case OffsetCommitKey():
            text = "NULL" if value is None else _offset_28(value)
            return f"[{key.group},{key.topic},{key.partition}]::{text}\n"
        case GroupMetadataKey():
            return f"{key.group}::{'NULL' if value is None else _group_28(key.group, value)}\n"
        case TransactionLogKey():
            text = "NULL" if value is None else _transaction_28(key.transactional_id, decode_transaction_value(value))
            return f"{key.transactional_id}::{text}\n"


def _offset_28(data: bytes) -> str:
    value = decode_offset_commit_value(data)
    epoch = "Optional.empty" if value.leader_epoch < 0 else f"Optional[{value.leader_epoch}]"
    expiry = "None" if value.expire_timestamp == NO_TIMESTAMP else f"Some({value.expire_timestamp})"
    return (
        f"OffsetAndMetadata(offset={value.offset}, leaderEpoch={epoch}, metadata={value.metadata}, "
        f"commitTimestamp={value.commit_timestamp}, expireTimestamp={expiry})"
    )


def _group_28(group_id: str, data: bytes) -> str:
    group = decode_group_metadata_value(data)
    table = ScalaHashTable()
    for member in group.members:
        table.add(member.member_id, java_hash(member.member_id), member)
    members = ", ".join(f"{member.member_id} -> {_member_28(member, group, version_of(data))}" for member in table)
    return (
        f"GroupMetadata(groupId={group_id}, generation={group.generation}, "
        f"protocolType={_option(group.protocol_type or None)}, currentState={'Stable' if group.members else 'Empty'}, "
        f"members=HashMap({members}))"
    )


def _member_28(member: MemberMetadata, group: GroupMetadataValue, version: int) -> str:
    protocol = "null" if group.protocol is None else group.protocol
    return (
        f"MemberMetadata(memberId={member.member_id}, groupInstanceId={_option(member.group_instance_id)}, "
        f"clientId={member.client_id}, clientHost={member.client_host}, sessionTimeoutMs={member.session_timeout}, "
        f"rebalanceTimeoutMs={member.rebalance_timeout if version else member.session_timeout}, "
        f"supportedProtocols=List({protocol}), )"
    )


def _transaction_28(transactional_id: str, value: TransactionLogValue) -> str:
    state = value.transaction_status
    if not 0 <= state < len(TRANSACTION_STATES):
        raise MalformedRequest(f"transaction status {state}")
    return (
        f"TransactionMetadata(transactionalId={transactional_id}, producerId={value.producer_id}, "
        f"producerEpoch={value.producer_epoch}, txnTimeoutMs={value.transaction_timeout_ms}, "
        f"state={TRANSACTION_STATES[state]}, pendingState=None, topicPartitions=HashSet({_partitions_28(value)}), "
        f"txnStartTimestamp={value.transaction_start_timestamp_ms}, "
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms})"
    )


def _partitions_28(value: TransactionLogValue) -> str:
    table = ScalaHashTable()
    topics = value.transaction_partitions if value.transaction_status != _EMPTY_STATE else None
    for topic_value in topics or ():
        partitions = set(topic_value.partition_ids)
        table.expect(len(partitions))
        for partition in partitions:
            # TopicPartition.hashCode
            hash_code = signed(31 * (31 + partition) + java_hash(topic_value.topic))
            table.add((topic_value.topic, partition), hash_code, None, may_resize=len(partitions) <= _SMALL_SET_MAX)
    return ", ".join(f"{topic}-{partition}" for topic, partition in table.keys())  # noqa: SIM118 - not a dict


def _option(value: str | None) -> str:
    return "None" if value is None else f"Some({value})"


def _json_text(key: FormatterKey, record: Record, number: str) -> str:
    """Return the JSON since 3.9; `number` is the member with the version of the key, the type of the record."""
    assert record.key is not None
    match key:
        case OffsetCommitKey():
            key_item: dict[str, Any] = {"group": key.group, "topic": key.topic, "partition": key.partition}
            decode_value: Callable[[bytes], object] = decode_offset_commit_value
        case GroupMetadataKey():
            key_item, decode_value = {"group": key.group}, decode_group_metadata_value
        case TransactionLogKey():
            key_item, decode_value = {"transactionalId": key.transactional_id}, decode_transaction_value
    value = None
    if record.value is not None:
        version = version_of(record.value)
        value = {"version": version, "data": as_json(decode_value(record.value), version)}
    whole = {"key": {number: version_of(record.key), "data": key_item}, "value": value}
    # Jackson escapes control characters in upper-case hexadecimal.
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(lambda match: "\\u" + match[0][2:].upper(), text)


# The output of Kafka's GetOffsetShell, byte for byte. Pure.
#
# GetOffsetShell of 2.8, 3.9 and 4.3; tests compare with the tools themselves.


def offsets(compat: str, found: Mapping[TopicPartition, int | None]) -> str:
    """Return a line per partition, since 3.0 in the order of their names as texts.

    One without an offset for the time is empty in 2.8 and left out later.
    """
    order = sorted(found) if compat == KAFKA_28 else sorted(found, key=str)
    return "".join(
        f"{tp.topic}:{tp.partition}:{'' if found[tp] is None else found[tp]}\n"
        for tp in order
        if found[tp] is not None or compat == KAFKA_28
    )
