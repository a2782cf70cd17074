"""Gathers record batches into chunks of a few megabytes, the unit of decoding with numpy.

A numpy call takes as long for ten records as for a thousand, and batches rarely have more than a few hundred, so many
batches are decoded together.  A chunk of uncompressed batches is the received buffer, with positions that skip the
headers.  If a batch is compressed, the chunk is a new buffer of decompressed records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kctl.quantities import counted
from kctl.records.batch import crc_ok, records_region
from kctl.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, CorruptBatch
from kctl.spark.exec.outcome import CorruptRecords
from kctl.spark.exec.varints import Bytes, Longs

CHUNK_BYTES = 4 << 20
"""Measured optimum 4 to 8 MB: smaller needs more calls, larger exceeds the processor's cache."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of some batches: batch i is data[starts[i]:ends[i]], in the order of offsets."""

    data: memoryview | bytes
    starts: Longs
    ends: Longs
    batches: Sequence[BatchHeader]

    @property
    def buffer(self) -> Bytes:
        """The data for numpy, without a copy."""
        return np.frombuffer(self.data, np.uint8)


def chunks(data: memoryview, batches: Sequence[BatchHeader], *, size: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The given batches of `data` in chunks of at least `size` bytes, the last one smaller.

    Checks the checksum of every batch.  Raises CorruptRecords.
    """
    group: list[BatchHeader] = []
    regions: list[memoryview | bytes] = []
    gathered = 0
    for batch in batches:
        if batch.record_count == 0 and batch.size == HEADER_SIZE:
            continue  # kept by compaction for the producer's sequence number
        regions.append(_region(data, batch))
        group.append(batch)
        gathered += len(regions[-1])
        if gathered >= size:
            yield _chunk(data, group, regions)
            group, regions, gathered = [], [], 0
    if group:
        yield _chunk(data, group, regions)


def _region(data: memoryview, batch: BatchHeader) -> memoryview | bytes:
    if not crc_ok(data, batch):
        raise CorruptRecords(f"the batch at offset {batch.base_offset} fails its checksum")
    if batch.record_count < 1:
        raise CorruptRecords(f"the batch at offset {batch.base_offset} claims {counted(batch.record_count, 'record')}")
    try:
        region = records_region(data, batch)
    except CorruptBatch as error:
        raise CorruptRecords(f"the batch at offset {batch.base_offset}: {error}") from error
    return bytes(region) if isinstance(region, bytearray) else region


def _chunk(data: memoryview, group: list[BatchHeader], regions: list[memoryview | bytes]) -> Chunk:
    if not any(batch.attributes & CODEC_MASK for batch in group):
        origin = group[0].position
        starts = np.array([batch.position + HEADER_SIZE - origin for batch in group], np.int64)
        ends = np.array([batch.end - origin for batch in group], np.int64)
        return Chunk(data[origin : group[-1].end], starts, ends, group)
    ends = np.cumsum([len(region) for region in regions], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    return Chunk(b"".join(regions), starts, ends, group)
