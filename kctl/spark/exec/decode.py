"""Decodes records into Arrow columns without a Python object per record.

The fields of all records of a chunk are found with vectors of varints (see varints).  Keys and values are not touched:
one array of positions makes the chunk itself a binary array of alternating gaps, keys and values, and Arrow's `take`
copies the requested slots.  A null is a null index.

The result equals that of kctl.records.batch.iterate_records, with three differences: a timestamp outside the range of
microseconds (years -290,308 to 294,247) becomes the nearest one inside, invalid UTF-8 in header keys is replaced, as in
Java, and a record without headers has null, as in Spark's Kafka source. A missing timestamp (-1) stays one millisecond
before 1970, as in Spark.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kctl.records.header import LOG_APPEND_TIME_BIT
from kctl.spark.exec.chunk import Chunk
from kctl.spark.exec.columns import HEADER_FIELDS, HEADERS, TIMESTAMP, schema
from kctl.spark.exec.outcome import CorruptRecords
from kctl.spark.exec.varints import Bytes, Longs, read_varints, record_bounds

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
CONSTANT_COLUMN_ROWS = 1 << 16


class Slots(NamedTuple):
    """Positions and lengths of one field of all records; a negative length is null."""

    starts: Longs
    lengths: Longs

    @property
    def ends(self) -> Longs:
        """The position after each field; the start where the field is null."""
        return self.starts + np.maximum(self.lengths, 0)


def decode(
    chunk: Chunk, *, topic: str, partition: int, start: int, end: int, include_headers: bool = False
) -> pa.RecordBatch:
    """The records of the chunk with offsets in [start, end).  Raises CorruptRecords."""
    counts = np.array([batch.record_count for batch in chunk.batches], np.int64)
    bodies, record_ends = record_bounds(chunk.buffer, chunk.starts, chunk.ends, counts)
    batch_of = np.repeat(np.arange(len(counts)), counts)
    timestamp_deltas, position = read_varints(chunk.buffer, bodies + 1)
    offset_deltas, position = read_varints(chunk.buffer, position)
    keys = _read_slots(chunk.buffer, position, record_ends)
    values = _read_slots(chunk.buffer, keys.ends, record_ends)
    offsets = _of_batches(chunk, "base_offset")[batch_of] + offset_deltas
    timestamps, types = _timestamps(chunk, batch_of, timestamp_deltas)
    key_column, value_column = _take(chunk.buffer, keys, values)
    columns = [
        key_column,
        value_column,
        _constant_string(topic, len(offsets)),
        pa.array(np.full(len(offsets), partition, np.int32)),
        pa.array(offsets),
        timestamps,
        pa.array(types),
    ]
    if include_headers:
        columns.append(_headers(chunk.buffer, values.ends, record_ends))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema(include_headers=include_headers))
    return _clip(batch, offsets, start, end)


def _of_batches(chunk: Chunk, field: str) -> Longs:
    return np.array([getattr(batch, field) for batch in chunk.batches], np.int64)


def _read_slots(buffer: Bytes, positions: Longs, limits: Longs) -> Slots:
    lengths, starts = read_varints(buffer, positions)
    # Compared without adding, because an invalid length could overflow the sum.
    if (lengths < -1).any() or (lengths > limits - starts).any():
        raise CorruptRecords("a key, value or header reaches beyond its record")
    return Slots(starts, lengths)


def _timestamps(chunk: Chunk, batch_of: Longs, deltas: Longs) -> tuple[pa.Array, NDArray[np.int32]]:
    timestamps = _of_batches(chunk, "base_timestamp")[batch_of] + deltas
    is_append_time = (_of_batches(chunk, "attributes") & LOG_APPEND_TIME_BIT) != 0
    types = np.zeros(len(deltas), np.int32)
    if is_append_time.any():
        appended = is_append_time[batch_of]
        timestamps = np.where(appended, _of_batches(chunk, "max_timestamp")[batch_of], timestamps)
        types = appended.astype(np.int32)
    microseconds = np.clip(timestamps, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX) * 1000
    return pa.array(microseconds).view(TIMESTAMP), types


def _take(buffer: Bytes, first: Slots, second: Slots) -> tuple[pa.Array, pa.Array]:
    """Two fields of every record as binary columns; `second` follows `first` in each record."""
    count = len(first.starts)
    borders = np.empty(4 * count + 1, np.int32)
    borders[0:-1:4] = first.starts
    borders[1::4] = first.ends
    borders[2::4] = second.starts
    borders[3::4] = second.ends
    borders[-1] = borders[-2] if count else 0
    slots = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(borders), pa.py_buffer(buffer)])
    indices = np.arange(0, 4 * count, 4, dtype=np.int32)
    return _pick(slots, indices, first.lengths), _pick(slots, indices + np.int32(2), second.lengths)


def _pick(slots: pa.Array, indices: NDArray[np.int32], lengths: Longs) -> pa.Array:
    nulls = lengths < 0
    return slots.take(pa.array(indices, mask=nulls if nulls.any() else None))


@lru_cache(maxsize=8)
def _constant_rows(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    borders = np.arange(rows + 1, dtype=np.int32) * len(encoded)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(borders), pa.py_buffer(encoded * rows)])


def _constant_string(text: str, count: int) -> pa.Array:
    """A column with `count` times the same text, sliced from a cached array."""
    rows = CONSTANT_COLUMN_ROWS
    while rows < count:
        rows *= 2
    return _constant_rows(text, rows).slice(0, count)


def _headers(buffer: Bytes, positions: Longs, record_ends: Longs) -> pa.Array:
    """The headers column; step j reads header j of all records that have one."""
    counts, positions = read_varints(buffer, positions)
    if (counts < 0).any() or (counts > record_ends - positions).any():
        raise CorruptRecords("a record claims more headers than it has bytes")
    rows = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    total = int(rows[-1])
    keys = Slots(np.empty(total, np.int64), np.empty(total, np.int64))
    values = Slots(np.empty(total, np.int64), np.empty(total, np.int64))
    active = np.flatnonzero(counts)
    step = 0
    while active.size:
        limits = record_ends[active]
        key = _read_slots(buffer, positions[active], limits)
        if (key.lengths < 0).any():
            raise CorruptRecords("a header has no key")
        value = _read_slots(buffer, key.ends, limits)
        targets = rows[active] + step
        keys.starts[targets], keys.lengths[targets] = key
        values.starts[targets], values.lengths[targets] = value
        positions[active] = value.ends
        step += 1
        active = active[counts[active] > step]
    if (positions != record_ends).any():
        raise CorruptRecords("a record has more bytes than its fields")
    key_column, value_column = _take(buffer, keys, values)
    entries = pa.StructArray.from_arrays([_text(key_column), value_column], fields=HEADER_FIELDS)
    present = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    borders = pa.py_buffer(rows.astype(np.int32))
    return pa.Array.from_buffers(HEADERS, len(counts), [present, borders], children=[entries])


def _text(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def _clip(batch: pa.RecordBatch, offsets: Longs, start: int, end: int) -> pa.RecordBatch:
    if not len(offsets) or (offsets[0] >= start and offsets[-1] < end):
        return batch
    first, last = np.searchsorted(offsets, (start, end))
    return batch.slice(int(first), int(last) - int(first))
