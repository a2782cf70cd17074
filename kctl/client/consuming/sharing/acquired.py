"""The records that a broker has handed out to a member of a share group, from the batches of a response.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kctl.client.consuming.fetching.fetcher import Decode
from kctl.client.consuming.sharing.session import GAP, AcknowledgeType, OffsetRange
from kctl.model import TopicPartition
from kctl.protocol.apis.share_fetch import AcquiredRecords
from kctl.records.batch import crc_ok, iterate_batches
from kctl.records.header import CorruptBatch

R = TypeVar("R")


@dataclass(slots=True)
class Acquired(Generic[R]):
    """The records of one response of one partition."""

    records: list[tuple[R, int]] = field(default_factory=list)
    """With their delivery counts, ascending by offset."""
    ranges: list[OffsetRange] = field(default_factory=list)
    """Acquired offsets that are not given to the application: gaps, and records to be released."""
    damage: CorruptBatch | None = None


def acquired_records(
    tp: TopicPartition, buffer: memoryview, ranges: Sequence[AcquiredRecords], decode: Decode[R]
) -> Acquired[R]:
    """Return the records of the acquired ranges.  Batches also have records that other members hold.

    Offsets without a record (control batches, compaction) are gaps.  What comes after damage, or after the last whole
    batch, is released: another delivery may have it.
    """
    acquired: Acquired[R] = Acquired()
    remaining = sorted(ranges, key=lambda acquired: acquired.first_offset)
    position = remaining[0].first_offset if remaining else 0
    end = position
    offsets: list[int] = []
    try:
        for header in iterate_batches(buffer):
            if not crc_ok(buffer, header):
                raise CorruptBatch(header.position, "wrong checksum")
            if not header.is_control:
                for records, _ in decode(tp, buffer, header):
                    for record in records:
                        offset: int = record.offset  # type: ignore[attr-defined]
                        if (count := _delivery_count(remaining, offset)) is not None:
                            acquired.records.append((record, count))
                            offsets.append(offset)
            end = header.next_offset
    except CorruptBatch as damage:
        acquired.damage = CorruptBatch(damage.position, f"{tp} at offset {end}: {damage.reason}")
        while offsets and offsets[-1] >= end:  # Of the damaged batch.
            offsets.pop()
            acquired.records.pop()
    acquired.ranges = list(_rest(ranges, offsets, end))
    return acquired


def _delivery_count(remaining: list[AcquiredRecords], offset: int) -> int | None:
    """Return the delivery count of an offset, None if it was not acquired; the ranges before it are removed."""
    while remaining and remaining[0].last_offset < offset:
        del remaining[0]
    return remaining[0].delivery_count if remaining and remaining[0].first_offset <= offset else None


def _rest(ranges: Iterable[AcquiredRecords], offsets: list[int], end: int) -> Iterable[OffsetRange]:
    """Return the acquired offsets without a record: up to `end` they are gaps, from there on they are released."""
    place = 0
    for range_ in sorted(ranges, key=lambda acquired: acquired.first_offset):
        position = range_.first_offset
        while place < len(offsets) and offsets[place] <= range_.last_offset:
            if position < offsets[place]:
                yield OffsetRange(position, offsets[place] - 1, GAP)
            position = offsets[place] + 1
            place += 1
        if position <= min(range_.last_offset, end - 1):
            yield OffsetRange(position, min(range_.last_offset, end - 1), GAP)
        if max(position, end) <= range_.last_offset:
            yield OffsetRange(max(position, end), range_.last_offset, AcknowledgeType.RELEASE)
