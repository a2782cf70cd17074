"""Keys and values of the records in __consumer_offsets and __transaction_state.

Both topics are compacted: the last value of a key counts, and a record without a value deletes the key (a tombstone).
The version at the start of a key is the record type.  Readers skip unknown types, so that records of newer brokers do
no harm (KIP-915).  Values are written in the newest version that Kafka 2.8 writes; an offset with its own expiry needs
version 1, the only one with that field.  Version 4 of the values, and version 1 of a transaction's, are from Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode, decode_body, encode_versioned, version_of
from kctl.protocol.codec import encode_bytes as encode_message
from kctl.protocol.definition import definition_of
from kctl.protocol.message import array, bytes_, data, int8, int16, int32, int64, string, struct, uuid
from kctl.protocol.varint import read_uvarint, uvarint

OFFSET_COMMIT_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_METADATA_VALUE_VERSION = 3
TRANSACTION_LOG_VERSION = 0
NO_TIMESTAMP = -1
NO_TOPIC_ID = UUID(int=0)

T = TypeVar("T")


@data(versions="0-1")
class OffsetCommitKey:
    """Key of a committed offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@data(versions="2")
class GroupMetadataKey:
    """Key of a group's metadata."""

    group: str = string()


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of an unknown type, written by a newer broker; its record is skipped."""

    version: int


@data(versions="0-4", flexible="4")
class OffsetCommitValue:
    """The committed offset of a group in a partition.  Timestamps are in ms since the epoch."""

    offset: int = int64()
    """Offset of the next record to read."""
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    """Epoch of the last record read (KIP-320); -1 if unknown."""
    metadata: str = string()
    """Any text of the client."""
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=NO_TIMESTAMP, ignorable=True)
    """Set by a commit with `retention_time_ms`; -1 for the broker's retention."""
    topic_id: UUID = uuid("4", tag=0, default=NO_TOPIC_ID, ignorable=True)
    """Id of the topic when the offset was committed (Kafka 4); all zero if unknown."""


@struct
class MemberMetadata:
    """A member; timeouts are in ms, `client_host` is formatted by Java, with a leading slash."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    """-1 in version 0, where the session timeout is used."""
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    """Metadata for the chosen protocol, opaque to the broker."""
    assignment: bytes = bytes_()
    """Assignment from the group's leader, opaque to the broker."""


@data(versions="0-4", flexible="4")
class GroupMetadataValue:
    """A group as of its last completed rebalance; an empty group has no members."""

    protocol_type: str = string()
    """`consumer` for groups of consumers; empty if only offsets were committed."""
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    """The chosen protocol; null without members."""
    leader: str | None = string(nullable="0+")
    """Member id of the leader; null without members."""
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP, ignorable=True)
    """When the group entered its state, from which the expiry of its offsets counts (KIP-211); -1 if unknown."""
    members: list[MemberMetadata] = array(MemberMetadata)


@data(versions="0")
class TransactionLogKey:
    """Key of the state of a transactional id."""

    transactional_id: str = string()


