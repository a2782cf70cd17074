"""Converts between a group and its records in `__consumer_offsets`."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Mapping, Sequence

from kctl.errors import MalformedRequest
from kctl.limits import GROUP_MEMBERS_PER_STEP_MAX
from kctl.model import TopicPartition
from kctl.records.header import Record
from kctl.records.internal_topics import (
    GROUP_METADATA_VALUE_VERSION,
    NO_TIMESTAMP,
    OFFSET_COMMIT_VALUE_VERSION,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    decode_offset_commit_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from kctl.server.groups.offsets import AppendedOffset, OffsetAndMetadata, Packed, pack
from kctl.server.groups.snapshot import GroupSnapshot, MemberSnapshot

_POSITION_IN_BATCH = 0
"""build_batch sets the offsets of records."""
_COUNT = struct.Struct(">i")
_PLAIN_COMMIT = struct.Struct(">hqihq")
"""Version 3 with empty metadata: version, offset, leader epoch, length of the metadata, commit timestamp."""


def offset_records(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timestamp_ms: int,
    version: int = OFFSET_COMMIT_VALUE_VERSION,
) -> list[Record]:
    """One record per committed partition."""
    return [
        Record(
            _POSITION_IN_BATCH,
            timestamp_ms,
            encode_offset_commit_key(group_id, tp.topic, tp.partition),
            encode_offset_commit_value(_commit_value(value), version),
        )
        for tp, value in offsets.items()
    ]


def stored_bytes(snapshot: GroupSnapshot) -> int:
    """The size of what the members sent, in the record of the generation."""
    return sum(len(each.subscription) + len(each.assignment) + len(each.client_id) for each in snapshot.members)


def group_record(
    group_id: str, snapshot: GroupSnapshot, timestamp_ms: int, version: int = GROUP_METADATA_VALUE_VERSION
) -> Record:
    """The record of a generation."""
    key = encode_group_metadata_key(group_id)
    value = encode_group_metadata_value(_group_value(snapshot, snapshot.members), version)
    return Record(_POSITION_IN_BATCH, timestamp_ms, key, value)


def group_record_in_pieces(
    group_id: str, snapshot: GroupSnapshot, timestamp_ms: int, version: int = GROUP_METADATA_VALUE_VERSION
) -> Generator[None, None, Record]:
    """As `group_record`, for many members: yields after each part.

    The members are the end of the value, in versions that are not flexible.
    """
    assert version <= GROUP_METADATA_VALUE_VERSION
    start = encode_group_metadata_value(_group_value(snapshot, ()), version)
    value = bytearray(start)
    _COUNT.pack_into(value, len(start) - _COUNT.size, len(snapshot.members))
    for first in range(0, len(snapshot.members), GROUP_MEMBERS_PER_STEP_MAX):
        members = snapshot.members[first : first + GROUP_MEMBERS_PER_STEP_MAX]
        value += encode_group_metadata_value(_group_value(snapshot, members), version)[len(start) :]
        yield
    return Record(_POSITION_IN_BATCH, timestamp_ms, encode_group_metadata_key(group_id), bytes(value))


def _group_value(snapshot: GroupSnapshot, members: Iterable[MemberSnapshot]) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=snapshot.protocol_type,
        generation=snapshot.generation,
        protocol=snapshot.protocol,
        leader=snapshot.leader,
        current_state_timestamp=snapshot.state_timestamp_ms,
        members=[_member_metadata(member) for member in members],
    )


def tombstones(
    group_id: str, partitions: Sequence[TopicPartition], *, is_group_gone: bool, timestamp_ms: int
) -> list[Record]:
    """Tombstones for committed offsets and, if `is_group_gone`, for the group."""
    keys = [encode_offset_commit_key(group_id, tp.topic, tp.partition) for tp in partitions]
    if is_group_gone:
        keys.append(encode_group_metadata_key(group_id))
    return [Record(_POSITION_IN_BATCH, timestamp_ms, key, None) for key in keys]


def read_committed_offset(value: bytes, log_offset: int) -> Packed:
    """The committed offset in a record of the batch at `log_offset`.  Raises MalformedRequest.

    The value version of recent brokers is decoded in place, because a load may read a million of these.
    """
    if len(value) == _PLAIN_COMMIT.size:
        version, offset, leader_epoch, metadata_bytes, timestamp_ms = _PLAIN_COMMIT.unpack(value)
        if version == OFFSET_COMMIT_VALUE_VERSION and metadata_bytes == 0:
            return offset, leader_epoch, "", timestamp_ms, None, log_offset
    return pack(AppendedOffset(_committed_offset(decode_offset_commit_value(value)), log_offset))


def group_snapshot(value: GroupMetadataValue) -> GroupSnapshot:
    """The generation in a record.  Raises MalformedRequest if two members have the same id."""
    static = [member.group_instance_id for member in value.members if member.group_instance_id is not None]
    for ids in ([member.member_id for member in value.members], static):
        if len(set(ids)) < len(ids):
            raise MalformedRequest("two members have the same id")
    return GroupSnapshot(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(_member_snapshot(member) for member in value.members),
    )


def _committed_offset(value: OffsetCommitValue) -> OffsetAndMetadata:
    expire_ms = value.expire_timestamp
    return OffsetAndMetadata(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=None if expire_ms == NO_TIMESTAMP else expire_ms,
    )


def _commit_value(value: OffsetAndMetadata) -> OffsetCommitValue:
    expire_ms = value.expire_timestamp_ms
    return OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        expire_timestamp=NO_TIMESTAMP if expire_ms is None else expire_ms,
    )


def _member_metadata(member: MemberSnapshot) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _member_snapshot(member: MemberMetadata) -> MemberSnapshot:
    has_rebalance_timeout = member.rebalance_timeout >= 0
    return MemberSnapshot(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout if has_rebalance_timeout else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )
