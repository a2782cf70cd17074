"""The column of headers as a map or as a struct of some headers, made of the list of all entries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.spark.exec.header_form import COLUMNS, HEADER_LIST, MAP, HeaderForm

HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS = pa.list_(pa.field("element", pa.struct(HEADER_FIELDS)))
HEADER_MAP = pa.map_(pa.string(), pa.binary())


def headers_type(form: HeaderForm) -> pa.DataType:
    """The type of the column."""
    if form.form == MAP:
        return HEADER_MAP
    return pa.struct([pa.field(name, pa.binary()) for name in form.names]) if form.form == COLUMNS else HEADERS


def form_of(type_: pa.DataType) -> HeaderForm:
    """The form of a column in a file."""
    if pa.types.is_map(type_):
        return HeaderForm(MAP)
    return HeaderForm(COLUMNS, tuple(one.name for one in type_)) if pa.types.is_struct(type_) else HEADER_LIST


def formed(batch: pa.RecordBatch, form: HeaderForm) -> pa.RecordBatch:
    """The batch with its headers in this form, if they are a list.

    Of several entries with the same name, the last one counts, as for Kafka's `lastHeader`.
    """
    index = batch.schema.get_field_index("headers")
    if form.is_list or index < 0 or not _is_list(batch.schema.field(index).type):
        return batch
    column = batch.column(index).cast(HEADERS)
    converted = _map(column) if form.form == MAP else _struct(column, form.names)
    return batch.set_column(index, "headers", converted)


def entries_of(column: pa.Array) -> pa.ListArray:
    """The headers of any form as a list; those of a struct without a value are left out."""
    if _is_list(column.type):
        return column.cast(HEADERS)
    if pa.types.is_map(column.type):
        rows = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in _rows(column)]
    else:
        rows = [
            None if row is None else [{"key": key, "value": value} for key, value in row.items() if value is not None]
            for row in _rows(column)
        ]
    return pa.array(rows, HEADERS)


def _rows(column: pa.Array) -> list[pa.Scalar]:
    rows: list[pa.Scalar] = column.to_pylist()
    return rows


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _entries(column: pa.ListArray) -> tuple[NDArray[np.int64], pa.StructArray]:
    """The row of each entry, and the entries."""
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.repeat(np.arange(len(counts)), counts), column.flatten()


def _map(column: pa.ListArray) -> pa.MapArray:
    rows, entries = _entries(column)
    codes = entries.field("key").dictionary_encode()
    ids = rows * max(len(codes.dictionary), 1) + codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # The last entry of each name: the first one from the end.
    _, from_end = np.unique(ids[::-1], return_index=True)
    kept = np.sort(len(ids) - 1 - from_end)
    counts = np.bincount(rows[kept], minlength=len(column))
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
    left = entries.take(pa.array(kept))
    present = pa.py_buffer(np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    pairs = pa.StructArray.from_arrays(
        [left.field("key"), left.field("value")], fields=[HEADER_MAP.key_field, HEADER_MAP.item_field]
    )
    return pa.Array.from_buffers(HEADER_MAP, len(column), [present, pa.py_buffer(offsets)], children=[pairs])


def _struct(column: pa.ListArray, names: tuple[str, ...]) -> pa.StructArray:
    rows, entries = _entries(column)
    keys, values = entries.field("key"), entries.field("value")
    children = []
    for name in names:
        found = np.flatnonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))
        places = np.full(len(column), -1, np.int64)
        places[rows[found]] = found  # the last of several assignments counts
        children.append(values.take(pa.array(places, mask=places < 0)))
    fields = [pa.field(name, pa.binary()) for name in names]
    return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
