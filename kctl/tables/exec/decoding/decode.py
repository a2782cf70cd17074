"""Decodes records into Arrow columns without a Python object per record.

`locate` finds the fields of all records of a chunk.  Keys and values are not touched: one array of positions makes the
chunk itself a binary array of alternating gaps and fields, and Arrow's `take` copies the fields.  A null is a null
index.

The result equals that of kctl.records.batch.iterate_records, with three differences: a timestamp outside the range of
microseconds (years -290,308 to 294,247) becomes the nearest one inside, invalid UTF-8 in header keys is replaced, as in
Java, and a record without headers has null, as in Spark's Kafka source. A missing timestamp (-1) stays one millisecond
before 1970, as in Spark.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kctl.records.header import LOG_APPEND_TIME_BIT
from kctl.tables.exec.reading.chunk import Bytes, Chunk, Longs
from kctl.tables.exec.reading.locate import Fields, Slots, locate, locate_headers
from kctl.tables.exec.schema.arrow_types import TIMESTAMP
from kctl.tables.exec.selection.columns import HEADER_FIELDS, HEADERS, schema

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
CONSTANT_COLUMN_ROWS = 1 << 16


def decode(
    chunk: Chunk, *, topic: str, partition: int, start: int, end: int, include_headers: bool = False
) -> pa.RecordBatch:
    """Return the records of the chunk with offsets in [start, end).  Raises CorruptRecords."""
    fields = locate(chunk)
    offsets, timestamps, types = positions_in_time(chunk, fields)
    columns = [
        binary_column(chunk.buffer, fields.keys),
        binary_column(chunk.buffer, fields.values),
        _constant_string(topic, len(offsets)),
        _numbers(np.full(len(offsets), partition, np.int32)),
        _numbers(offsets),
        _numbers(timestamps * 1000).view(TIMESTAMP),
        _numbers(types),
    ]
    if include_headers:
        columns.append(_headers(chunk.buffer, fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema(include_headers=include_headers))
    return _clip(batch, offsets, start, end)


class RecordPositions(NamedTuple):
    """Offsets and timestamps of the records of a chunk."""

    offsets: Longs
    timestamps_ms: Longs
    """Within the range of microseconds."""
    types: NDArray[np.int32]
    """1 for LogAppendTime, 0 for CreateTime."""


def positions_in_time(chunk: Chunk, fields: Fields) -> RecordPositions:
    """See RecordPositions."""
    batch_of = np.repeat(np.arange(len(chunk.batches)), [batch.record_count for batch in chunk.batches])
    offsets = _of_batches(chunk, "base_offset")[batch_of] + fields.offset_deltas
    timestamps = _of_batches(chunk, "base_timestamp")[batch_of] + fields.timestamp_deltas
    is_append_time = (_of_batches(chunk, "attributes") & LOG_APPEND_TIME_BIT) != 0
    types = np.zeros(len(offsets), np.int32)
    if is_append_time.any():
        appended = is_append_time[batch_of]
        timestamps = np.where(appended, _of_batches(chunk, "max_timestamp")[batch_of], timestamps)
        types = appended.astype(np.int32)
    return RecordPositions(offsets, np.clip(timestamps, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX), types)


def _of_batches(chunk: Chunk, field: str) -> Longs:
    return np.array([getattr(batch, field) for batch in chunk.batches], np.int64)


def _numbers(values: NDArray[Any], nulls: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return the numbers as a column, without a copy.

    pa.array would import pandas, which takes a quarter of a second.
    """
    present = None
    if nulls is not None and nulls.any():
        present = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [present, pa.py_buffer(values)])


def binary_column(buffer: Bytes, slots: Slots) -> pa.Array:
    """Return one field of every record as a binary column."""
    count = len(slots.starts)
    borders = np.empty(2 * count + 1, np.int32)
    borders[0:-1:2] = slots.starts
    borders[1::2] = slots.ends
    borders[-1] = borders[-2] if count else 0
    column = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(borders), pa.py_buffer(buffer)])
    return column.take(_numbers(np.arange(0, 2 * count, 2, dtype=np.int32), slots.lengths < 0))


@lru_cache(maxsize=8)
def _constant_rows(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    borders = np.arange(rows + 1, dtype=np.int32) * len(encoded)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(borders), pa.py_buffer(encoded * rows)])


def _constant_string(text: str, count: int) -> pa.Array:
    """Return a column with `count` times the same text, sliced from a cached array."""
    rows = CONSTANT_COLUMN_ROWS
    while rows < count:
        rows *= 2
    return _constant_rows(text, rows).slice(0, count)


def _headers(buffer: Bytes, fields: Fields) -> pa.Array:
    """Return the headers column; null for a record without headers."""
    headers = locate_headers(buffer, fields)
    key_column = _text(binary_column(buffer, headers.keys))
    entries = pa.StructArray.from_arrays([key_column, binary_column(buffer, headers.values)], fields=HEADER_FIELDS)
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
