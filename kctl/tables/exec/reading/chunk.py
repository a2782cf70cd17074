"""Gathers record batches into chunks of a few megabytes, the unit of decoding with numpy.

A numpy call takes as long for ten records as for a thousand, and batches rarely have more than a few hundred, so many
batches are decoded together.  A chunk of uncompressed batches is the received buffer, with positions that skip the
headers.  If a batch is compressed, the chunk is a copy of the decompressed records, in bytes, as the record walk needs.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import cramjam
import numpy as np
from numpy.typing import NDArray

from kctl.output.quantities import counted
from kctl.records.batch import crc_ok, records_region
from kctl.records.compression import Buffer, Codec
from kctl.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, CorruptBatch
from kctl.tables.exec.outcome import CorruptRecords

# Decodes many zigzag varints at a time with numpy.
#
# A record's fields are varints whose positions depend on each other, but the records do not: one numpy call reads the
# same field of a hundred thousand records. Only the start of a record depends on the record before it, and there the
# batches of a chunk are independent: step k reads the length of record k in all batches at once. With few batches
# left a plain loop over the bytes is faster than numpy calls on tiny arrays.
#
# Positions beyond the buffer raise CorruptRecords, for any input.


Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

LANES_MIN = 24
"""With fewer batches (on average over the steps) each is scanned alone."""
LANES_LEFT_MIN = 12
"""When fewer batches are left, each is finished alone."""

BITS_32 = 32
BITS_64 = 64
_SHIFT_MAX = {BITS_32: 28, BITS_64: 63}
"""Shift of the last byte: a varint of 32 bits has at most five bytes, one of 64 bits ten."""


def read_varints(buffer: Bytes, positions: Longs, bits: int) -> tuple[Longs, Longs]:
    """Return the varints of 32 or 64 bits that start at `positions`, and the positions after them.  Raises
    CorruptRecords.

    Bits beyond the type are ignored, as in Kafka's ByteUtils.
    """
    try:
        head = buffer[positions]
        values = (head & 0x7F).astype(np.int64)
        ends = positions + 1
        longer = np.flatnonzero(head > 0x7F)
        shift = 7
        while longer.size:
            if shift > _SHIFT_MAX[bits]:
                raise CorruptRecords("a varint has too many bytes")
            head = buffer[ends[longer]]
            values[longer] |= (head & 0x7F).astype(np.int64) << shift
            ends[longer] += 1
            longer = longer[head > 0x7F]
            shift += 7
    except IndexError:
        raise CorruptRecords("a record reaches beyond its batch") from None
    if bits == BITS_32:
        values &= 0xFFFFFFFF
    # Zigzag: the lowest bit is the sign.  The shift has to be a logical one for values that use all 64 bits.
    return ((values.view(np.uint64) >> np.uint64(1)).view(np.int64)) ^ -(values & 1), ends


def record_bounds(buffer: Bytes, starts: Longs, ends: Longs, counts: Longs) -> tuple[Longs, Longs]:
    """Start (after the length) and end of every record, batch after batch.

    Batch i has counts[i] records in buffer[starts[i]:ends[i]].  Raises CorruptRecords unless the records fill that
    region exactly.
    """
    total = int(counts.sum())
    if total > int((ends - starts).sum()):
        raise CorruptRecords("a batch claims more records than it has bytes")
    bodies = np.empty(total, np.int64)
    record_ends = np.empty(total, np.int64)
    slots = np.cumsum(counts) - counts
    if total and total / int(counts.max()) >= LANES_MIN:
        _walk_in_lock_step(buffer, starts, counts, slots, bodies, record_ends)
    else:
        data = buffer.data
        for start, count, slot in zip(starts.tolist(), counts.tolist(), slots.tolist(), strict=True):
            _walk_one(data, start, count, slot, bodies, record_ends)
    last = slots + counts - 1
    if (record_ends < bodies).any() or (record_ends[last] != ends).any():
        raise CorruptRecords("the records do not fill their batch exactly")
    return bodies, record_ends


def _walk_in_lock_step(
    buffer: Bytes, starts: Longs, counts: Longs, slots: Longs, bodies: Longs, record_ends: Longs
) -> None:
    by_count = np.argsort(-counts, kind="stable")
    sorted_counts = counts[by_count]
    positions = starts[by_count]
    targets = slots[by_count]
    steps = int(sorted_counts[0])
    active_at = len(counts) - np.searchsorted(sorted_counts[::-1], np.arange(steps), side="right")
    for step, active in enumerate(active_at.tolist()):
        if active < LANES_LEFT_MIN:
            data = buffer.data
            for lane in range(active):
                rest = int(sorted_counts[lane]) - step
                _walk_one(data, int(positions[lane]), rest, int(targets[lane]), bodies, record_ends)
            return
        lengths, body = read_varints(buffer, positions[:active], BITS_32)
        if (lengths < 0).any() or (lengths > len(buffer)).any():
            raise CorruptRecords("a record has an impossible length")
        end = body + lengths
        target = targets[:active]
        bodies[target] = body
        record_ends[target] = end
        targets[:active] += 1
        positions[:active] = end


def _walk_one(data: memoryview, start: int, count: int, slot: int, bodies: Longs, record_ends: Longs) -> None:
    """As `record_bounds` for one batch, byte by byte; the common lengths of one and two bytes are unrolled."""
    found_bodies: list[int] = []
    found_ends: list[int] = []
    add_body = found_bodies.append
    add_end = found_ends.append
    position = start
    try:
        for _ in range(count):
            value = data[position]
            position += 1
            if value > 0x7F:
                more = data[position]
                position += 1
                value = value & 0x7F | (more & 0x7F) << 7
                shift = 14
                while more > 0x7F:
                    if shift > _SHIFT_MAX[BITS_32]:
                        raise CorruptRecords("a varint has too many bytes")
                    more = data[position]
                    position += 1
                    value |= (more & 0x7F) << shift
                    shift += 7
                value &= 0xFFFFFFFF
            if value & 1 or value >> 1 > len(data):
                raise CorruptRecords("a record has an impossible length")
            add_body(position)
            position += value >> 1
            add_end(position)
    except IndexError:
        raise CorruptRecords("a record reaches beyond its batch") from None
    bodies[slot : slot + count] = found_bodies
    record_ends[slot : slot + count] = found_ends


# Decompresses LZ4 frames into a buffer, block by block: cramjam's reader of frames takes twice as long.


_HEADER_BYTES = 7
_BLOCK_BYTES_MAX = {
    bytes.fromhex("04224d18604082"): 64 << 10,
    bytes.fromhex("04224d186050fb"): 256 << 10,
    bytes.fromhex("04224d18606051"): 1 << 20,
    bytes.fromhex("04224d18607073"): 4 << 20,
}
"""Size of a block by the header of the frame, with its checksum: independent blocks, no sizes and other checksums, as
Kafka's clients write them."""
_IS_STORED = 1 << 31
"""In the size of a block: it is not compressed."""
_SIZE = struct.Struct("<I")


