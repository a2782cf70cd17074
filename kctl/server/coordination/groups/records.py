"""The records of groups in `__consumer_offsets`: written, and read when a partition is loaded."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from kctl.errors import MalformedRequest
from kctl.limits import GROUP_MEMBERS_PER_STEP_MAX
from kctl.model import TopicPartition
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader, Record
from kctl.records.internal.topics import (
    GROUP_METADATA_VALUE_VERSION,
    NO_TIMESTAMP,
    OFFSET_COMMIT_VALUE_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from kctl.server.coordination.groups.actions import GroupSnapshot, MemberSnapshot
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.newer_records import KIND_OF, decode_key, decode_value
from kctl.server.coordination.groups.offsets import AppendedOffset, OffsetAndMetadata, Packed, pack, unpack
from kctl.server.coordination.newer_groups import Change, NewerGroup
from kctl.server.coordination.replay import pass_over
from kctl.system.steps import Steps

# Converts between a group and its records in `__consumer_offsets`.


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
    """Return one record per committed partition."""
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
    """Return the size of what the members sent, in the record of the generation."""
    return sum(len(member.subscription) + len(member.assignment) + len(member.client_id) for member in snapshot.members)


def group_record(
    group_id: str, snapshot: GroupSnapshot, timestamp_ms: int, version: int = GROUP_METADATA_VALUE_VERSION
) -> Record:
    """Return the record of a generation."""
    key = encode_group_metadata_key(group_id)
    value = encode_group_metadata_value(_group_value(snapshot, snapshot.members), version)
    return Record(_POSITION_IN_BATCH, timestamp_ms, key, value)


def group_record_in_pieces(
    group_id: str, snapshot: GroupSnapshot, timestamp_ms: int, version: int = GROUP_METADATA_VALUE_VERSION
) -> Steps[Record]:
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
    """Return the tombstones for committed offsets and, if `is_group_gone`, for the group."""
    keys = [encode_offset_commit_key(group_id, tp.topic, tp.partition) for tp in partitions]
    if is_group_gone:
        keys.append(encode_group_metadata_key(group_id))
    return [Record(_POSITION_IN_BATCH, timestamp_ms, key, None) for key in keys]


def read_committed_offset(value: bytes, log_offset: int) -> Packed:
    """Return the committed offset in a record of the batch at `log_offset`.  Raises MalformedRequest.

    The value version of recent brokers is decoded in place, because a load may read a million of these.
    """
    if len(value) == _PLAIN_COMMIT.size:
        version, offset, leader_epoch, metadata_bytes, timestamp_ms = _PLAIN_COMMIT.unpack(value)
        if version == OFFSET_COMMIT_VALUE_VERSION and metadata_bytes == 0:
            return offset, leader_epoch, "", timestamp_ms, None, log_offset
    return pack(AppendedOffset(_committed_offset(decode_offset_commit_value(value)), log_offset))


def group_snapshot(value: GroupMetadataValue) -> GroupSnapshot:
    """Return the generation in a record.  Raises MalformedRequest if two members have the same id."""
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


# Restores groups from the records of a partition of `__consumer_offsets`.
#
# The last record of a key counts. Commits of a transaction count after its commit marker, and never after an abort;
# those without a marker are restored as pending. Unknown key types are skipped silently (KIP-915).
#
# Pure: records in, groups out. Kafka: GroupMetadataManager.doLoadGroupsAndOffsets.


KEY_VERSION_BYTES = 2
_PARTITION = struct.Struct(">i")


class GroupPartition(NamedTuple):
    """A partition with a commit of a group."""

    group_id: str
    topic_partition: TopicPartition


class _Place(NamedTuple):
    """The dictionaries for the commits of one topic by one group."""

    group_id: str
    topic: str
    committed: dict[TopicPartition, Packed]
    """The commits of the group, for all topics."""
    partitions: dict[int, TopicPartition]
    """The partitions of the topic, shared by all groups."""


class GroupPlayback:
    """coordinators.replay.Playback: replay the partition's records in order, then call `groups`.

    Nearly all records are commits whose keys differ only in the partition, the last four bytes: the prefix is parsed
    once and then looked up.
    """

    def __init__(self) -> None:
        self._groups: dict[str, GroupSnapshot] = {}
        self._newer_groups: dict[str, NewerGroup] = {}
        self._places: dict[bytes, _Place] = {}
        self._topics: defaultdict[str, dict[int, TopicPartition]] = defaultdict(dict)
        self._offsets: defaultdict[str, dict[TopicPartition, Packed]] = defaultdict(dict)
        self._transactions: defaultdict[int, dict[GroupPartition, Packed]] = defaultdict(dict)
        self._producers: defaultdict[GroupPartition, set[int]] = defaultdict(set)
        """The producers that have committed the partition in `_transactions`, and maybe others."""

    def record(self, record: Record, header: BatchHeader) -> None:
        """Apply one record of a data batch."""
        key = record.key or b""
        place = self._places.get(key[: -_PARTITION.size])
        if place is not None:
            (partition,) = _PARTITION.unpack_from(key, len(key) - _PARTITION.size)
            self._offset(place, partition, record.value, header)
            return
        decoded = decode_offsets_key(key)
        if isinstance(decoded, OffsetCommitKey):
            self._offset(self._place(decoded, key), decoded.partition, record.value, header)
        elif isinstance(decoded, GroupMetadataKey):
            self._group(decoded.group, record.value)
        elif isinstance(decoded, UnknownKey) and not self._newer_group(key, record.value):
            pass_over(decoded)

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Apply the commit or abort marker of a transaction."""
        kind = control_type(record)
        if kind is ControlType.UNKNOWN:
            return
        for (group_id, tp), packed in self._transactions.pop(header.producer_id, {}).items():
            present = self._offsets[group_id].get(tp)
            if kind is ControlType.COMMIT and (
                present is None or unpack(present).log_offset < unpack(packed).log_offset
            ):
                self._offsets[group_id][tp] = packed

    def groups(self, config: GroupConfig) -> Iterator[Group | None]:
        """Yield every group with members, a generation or commits, once; None is a step without a group.

        What was read is dropped step by step: freeing that of 100,000 groups at once takes tens of milliseconds.
        """
        pending: defaultdict[str, list[tuple[int, TopicPartition, Packed]]] = defaultdict(list)
        for producer_id, offsets in self._transactions.items():
            for (group_id, tp), packed in offsets.items():
                pending[group_id].append((producer_id, tp, packed))
                yield None
        indexes: tuple[dict[Any, Any], ...] = (self._places, self._producers, *self._transactions.values())
        for index in indexes:
            while index:
                index.popitem()
                yield None
        for group_id in list(self._groups):
            group = Group.restored(group_id, config, self._groups.pop(group_id))
            self._restore_offsets(group, pending.pop(group_id, []))
            yield group
        for group_id in chain(list(self._newer_groups), list(self._offsets), list(pending)):
            group = Group(group_id, config)
            group.newer = self._newer_groups.pop(group_id, None)
            self._restore_offsets(group, pending.pop(group_id, []))
            # The records of an empty group of a newer type are deleted when it expires.
            is_stored = group.newer is not None and group.newer.is_stored
            yield None if group.is_vacant and not is_stored else group

    def _restore_offsets(self, group: Group, pending: list[tuple[int, TopicPartition, Packed]]) -> None:
        group.offsets.load(self._offsets.pop(group.group_id, {}))
        for producer_id, tp, packed in pending:
            group.offsets.load_transaction(producer_id, tp, unpack(packed))

    def _place(self, decoded: OffsetCommitKey, key: bytes) -> _Place:
        group_id, topic = decoded.group, decoded.topic
        place = _Place(group_id, topic, self._offsets[group_id], self._topics[topic])
        if encode_offset_commit_key(group_id, topic, decoded.partition)[KEY_VERSION_BYTES:] == key[KEY_VERSION_BYTES:]:
            # The partition is the last field of the key.
            self._places[key[: -_PARTITION.size]] = place
        return place

    def _offset(self, place: _Place, partition: int, value: bytes | None, header: BatchHeader) -> None:
        tp = place.partitions.get(partition)
        if tp is None:
            tp = place.partitions[partition] = TopicPartition(place.topic, partition)
        if value is None:
            place.committed.pop(tp, None)
            removed = GroupPartition(place.group_id, tp)
            for producer_id in self._producers.pop(removed, ()):
                if producer_id in self._transactions:
                    self._transactions[producer_id].pop(removed, None)
            return
        packed = read_committed_offset(value, header.base_offset)
        if header.is_transactional:
            committed = GroupPartition(place.group_id, tp)
            self._transactions[header.producer_id][committed] = packed
            self._producers[committed].add(header.producer_id)
        else:
            place.committed[tp] = packed

    def _newer_group(self, key: bytes, value: bytes | None) -> bool:
        """Apply a record of a group of one of the newer types; return False if it is of another kind."""
        decoded = decode_key(key)
        if decoded is None:
            return False
        group_id, changed = decoded
        change = Change(changed, None if value is None else decode_value(changed.type, value))
        new_group = KIND_OF[changed.type].new_group
        group = self._newer_groups.get(group_id)
        if value is not None:
            self._groups.pop(group_id, None)
        elif not isinstance(group, new_group):
            return True  # There is nothing to remove, and the group may be one of another type.
        if not isinstance(group, new_group):
            group = self._newer_groups[group_id] = new_group()
        group.apply(change)
        if value is None and changed.type.name == "GROUP":
            del self._newer_groups[group_id]
        return True

    def _group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
        else:
            # The group was converted, or this is the last record of a classic one.
            self._newer_groups.pop(group_id, None)
            self._groups[group_id] = group_snapshot(decode_group_metadata_value(value))
