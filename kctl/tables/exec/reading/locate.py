"""Finds the fields of all records of a chunk: with the compiled record walk where it is at hand, else with numpy.

Both refuse what Kafka's DefaultRecord.readFrom refuses, headers included, and find the same positions in what they
accept.  Executors that cannot load the compiled modules use numpy, because the interpreted walk is ten times slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kctl.records.compiled import walk_is_compiled
from kctl.tables.exec.outcome import CorruptRecords
from kctl.tables.exec.reading.chunk import BITS_32, BITS_64, Bytes, Chunk, Longs, read_varints, record_bounds

if walk_is_compiled():
    from kctl.records.compiled.walk import FIELDS, locate_records


class Slots(NamedTuple):
    """Positions and lengths of one field of all records; a negative length is null."""

    starts: Longs
    lengths: Longs

    @property
    def ends(self) -> Longs:
        """The position after each field; the start where the field is null."""
        return self.starts + np.maximum(self.lengths, 0)


class Fields(NamedTuple):
    """The numbers of all records of a chunk, batch after batch; positions count from the start of its buffer."""

    timestamp_deltas: Longs
    offset_deltas: Longs
    keys: Slots
    values: Slots
    headers: Longs
    """Positions of the number of headers."""
    ends: Longs


class Headers(NamedTuple):
    """The headers of all records, record after record."""

    counts: Longs
    """Number of headers of each record."""
    keys: Slots
    values: Slots


def locate(chunk: Chunk) -> Fields:
    """Find the fields of every record.  Raises CorruptRecords."""
    return locate_with_walk(chunk) if walk_is_compiled() else locate_with_numpy(chunk)


def locate_with_walk(chunk: Chunk) -> Fields:
    """As `locate`, with kctl.records.compiled.walk."""
    regions = list(zip(chunk.starts.tolist(), chunk.ends.tolist(), _counts(chunk).tolist(), strict=True))
    try:
        found = locate_records(bytes(chunk.data), regions)
    except (ValueError, IndexError) as error:
        raise CorruptRecords(str(error)) from error
    rows = (
        np.frombuffer(memoryview(found), np.int64).reshape(-1, FIELDS)
        if len(found)
        else np.empty((0, FIELDS), np.int64)
    )
    timestamp_deltas, offset_deltas, *slots, headers, ends = rows.T
    return Fields(timestamp_deltas, offset_deltas, Slots(*slots[:2]), Slots(*slots[2:]), headers, ends)


def locate_with_numpy(chunk: Chunk) -> Fields:
    """As `locate`, with vectors of varints."""
    bodies, ends = record_bounds(chunk.buffer, chunk.starts, chunk.ends, _counts(chunk))
    timestamp_deltas, positions = read_varints(chunk.buffer, bodies + 1, BITS_64)
    offset_deltas, positions = read_varints(chunk.buffer, positions, BITS_32)
    keys = _read_slots(chunk.buffer, positions, ends)
    values = _read_slots(chunk.buffer, keys.ends, ends)
    fields = Fields(timestamp_deltas, offset_deltas, keys, values, values.ends, ends)
    locate_headers(chunk.buffer, fields)  # refuses what the walk refuses
    return fields


def locate_headers(buffer: Bytes, fields: Fields) -> Headers:
    """Find the headers; step j reads header j of all records that have one.  Raises CorruptRecords."""
    counts, positions = read_varints(buffer, fields.headers, BITS_32)
    if (counts < 0).any() or (counts > fields.ends - positions).any():
        raise CorruptRecords("a record claims more headers than it has bytes")
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    keys = Slots(np.empty(total, np.int64), np.empty(total, np.int64))
    values = Slots(np.empty(total, np.int64), np.empty(total, np.int64))
    active = np.flatnonzero(counts)
    step = 0
    while active.size:
        limits = fields.ends[active]
        key = _read_slots(buffer, positions[active], limits)
        if (key.lengths < 0).any():
            raise CorruptRecords("a header has no key")
        value = _read_slots(buffer, key.ends, limits)
        targets = firsts[active] + step
        keys.starts[targets], keys.lengths[targets] = key
        values.starts[targets], values.lengths[targets] = value
        positions[active] = value.ends
        step += 1
        active = active[counts[active] > step]
    if (positions != fields.ends).any():
        raise CorruptRecords("a record has more bytes than its fields")
    return Headers(counts, keys, values)


def _counts(chunk: Chunk) -> Longs:
    return np.array([batch.record_count for batch in chunk.batches], np.int64)


def _read_slots(buffer: Bytes, positions: Longs, limits: Longs) -> Slots:
    lengths, starts = read_varints(buffer, positions, BITS_32)
    # Compared without adding, because an invalid length could overflow the sum.
    if (lengths > limits - starts).any():
        raise CorruptRecords("a key, value or header reaches beyond its record")
    return Slots(starts, lengths)
