"""An internal topic's partition read back: every batch in order, into whatever the records are about.

The last record of a key counts, which is the playback's business; here is what all playbacks have alike: a record that
cannot be read, or a batch that is broken, is noted and skipped, and the rest is played.

Disks rot, and a coordinator that loads is for many records the first to look at them since they were written: only
batches with the right checksum come here (Kafka's coordinators do not look), by the rule of kctl.records.salvage.

Pure: bytes in.  Kafka: CoordinatorLoaderImpl, GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kctl.errors import MalformedRequest
from kctl.records.batch import iterate_records
from kctl.records.compression import Buffer
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.records.internal_topics import UnknownKey
from kctl.records.salvage import Piece


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be read, or all between two offsets."""

    offset: int
    last_offset: int
    keys: tuple[bytes | None, ...]
    """As far as they could be read; of many the first."""
    reason: str


class Playback(Protocol):
    """What the records of one internal topic build up.  Kafka: CoordinatorPlayback."""

    def record(self, record: Record, header: BatchHeader) -> None:
        """Takes in a record of the batch.  Raises MalformedRequest."""
        ...

    def marker(self, record: Record, header: BatchHeader) -> None:
        """Takes in the end of a producer's transaction in this partition."""
        ...


class PartitionReplay:
    """Feed it the partition's pieces in order; `skipped` tells what was left out."""

    def __init__(self, playback: Playback) -> None:
        self.skipped: list[Skipped] = []
        self._playback = playback

    def batches(self, piece: Piece) -> Iterator[int]:
        """Plays the batches of the piece one at a time; yields how many records each had."""
        for lost in piece.damage:
            reason = f"{lost.reason}, {lost.size} bytes left out"
            self.skipped.append(Skipped(lost.offset, lost.last_offset, lost.keys, reason))
        for header in piece.batches:
            self._batch(piece.data, header)
            yield header.record_count

    def _batch(self, data: Buffer, header: BatchHeader) -> None:
        play = self._playback.marker if header.is_control else self._playback.record
        following = header.base_offset
        try:
            for record in iterate_records(data, header):
                following = record.offset + 1
                try:
                    play(record, header)
                except MalformedRequest as error:
                    self.skipped.append(Skipped(record.offset, record.offset, (record.key,), str(error)))
        except CorruptBatch as error:
            self.skipped.append(Skipped(following, header.last_offset, (), error.reason))


def pass_over(key: UnknownKey) -> None:
    """A kind of key that came after us is nobody's mistake (KIP-915); below 0 there will never be one.

    Raises MalformedRequest.
    """
    if key.version < 0:
        raise MalformedRequest(f"version {key.version} of a key")
