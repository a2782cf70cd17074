"""An internal topic's partition read back: every batch in order, into whatever the records are about.

The last record of a key counts, which is the playback's business; here is what all playbacks have alike: a record that
cannot be read, or a batch that is broken, is noted and skipped, and the rest is played.

Pure: bytes in.  Kafka: CoordinatorLoaderImpl, GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kctl.errors import MalformedRequest
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.compression import Buffer
from kctl.records.header import BatchHeader, CorruptBatch, Record


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record, or the rest of a batch, that could not be read; its offset is -1 where not even that is known."""

    offset: int
    key: bytes | None
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
    """Feed it the partition's chunks of whole batches in order; `skipped` tells what was left out."""

    def __init__(self, playback: Playback) -> None:
        self.skipped: list[SkippedRecord] = []
        self._playback = playback

    def batches(self, chunk: Buffer) -> Iterator[int]:
        """Plays the batches of the chunk one at a time; yields how many records each had."""
        try:
            for header in iterate_batches(chunk):
                self._batch(chunk, header)
                yield header.record_count
        except CorruptBatch as error:
            self.skipped.append(SkippedRecord(-1, None, error.reason))

    def _batch(self, chunk: Buffer, header: BatchHeader) -> None:
        play = self._playback.marker if header.is_control else self._playback.record
        try:
            for record in iterate_records(chunk, header):
                try:
                    play(record, header)
                except MalformedRequest as error:
                    self.skipped.append(SkippedRecord(record.offset, record.key, str(error)))
        except CorruptBatch as error:
            self.skipped.append(SkippedRecord(header.base_offset, None, error.reason))
