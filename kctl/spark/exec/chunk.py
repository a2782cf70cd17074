"""Gathers record batches into chunks of a few megabytes, the unit of decoding with numpy.

A numpy call takes as long for ten records as for a thousand, and batches rarely have more than a few hundred, so many
batches are decoded together.  A chunk of uncompressed batches is the received buffer, with positions that skip the
headers.  If a batch is compressed, the chunk is a copy of the decompressed records, in bytes, as the record walk needs.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import cramjam
import numpy as np

from kctl.quantities import counted
from kctl.records.batch import crc_ok, records_region
from kctl.records.compression import Buffer, Codec
from kctl.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, CorruptBatch
from kctl.spark.exec import lz4_frames
from kctl.spark.exec.outcome import CorruptRecords
from kctl.spark.exec.varints import Bytes, Longs

CHUNK_BYTES = 4 << 20
"""Measured optimum 4 to 8 MB: smaller needs more calls, larger exceeds the processor's cache."""
BATCH_BYTES = 1 << 20
"""Space for the batch that ends a chunk; a larger one is copied."""


def _zstd_into(frames: memoryview, target: Bytes) -> int | None:
    try:
        return int(cramjam.zstd.decompress_into(frames, target.data))
    except cramjam.DecompressionError:
        return None


OnCorrupt = Callable[[BatchHeader, str], None]
"""Gets a corrupt batch, and the reason."""
_IN_PLACE = {Codec.LZ4.value: lz4_frames.decompress_into, Codec.ZSTD.value: _zstd_into}
"""Functions that decompress into a buffer; None if they cannot."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of some batches: batch i is data[starts[i]:ends[i]], in the order of offsets."""

    data: bytes | memoryview
    """May be longer than the last batch."""
    starts: Longs
    ends: Longs
    batches: Sequence[BatchHeader]

    @property
    def buffer(self) -> Bytes:
        """The data for numpy, without a copy."""
        return np.frombuffer(self.data, np.uint8)


def chunks(
    data: memoryview,
    batches: Sequence[BatchHeader],
    *,
    size: int = CHUNK_BYTES,
    memories: Memories | None = None,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Chunk]:
    """The given batches of `data` in chunks of at least `size` bytes, the last one smaller.

    `memories` is for further calls of the same reader.  Checks the checksum of every batch.  Raises CorruptRecords for
    a corrupt batch, unless `on_corrupt` is called with it.
    """
    memories = Memories() if memories is None else memories
    gathered = _Gathered(data, size, memories.next())
    for batch in batches:
        if batch.record_count == 0 and batch.size == HEADER_SIZE:
            continue  # kept by compaction for the producer's sequence number
        try:
            gathered.add(batch)
        except CorruptRecords as error:
            if on_corrupt is None:
                raise
            on_corrupt(batch, str(error))
        if gathered.size >= size:
            yield gathered.chunk()
            gathered = _Gathered(data, size, memories.next())
    if gathered.batches:
        yield gathered.chunk()


class _Memory:
    """Memory of a chunk, which is used again for later ones: fresh memory costs as much as filling it.

    `io.BytesIO` returns its contents without a copy, and copies them before the next change if they are still in use.
    """

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._size = 0

    def room(self, size: int) -> Bytes:
        """At least `size` bytes to fill, with any contents."""
        if self._size < size:
            self._file, self._size = io.BytesIO(bytes(size)), size
        return np.frombuffer(self._file.getbuffer(), np.uint8)

    def filled(self) -> bytes:
        """All bytes.  What `room` has returned must no longer be in use."""
        return self._file.getvalue()


class Memories:
    """Memory of chunks, in turns, because a caller has the last chunk until it gets the next one."""

    def __init__(self) -> None:
        self._all = cycle((_Memory(), _Memory()))

    def next(self) -> _Memory:
        """That of the next chunk."""
        return next(self._all)


class _Gathered:
    """A chunk under construction."""

    def __init__(self, data: memoryview, size: int, memory: _Memory) -> None:
        self.size = 0
        """Bytes of the records so far."""
        self._data = data
        self._memory = memory
        self._capacity = size + BATCH_BYTES
        self._buffer: Bytes | None = None
        """The decompressed records; None as long as no batch is compressed."""
        self._ends: list[int] = []
        self.batches: list[BatchHeader] = []

    def add(self, batch: BatchHeader) -> None:
        """Adds the records of a batch.  Raises CorruptRecords."""
        if not crc_ok(self._data, batch):
            raise CorruptRecords(f"the batch at offset {batch.base_offset} fails its checksum")
        if batch.record_count < 1:
            raise CorruptRecords(
                f"the batch at offset {batch.base_offset} claims {counted(batch.record_count, 'record')}"
            )
        if batch.attributes & CODEC_MASK or self._buffer is not None:
            if self._buffer is None:
                self._begin()
            if not self._decompress_in_place(batch):
                self._copy(self._region(batch))
        else:
            self.size += batch.end - batch.position - HEADER_SIZE
        self.batches.append(batch)
        self._ends.append(self.size)

    def chunk(self) -> Chunk:
        """The chunk."""
        group = self.batches
        if self._buffer is None:
            origin = group[0].position
            starts = np.array([batch.position + HEADER_SIZE - origin for batch in group], np.int64)
            ends = np.array([batch.end - origin for batch in group], np.int64)
            return Chunk(self._data[origin : group[-1].end], starts, ends, group)
        ends = np.array(self._ends, np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        self._buffer = None
        return Chunk(self._memory.filled(), starts, ends, group)

    def _begin(self) -> None:
        """Copies the records of the batches that were not compressed."""
        self._buffer = self._memory.room(max(self._capacity, self.size))
        self.size = 0
        for batch in self.batches:
            self._copy(self._region(batch))

    def _decompress_in_place(self, batch: BatchHeader) -> bool:
        """Decompresses without a copy.

        False for other codecs, and if this fails: `_region` finds what is wrong, or the batch needs more space.
        """
        assert self._buffer is not None
        decompress_into = _IN_PLACE.get(batch.attributes & CODEC_MASK)
        if decompress_into is None:
            return False
        size = decompress_into(self._data[batch.position + HEADER_SIZE : batch.end], self._buffer[self.size :])
        self.size += size or 0
        return size is not None

    def _copy(self, region: Buffer) -> None:
        assert self._buffer is not None
        end = self.size + len(region)
        if end > len(self._buffer):
            before = self._buffer[: self.size]
            self._buffer = self._memory.room(max(end, 2 * len(self._buffer)))
            self._buffer[: self.size] = before
        self._buffer[self.size : end] = np.frombuffer(region, np.uint8)
        self.size = end

    def _region(self, batch: BatchHeader) -> Buffer:
        try:
            return records_region(self._data, batch)
        except CorruptBatch as error:
            raise CorruptRecords(f"the batch at offset {batch.base_offset}: {error}") from error
