"""Restores groups from the records of a partition of `__consumer_offsets`.

The last record of a key counts.  Commits of a transaction count after its commit marker, and never after an abort;
those without a marker are restored as pending.  Unknown key types are skipped silently (KIP-915).

Pure: records in, groups out.  Kafka: GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from kctl.model import TopicPartition
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader, Record
from kctl.records.internal_topics import (
    GroupMetadataKey,
    OffsetCommitKey,
    UnknownKey,
    decode_group_metadata_value,
    decode_offsets_key,
    encode_offset_commit_key,
)
from kctl.server.coordinators.replay import pass_over
from kctl.server.groups.config import GroupConfig
from kctl.server.groups.group import Group
from kctl.server.groups.offsets import Packed, unpack
from kctl.server.groups.records import group_snapshot, read_committed_offset
from kctl.server.groups.snapshot import GroupSnapshot

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
        self._places: dict[bytes, _Place] = {}
        self._topics: defaultdict[str, dict[int, TopicPartition]] = defaultdict(dict)
        self._offsets: defaultdict[str, dict[TopicPartition, Packed]] = defaultdict(dict)
        self._transactions: defaultdict[int, dict[GroupPartition, Packed]] = defaultdict(dict)
        self._producers: defaultdict[GroupPartition, set[int]] = defaultdict(set)
        """The producers that have committed the partition in `_transactions`, and maybe others."""

    def record(self, record: Record, header: BatchHeader) -> None:
        """Applies one record of a data batch."""
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
        elif isinstance(decoded, UnknownKey):
            pass_over(decoded)

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Applies the commit or abort marker of a transaction."""
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
        """Every group with members, a generation or commits, once; None is a step without a group.

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
        for group_id in chain(list(self._offsets), list(pending)):
            group = Group(group_id, config)
            self._restore_offsets(group, pending.pop(group_id, []))
            yield None if group.is_vacant else group

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

    def _group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = group_snapshot(decode_group_metadata_value(value))
