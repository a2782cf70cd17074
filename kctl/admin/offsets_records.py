"""The records of __consumer_offsets about given groups.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from kctl.errors import MalformedRequest
from kctl.model import TopicPartition
from kctl.records.batch import iterate_records
from kctl.records.header import BatchHeader
from kctl.records.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
)


class CommitRecord(NamedTuple):
    """A commit; without a value, the deletion of the committed offset."""

    group: str
    tp: TopicPartition
    value: OffsetCommitValue | None
    time_ms: int
    """Time of the commit, or of the record of a deletion."""


class GroupRecord(NamedTuple):
    """A group after a rebalance; without a value, its deletion."""

    group: str
    value: GroupMetadataValue | None


def group_records(
    buffer: memoryview, header: BatchHeader, groups: Collection[str]
) -> Iterator[CommitRecord | GroupRecord]:
    """The records of one batch about these groups.

    Raises CorruptBatch; records that cannot be decoded, and those of newer versions, are skipped.
    """
    for record in iterate_records(buffer, header):
        if record.key is None:
            continue
        try:
            key = decode_offsets_key(record.key)
            if isinstance(key, OffsetCommitKey) and key.group in groups:
                commit = None if record.value is None else decode_offset_commit_value(record.value)
                time_ms = record.timestamp if commit is None else commit.commit_timestamp
                yield CommitRecord(key.group, TopicPartition(key.topic, key.partition), commit, time_ms)
            elif isinstance(key, GroupMetadataKey) and key.group in groups:
                yield GroupRecord(
                    key.group, None if record.value is None else decode_group_metadata_value(record.value)
                )
        except MalformedRequest:
            continue
