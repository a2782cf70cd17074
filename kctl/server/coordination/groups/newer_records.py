"""Converts between the values of groups of the newer types and their records in `__consumer_offsets`.

The definitions are those with which records of Kafka 4 are displayed; the bytes are those that Kafka 4.3 writes.

Pure.  Kafka: GroupCoordinatorRecordHelpers, StreamsCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode_body, encode_versioned, version_of
from kctl.protocol.definition import definition_of
from kctl.records.header import Record
from kctl.records.internal.newer_group_records import (
    CONSUMER_GROUP_KINDS,
    SHARE_GROUP_KINDS,
    STREAMS_GROUP_KINDS,
    ConsumerGroupKey,
)
from kctl.server.coordination.consumer_groups import group as consumer_group
from kctl.server.coordination.consumer_groups import records as consumer_records
from kctl.server.coordination.consumer_groups import state as consumer_state
from kctl.server.coordination.newer_groups import Change, Key
from kctl.server.coordination.share_groups import group as share_group
from kctl.server.coordination.share_groups import records as share_records
from kctl.server.coordination.streams_groups import group as streams_group
from kctl.server.coordination.streams_groups import records as streams_records
from kctl.server.coordination.streams_groups import state as streams_state

_TYPE_BYTES = 2
_VERSION = 0
_POSITION_IN_BATCH = 0
"""build_batch sets the offsets of records."""
AnyGroup: TypeAlias = consumer_group.ConsumerGroup | share_group.ShareGroup | streams_group.StreamsGroup


class GroupKind(NamedTuple):
    """The records of one type of group."""

    types: type[IntEnum]
    kinds: Mapping[int, tuple[type, type]]
    """Classes of key and value by record type."""
    message: Callable[[Any], object]
    """Returns the message of a value."""
    value: Callable[[Any, Any], object]
    """Returns the value in a message of a record type."""
    new_group: type[AnyGroup]


_KINDS = (
    GroupKind(
        consumer_state.RecordType,
        CONSUMER_GROUP_KINDS,
        consumer_records.message_of,
        consumer_records.value_in,
        consumer_group.ConsumerGroup,
    ),
    GroupKind(
        share_group.RecordType,
        SHARE_GROUP_KINDS,
        share_records.message_of,
        share_records.value_in,
        share_group.ShareGroup,
    ),
    GroupKind(
        streams_state.RecordType,
        STREAMS_GROUP_KINDS,
        streams_records.message_of,
        streams_records.value_in,
        streams_group.StreamsGroup,
    ),
)
KIND_OF = {record_type: kind for kind in _KINDS for record_type in kind.types}
"""The type of group by record type."""
_TYPES = {record_type.value: record_type for record_type in KIND_OF}


def newer_group_records(group_id: str, changes: Iterable[Change], timestamp_ms: int) -> list[Record]:
    """Return the records of changes of a group."""
    return [
        Record(_POSITION_IN_BATCH, timestamp_ms, encode_key(group_id, change.key), encode_value(change))
        for change in changes
    ]


def encode_key(group_id: str, key: Key) -> bytes:
    """Return the key of a record: its type in two bytes, and the names."""
    cls = KIND_OF[key.type].kinds[key.type][0]
    names = (group_id,) if cls is ConsumerGroupKey else (group_id, key.name)
    fields = definition_of(cls).fields
    message = cls(**{field.name: name for field, name in zip(fields, names, strict=True)})
    return key.type.to_bytes(_TYPE_BYTES, "big") + encode_versioned(message, _VERSION)[_TYPE_BYTES:]


def decode_key(key: bytes) -> tuple[str, Key] | None:
    """Return group id and key, or None if the record is of another kind.  Raises MalformedRequest."""
    record_type = _TYPES.get(version_of(key))
    if record_type is None:
        return None
    cls = KIND_OF[record_type].kinds[record_type][0]
    message: Any = decode_body(cls, key, _VERSION)
    group_id, *names = (getattr(message, field.name) for field in definition_of(cls).fields)
    return group_id, Key(record_type, *names)


def encode_value(change: Change) -> bytes | None:
    """Return the value of a record; None for a tombstone."""
    if change.value is None:
        return None
    return encode_versioned(KIND_OF[change.key.type].message(change.value), _VERSION)


def decode_value(record_type: IntEnum, encoded: bytes) -> object:
    """Return the value of a record.  Raises MalformedRequest."""
    kind = KIND_OF[record_type]
    cls = kind.kinds[record_type][1]
    version = version_of(encoded)
    if version not in definition_of(cls).versions:
        raise MalformedRequest(f"{cls.__name__} has version {version}")
    return kind.value(record_type, decode_body(cls, encoded, version))
