"""The columns of an exported file: those of Spark's Kafka source, with its names; keys and values may be decoded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.tables.exec.schema.arrow_types import TIMESTAMP, arrow_type
from kctl.tables.exec.schema.column_types import UNDECODED, Columns, Decoding, Struct, raw_name
from kctl.tables.exec.selection.row_selection import COLUMNS, HEADER_LIST, MAP, HeaderForm
from kctl.tables.exec.selection.upserts import CHANGE, KEY_ID

# The column of headers as a map or as a struct of some headers, made of the list of all entries.


HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS = pa.list_(pa.field("element", pa.struct(HEADER_FIELDS)))
HEADER_MAP = pa.map_(pa.string(), pa.binary())


def headers_type(form: HeaderForm) -> pa.DataType:
    """Return the type of the column."""
    if form.form == MAP:
        return HEADER_MAP
    return pa.struct([pa.field(name, pa.binary()) for name in form.names]) if form.form == COLUMNS else HEADERS


def form_of(type_: pa.DataType) -> HeaderForm:
    """Return the form of a column in a file."""
    if pa.types.is_map(type_):
        return HeaderForm(MAP)
    return HeaderForm(COLUMNS, tuple(field.name for field in type_)) if pa.types.is_struct(type_) else HEADER_LIST


def formed(batch: pa.RecordBatch, form: HeaderForm) -> pa.RecordBatch:
    """Return the batch with its headers in this form, if they are a list.

    Of several entries with the same name, the last one counts, as for Kafka's `lastHeader`.
    """
    index = batch.schema.get_field_index("headers")
    if form.is_list or index < 0 or not _is_list(batch.schema.field(index).type):
        return batch
    column = batch.column(index).cast(HEADERS)
    converted = _map(column) if form.form == MAP else _struct(column, form.names)
    return batch.set_column(index, "headers", converted)


def entries_of(column: pa.Array) -> pa.ListArray:
    """Return the headers of any form as a list; those of a struct without a value are left out."""
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
    """Return the row of each entry, and the entries."""
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


CALENDAR_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The years 1 to 9999."""

_RECORD_FIELDS = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]


INCARNATION = pa.field("incarnation", pa.int32())
"""In tables: null for the first topic of a name; 1, 2 and so on after it was created again or truncated."""


CHANGE_FIELD = pa.field(CHANGE, pa.string())
KEY_ID_FIELD = pa.field(KEY_ID, pa.binary())


VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
VERSION_FIELDS = [
    pa.field(VALID_FROM, TIMESTAMP),
    pa.field(VALID_TO, TIMESTAMP),
    pa.field(IS_CURRENT, pa.bool_()),
]
"""Columns of tables with earlier versions of rows; see kctl.tables.upserts.history."""


def changes_schema(of_rows: pa.Schema) -> pa.Schema:
    """Return the columns of a file with changes of rows that have these columns."""
    return pa.schema([*state_schema(of_rows), CHANGE_FIELD, KEY_ID_FIELD])


def state_schema(of_changes: pa.Schema, *, has_versions: bool = False) -> pa.Schema:
    """Return the columns of the rows that changes result in; `has_versions` with those of --history."""
    fields = [field for field in of_changes if field.name not in {CHANGE, KEY_ID}]
    return pa.schema([*fields, *(VERSION_FIELDS if has_versions else [])])


REASON = pa.field("reason", pa.string())
"""In dead letters: why the record does not fit."""


def schema(
    *,
    include_headers: bool,
    has_incarnation: bool = False,
    columns: Columns = UNDECODED,
    headers: HeaderForm = HEADER_LIST,
) -> pa.Schema:
    """Return the Arrow schema of a file; undecoded, Spark reads it as the schema of its Kafka source."""
    return pa.schema(
        [
            *fields_of("key", columns.key),
            *fields_of("value", columns.value),
            *_RECORD_FIELDS,
            *([pa.field("headers", headers_type(headers))] if include_headers else []),
            *([INCARNATION] if has_incarnation else []),
        ]
    )


def fields_of(name: str, decoding: Decoding) -> list[pa.Field]:
    """Return the columns of keys or values: `name`, `name_rest` with JSON of what has no column, and `name_raw` with
    the bytes of records.

    Values that describe changes have the column `change` too.  A struct without fields, which files cannot have, is
    left out until a field is known.
    """
    fields = [] if decoding.type == Struct() else [pa.field(name, arrow_type(decoding.type))]
    fields += [pa.field(f"{name}_rest", pa.string())] if decoding.has_rest else []
    fields += [pa.field(raw_name(name), pa.binary())] if decoding.keeps_raw else []
    return [*fields, CHANGE_FIELD] if decoding.has_changes and name == "value" else fields


def within_calendar(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with timestamps of the years 1 to 9999; others become the first or last of these.

    The libraries of table formats fail on others, for example of a producer that gave microseconds for milliseconds.
    """
    index = batch.schema.get_field_index("timestamp")
    microseconds = batch.column(index).cast(pa.int64()).to_numpy()
    if not len(microseconds) or (microseconds.min() >= CALENDAR_US.start and microseconds.max() < CALENDAR_US.stop):
        return batch
    clipped = pa.array(np.clip(microseconds, CALENDAR_US.start, CALENDAR_US.stop - 1)).view(TIMESTAMP)
    return batch.set_column(index, batch.schema.field(index), clipped)


def with_reason(batch: pa.RecordBatch, reason: str) -> pa.RecordBatch:
    """Return the records as dead letters."""
    return batch.append_column(REASON, pa.repeat(pa.scalar(reason, REASON.type), batch.num_rows))


def with_incarnation(batch: pa.RecordBatch, incarnation: int) -> pa.RecordBatch:
    """Return the batch with the column `incarnation`, unless it is 0."""
    if not incarnation:
        return batch
    column = pa.repeat(pa.scalar(incarnation, INCARNATION.type), batch.num_rows)
    return batch.append_column(INCARNATION, column)
