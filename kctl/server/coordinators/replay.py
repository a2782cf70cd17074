"""An internal topic's partition read back: every batch in order, into whatever the records are about.

The last record of a key counts, which is the playback's business; here is what all playbacks have alike: a record that
cannot be read, or a batch that is broken, is noted and skipped, and the rest is played.

Disks rot, and a coordinator that loads is for many records the first to look at them since they were written: it looks
at checksums (Kafka's do not).  A rotten batch is skipped as a whole; those behind it are not the worse for it.

Pure: bytes in.  Kafka: CoordinatorLoaderImpl, GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kctl.errors import MalformedRequest
from kctl.records.batch import iterate_records, parse_any_header
from kctl.records.compression import Buffer
from kctl.records.header import LOG_OVERHEAD, BatchHeader, CorruptBatch, Record, crc_of
from kctl.records.internal_topics import UnknownKey

_OFFSET_AND_LENGTH = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record, or the rest of a batch, that could not be read.  A batch has the offset where it starts, and no key."""

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
        for header in sound_batches(chunk, self.skipped):
            self._batch(chunk, header)
            yield header.record_count

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


def sound_batches(chunk: Buffer, skipped: list[SkippedRecord]) -> Iterator[BatchHeader]:
    """The headers of the chunk's whole batches that can be believed; the others go to `skipped`."""
    position = 0
    while len(chunk) - position >= LOG_OVERHEAD:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(chunk, position)
        if length <= 0:
            skipped.append(SkippedRecord(base_offset, None, f"batch of {length} bytes; what follows is lost"))
            return
        end = position + LOG_OVERHEAD + length
        if end > len(chunk):
            return
        try:
            header = parse_any_header(chunk, position)
            is_sound = crc_of(chunk, position, end, header.magic) == header.crc
        except CorruptBatch as error:
            skipped.append(SkippedRecord(base_offset, None, error.reason))
        else:
            if is_sound:
                yield header
            else:
                skipped.append(SkippedRecord(base_offset, None, "wrong checksum"))
        position = end


def pass_over(key: UnknownKey) -> None:
    """A kind of key that came after us is nobody's mistake (KIP-915); below 0 there will never be one.

    Raises MalformedRequest.
    """
    if key.version < 0:
        raise MalformedRequest(f"version {key.version} of a key")
