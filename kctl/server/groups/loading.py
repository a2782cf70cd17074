"""Groups out of the log: replays a partition of `__consumer_offsets` from its start to its end.

The last record of a key counts.  Commits inside of a transaction count from its commit marker on, and never after an
abort; those without a marker are restored as pending.  A record that cannot be read is skipped and reported, kinds of
keys that we do not know are skipped silently (KIP-915).

Pure: bytes in, groups out.  Kafka: GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kctl.errors import MalformedRequest
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.records.internal_topics import (
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group_metadata_value,
    decode_offsets_key,
    encode_offset_commit_key,
)
from kctl.server.groups.config import GroupConfig
from kctl.server.groups.group import Group
from kctl.server.groups.offsets import Packed, unpack
from kctl.server.groups.records import group_snapshot, read_committed_offset
from kctl.server.groups.snapshot import GroupSnapshot

Buffer: TypeAlias = bytes | bytearray | memoryview

KEY_VERSION_BYTES = 2
_PARTITION = struct.Struct(">i")


class GroupPartition(NamedTuple):
    """One partition as one group has committed it."""

    group_id: str
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record, or the rest of a batch, that could not be read."""

    offset: int
    key: bytes | None
    reason: str


class _Place(NamedTuple):
    """Where the commits of one topic by one group go."""

    group_id: str
    topic: str
    committed: dict[TopicPartition, Packed]
    """Of the group, all topics together."""
    partitions: dict[int, TopicPartition]
    """Of the topic, shared by all groups."""


class PartitionReplay:
    """Feed it the partition's batches in order, then take the groups.

    Nearly all records are commits, and their keys differ in the partition, the last four bytes, only: what is before
    them is parsed once and then looked up.
    """

    def __init__(self) -> None:
        self.skipped: list[SkippedRecord] = []
        self._groups: dict[str, GroupSnapshot] = {}
        self._places: dict[bytes, _Place] = {}
        self._topics: defaultdict[str, dict[int, TopicPartition]] = defaultdict(dict)
        self._offsets: defaultdict[str, dict[TopicPartition, Packed]] = defaultdict(dict)
        self._transactions: defaultdict[int, dict[GroupPartition, Packed]] = defaultdict(dict)

    def batches(self, chunk: Buffer) -> Iterator[int]:
        """Takes in the batches of the chunk one at a time; yields how many records each had."""
        try:
            for header in iterate_batches(chunk):
                self._batch(chunk, header)
                yield header.record_count
        except CorruptBatch as error:
            self.skipped.append(SkippedRecord(-1, None, error.reason))

    def groups(self, config: GroupConfig) -> Iterator[Group]:
        """Every group that has members, a generation or commits."""
        pending = self._pending_by_group()
        group_ids = dict.fromkeys((*self._groups, *self._offsets, *pending))
        for group_id in group_ids:
            snapshot = self._groups.get(group_id)
            group = Group(group_id, config) if snapshot is None else Group.restored(group_id, config, snapshot)
            group.offsets.load(self._offsets.get(group_id, {}))
            for producer_id, tp, packed in pending.get(group_id, ()):
                group.offsets.load_transaction(producer_id, tp, unpack(packed))
            if snapshot is not None or not group.is_vacant:
                yield group

    def _batch(self, chunk: Buffer, header: BatchHeader) -> None:
        try:
            if header.is_control:
                for record in iterate_records(chunk, header):
                    self._marker(header.producer_id, record)
                return
            producer_id = header.producer_id if header.is_transactional else None
            for record in iterate_records(chunk, header):
                self._record(record, header.base_offset, producer_id)
        except CorruptBatch as error:
            self.skipped.append(SkippedRecord(header.base_offset, None, error.reason))

    def _record(self, record: Record, log_offset: int, producer_id: int | None) -> None:
        key = record.key or b""
        try:
            place = self._places.get(key[: -_PARTITION.size])
            if place is not None:
                (partition,) = _PARTITION.unpack_from(key, len(key) - _PARTITION.size)
                self._offset(place, partition, record.value, log_offset, producer_id)
                return
            decoded = decode_offsets_key(key)
            if isinstance(decoded, OffsetCommitKey):
                self._offset(self._place(decoded, key), decoded.partition, record.value, log_offset, producer_id)
            elif isinstance(decoded, GroupMetadataKey):
                self._group(decoded.group, record.value)
        except MalformedRequest as error:
            self.skipped.append(SkippedRecord(record.offset, record.key, str(error)))

    def _place(self, decoded: OffsetCommitKey, key: bytes) -> _Place:
        group_id, topic = decoded.group, decoded.topic
        place = _Place(group_id, topic, self._offsets[group_id], self._topics[topic])
        if encode_offset_commit_key(group_id, topic, decoded.partition)[KEY_VERSION_BYTES:] == key[KEY_VERSION_BYTES:]:
            # Nothing is behind the partition.
            self._places[key[: -_PARTITION.size]] = place
        return place

    def _offset(
        self, place: _Place, partition: int, value: bytes | None, log_offset: int, producer_id: int | None
    ) -> None:
        tp = place.partitions.get(partition)
        if tp is None:
            tp = place.partitions[partition] = TopicPartition(place.topic, partition)
        if value is None:
            place.committed.pop(tp, None)
            for opened in self._transactions.values():
                opened.pop(GroupPartition(place.group_id, tp), None)
            return
        packed = read_committed_offset(value, log_offset)
        if producer_id is None:
            place.committed[tp] = packed
        else:
            self._transactions[producer_id][GroupPartition(place.group_id, tp)] = packed

    def _group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = group_snapshot(decode_group_metadata_value(value))

    def _marker(self, producer_id: int, record: Record) -> None:
        kind = control_type(record)
        if kind is ControlType.UNKNOWN:
            return
        for (group_id, tp), packed in self._transactions.pop(producer_id, {}).items():
            present = self._offsets[group_id].get(tp)
            if kind is ControlType.COMMIT and (
                present is None or unpack(present).log_offset < unpack(packed).log_offset
            ):
                self._offsets[group_id][tp] = packed

    def _pending_by_group(self) -> dict[str, list[tuple[int, TopicPartition, Packed]]]:
        pending: dict[str, list[tuple[int, TopicPartition, Packed]]] = {}
        for producer_id, offsets in self._transactions.items():
            for (group_id, tp), packed in offsets.items():
                pending.setdefault(group_id, []).append((producer_id, tp, packed))
        return pending
