"""Decodes records into Arrow columns without a Python object per record.

`locate` finds the fields of all records of a chunk.  Keys and values are not touched: one array of positions makes the
chunk itself a binary array of alternating gaps, keys and values, and Arrow's `take` copies the requested slots.  A null
is a null index.

The result equals that of kctl.records.batch.iterate_records, with three differences: a timestamp outside the range of
microseconds (years -290,308 to 294,247) becomes the nearest one inside, invalid UTF-8 in header keys is replaced, as in
Java, and a record without headers has null, as in Spark's Kafka source. A missing timestamp (-1) stays one millisecond
before 1970, as in Spark.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kctl.records.header import LOG_APPEND_TIME_BIT
from kctl.spark.exec.arrow_types import TIMESTAMP
from kctl.spark.exec.chunk import Chunk
from kctl.spark.exec.columns import HEADER_FIELDS, HEADERS, schema
from kctl.spark.exec.locate import Fields, Slots, locate, locate_headers
from kctl.spark.exec.varints import Bytes, Longs

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
CONSTANT_COLUMN_ROWS = 1 << 16


def decode(
    chunk: Chunk, *, topic: str, partition: int, start: int, end: int, include_headers: bool = False
) -> pa.RecordBatch:
    """The records of the chunk with offsets in [start, end).  Raises CorruptRecords."""
    fields = locate(chunk)
    batch_of = np.repeat(np.arange(len(chunk.batches)), [batch.record_count for batch in chunk.batches])
    offsets = _of_batches(chunk, "base_offset")[batch_of] + fields.offset_deltas
    timestamps, types = _timestamps(chunk, batch_of, fields.timestamp_deltas)
    key_column, value_column = _take(chunk.buffer, fields.keys, fields.values)
    columns = [
        key_column,
        value_column,
        _constant_string(topic, len(offsets)),
        _numbers(np.full(len(offsets), partition, np.int32)),
        _numbers(offsets),
        timestamps,
        _numbers(types),
    ]
    if include_headers:
        columns.append(_headers(chunk.buffer, fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema(include_headers=include_headers))
    return _clip(batch, offsets, start, end)


def _of_batches(chunk: Chunk, field: str) -> Longs:
    return np.array([getattr(batch, field) for batch in chunk.batches], np.int64)


def _timestamps(chunk: Chunk, batch_of: Longs, deltas: Longs) -> tuple[pa.Array, NDArray[np.int32]]:
    timestamps = _of_batches(chunk, "base_timestamp")[batch_of] + deltas
    is_append_time = (_of_batches(chunk, "attributes") & LOG_APPEND_TIME_BIT) != 0
    types = np.zeros(len(deltas), np.int32)
    if is_append_time.any():
        appended = is_append_time[batch_of]
        timestamps = np.where(appended, _of_batches(chunk, "max_timestamp")[batch_of], timestamps)
        types = appended.astype(np.int32)
    microseconds = np.clip(timestamps, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX) * 1000
    return _numbers(microseconds).view(TIMESTAMP), types


def _numbers(values: NDArray[Any], nulls: NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers as a column, without a copy.  pa.array would import pandas, which takes a quarter of a second."""
    present = None
    if nulls is not None and nulls.any():
        present = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [present, pa.py_buffer(values)])


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
    return slots.take(_numbers(indices, nulls))


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


def _headers(buffer: Bytes, fields: Fields) -> pa.Array:
    """The headers column; null for a record without headers."""
    headers = locate_headers(buffer, fields)
    key_column, value_column = _take(buffer, headers.keys, headers.values)
    entries = pa.StructArray.from_arrays([_text(key_column), value_column], fields=HEADER_FIELDS)
    present = pa.py_buffer(np.packbits(headers.counts > 0, bitorder="little"))
    rows = np.concatenate((np.zeros(1, np.int32), np.cumsum(headers.counts, dtype=np.int32)))
    return pa.Array.from_buffers(HEADERS, len(headers.counts), [present, pa.py_buffer(rows)], children=[entries])


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