def decompress_into(frame: memoryview, target: Bytes) -> int | None:
    """Return the number of bytes that were written.

    None for frames with another header, damaged ones, and those that are longer than the target.
    """
    block_max = _BLOCK_BYTES_MAX.get(bytes(frame[:_HEADER_BYTES]))
    if block_max is None:
        return None
    position, end, written = _HEADER_BYTES, len(frame), 0
    while position + _SIZE.size <= end:
        (length,) = _SIZE.unpack_from(frame, position)
        position += _SIZE.size
        if not length:
            return written if position == end else None
        is_stored, length = length & _IS_STORED, length & ~_IS_STORED
        room = target[written : written + block_max]
        if length > end - position or (is_stored and length > len(room)):
            return None
        block = frame[position : position + length]
        position += length
        if is_stored:
            room[:length] = np.frombuffer(block, np.uint8)
            written += length
            continue
        try:
            written += cramjam.lz4.decompress_block_into(block, room.data, output_len=len(room))
        except cramjam.DecompressionError:
            return None
    return None


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
_IN_PLACE = {Codec.LZ4.value: decompress_into, Codec.ZSTD.value: _zstd_into}
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
    """Yield the given batches of `data` in chunks of at least `size` bytes, the last one smaller.

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
        """Return at least `size` bytes to fill, with any contents."""
        if self._size < size:
            self._file, self._size = io.BytesIO(bytes(size)), size
        return np.frombuffer(self._file.getbuffer(), np.uint8)

    def filled(self) -> bytes:
        """Return all bytes.  What `room` has returned must no longer be in use."""
        return self._file.getvalue()


class Memories:
    """Memory of chunks, in turns, because a caller has the last chunk until it gets the next one."""

    def __init__(self) -> None:
        self._all = cycle((_Memory(), _Memory()))

    def next(self) -> _Memory:
        """Return the memory of the next chunk."""
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
        """Add the records of a batch.  Raises CorruptRecords."""
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
        """Return the chunk."""
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
        """Copy the records of the batches that were not compressed."""
        self._buffer = self._memory.room(max(self._capacity, self.size))
        self.size = 0
        for batch in self.batches:
            self._copy(self._region(batch))

    def _decompress_in_place(self, batch: BatchHeader) -> bool:
        """Decompress without a copy.

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