@struct
class PartitionsSchema:
    """Partitions of one topic in a transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


@data(versions="0-1", flexible="1")
class TransactionLogValue:
    """The state of a transactional id; `transaction_status` is the number of the state in Kafka's TransactionState.

    The tagged fields are from Kafka 4 (KIP-890), where each transaction has a new producer epoch.
    """

    producer_id: int = int64()
    previous_producer_id: int = int64("1", tag=0, default=-1, ignorable=True)
    """Producer id before the epoch was exhausted; -1 if there is none."""
    next_producer_id: int = int64("1", tag=1, default=-1, ignorable=True)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1", tag=3, default=-1, ignorable=True)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    """None without a transaction."""
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1", tag=2, default=0, ignorable=True)
    """2 if the producer uses a new epoch for each transaction, else 0 or 1."""


def decode_offsets_key(key: memoryview | bytes) -> OffsetCommitKey | GroupMetadataKey | UnknownKey:
    """Decode the key of a record in __consumer_offsets.  Raises MalformedRequest."""
    version = version_of(key)
    if version in definition_of(OffsetCommitKey).versions:
        return decode_body(OffsetCommitKey, key, version)
    if version in definition_of(GroupMetadataKey).versions:
        return decode_body(GroupMetadataKey, key, version)
    return UnknownKey(version)


def decode_offset_commit_value(value: memoryview | bytes) -> OffsetCommitValue:
    """Decode the value of an OffsetCommitKey.  Raises MalformedRequest, also for unknown versions."""
    return _decode_value(OffsetCommitValue, value)


def decode_group_metadata_value(value: memoryview | bytes) -> GroupMetadataValue:
    """Decode the value of a GroupMetadataKey.  Raises MalformedRequest, also for unknown versions."""
    return _decode_value(GroupMetadataValue, value)


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    """Encode in version 1; version 0 is identical, from the time when offsets could be stored in ZooKeeper."""
    return encode_versioned(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)


def encode_group_metadata_key(group: str) -> bytes:
    """Encode in version 2, the only one."""
    return encode_versioned(GroupMetadataKey(group=group), 2)


def encode_offset_commit_value(value: OffsetCommitValue, version: int = OFFSET_COMMIT_VALUE_VERSION) -> bytes:
    """Encode in `version`, or in version 1 if there is an expiry; the leader epoch is then lost, as in Kafka."""
    has_expiry = value.expire_timestamp != NO_TIMESTAMP
    return encode_versioned(value, OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if has_expiry else version)


def encode_group_metadata_value(value: GroupMetadataValue, version: int = GROUP_METADATA_VALUE_VERSION) -> bytes:
    """Encode in `version`; versions before 3 lose the group instance ids of static members."""
    return encode_versioned(value, version)


def decode_transaction_key(key: memoryview | bytes) -> TransactionLogKey | UnknownKey:
    """Decode the key of a record in __transaction_state.  Raises MalformedRequest."""
    version = version_of(key)
    if version in definition_of(TransactionLogKey).versions:
        return decode_body(TransactionLogKey, key, version)
    return UnknownKey(version)


def decode_transaction_value(value: memoryview | bytes) -> TransactionLogValue:
    """Decode the value of a TransactionLogKey.  Raises MalformedRequest, also for unknown versions."""
    return _decode_value(TransactionLogValue, value)


def encode_transaction_key(transactional_id: str) -> bytes:
    """Encode in version 0, the only one."""
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_LOG_VERSION)


def encode_transaction_value(value: TransactionLogValue, version: int = TRANSACTION_LOG_VERSION) -> bytes:
    """Encode in version 0, or in version 1 if transaction.version is 1 or more."""
    return encode_versioned(value, version)


def _decode_value(cls: type[T], value: memoryview | bytes) -> T:
    version = version_of(value)
    if version not in definition_of(cls).versions:
        raise MalformedRequest(f"{cls.__name__} has version {version}")
    return decode_body(cls, value, version)


# Values with a frame: varints for the frame version, the type and the version, then a message.
#
# Kafka: AbstractApiMessageSerde.


FRAME_VERSION = 1


class Framed(NamedTuple):
    """A message and the version in which it was written."""

    message: Any
    version: int


def encode_framed(types: Mapping[int, type], message: object, version: int) -> bytes:
    """Encode a value; `types` are the classes by type number.  Raises KeyError for a message of another class."""
    number = next((number for number, cls in types.items() if cls is type(message)), None)
    if number is None:
        raise KeyError(type(message).__name__)
    return uvarint(FRAME_VERSION) + uvarint(number) + uvarint(version) + encode_message(message, version)


class UnknownRecordType(MalformedRequest):
    """A record of a newer Kafka."""

    def __init__(self, number: int) -> None:
        super().__init__(f"unknown record type {number}")
        self.number = number


def decode_framed(types: Mapping[int, type], value: bytes) -> Framed:
    """Decode a value; `types` are the classes by type number.  Raises MalformedRequest."""
    view = memoryview(value)
    try:
        frame_version, position = read_uvarint(view, 0)
        number, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
    except IndexError:
        raise MalformedRequest("the value is incomplete") from None
    if frame_version != FRAME_VERSION:
        raise MalformedRequest(f"frame version is {frame_version}, expected {FRAME_VERSION}")
    cls = types.get(number)
    if cls is None:
        raise UnknownRecordType(number)
    if version not in definition_of(cls).versions:
        raise MalformedRequest(f"unknown version {version} of {cls.__name__}")
    message: Any
    message, end = decode(cls, value, version, position)
    if end != len(value):
        raise MalformedRequest(f"{len(value) - end} bytes after {cls.__name__}")
    return Framed(message, version)
