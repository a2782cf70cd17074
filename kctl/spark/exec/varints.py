"""Decodes many zigzag varints at a time with numpy.

A record's fields are varints whose positions depend on each other, but the records do not: one numpy call reads the
same field of a hundred thousand records.  Only the start of a record depends on the record before it, and there the
batches of a chunk are independent: step k reads the length of record k in all batches at once.  With few batches left
a plain loop over the bytes is faster than numpy calls on tiny arrays.

Positions beyond the buffer raise CorruptRecords, for any input.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kctl.spark.exec.outcome import CorruptRecords

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
    """The varints of 32 or 64 bits that start at `positions`, and the positions after them.  Raises CorruptRecords.

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
