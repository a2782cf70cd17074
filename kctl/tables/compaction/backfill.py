"""Gives the rows of earlier files the columns that later files have: their values are in the column of the rest.

The columns of an export are those of the file with most of them, because columns are only added.  A value moves from
the rest to its column by the rule by which a task divides values (kctl.tables.exec.schema.json_fields), and what fits
no column stays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kctl.errors import UsageError
from kctl.tables.exec.schema.arrow_types import arrow_type, column_type, held_columns
from kctl.tables.exec.schema.column_types import Struct, Type, extended, leaves
from kctl.tables.exec.schema.json_fields import NOTHING, divided
from kctl.tables.exec.schema.json_text import parse, text_of
from kctl.tables.exec.selection.laid_out import record_schema
from kctl.tables.exec.task import COLUMNS_KEY

NAMES = ("key", "value")


class FileColumns(NamedTuple):
    """The columns of a file."""

    schema: pa.Schema
    """As the columns of records, without metadata."""
    decoded: str
    """How keys and values were decoded, as in the footer; empty if it does not say."""
    files: pa.Schema
    """Those of the file, which may have other names (kctl.tables.exec.selection.laid_out)."""

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> FileColumns:
        """Return those that a footer has."""
        decoded = (metadata.metadata or {}).get(COLUMNS_KEY.encode(), b"").decode()
        files = metadata.schema.to_arrow_schema().remove_metadata()
        return cls(record_schema(files), decoded, files)

    @property
    def width(self) -> int:
        """The number of columns, nested ones included."""
        return sum(len(leaves(column_type(field.type), field.name)) for field in self.schema)

    def extends(self, other: FileColumns) -> bool:
        """Return whether these are the other columns and more in keys or values that have a rest."""
        if self == other or bool(self.decoded) != bool(other.decoded):
            return False
        rests = [name for name in NAMES if rest_name(name) in self.schema.names]
        rest = [field for field in self.schema if field.name not in rests]
        if rest != [field for field in other.schema if field.name not in rests]:
            return False
        types = [(held_columns(other.schema, name), held_columns(self.schema, name), name) for name in rests]
        return all(_has(wide, narrow, name) for narrow, wide, name in types)


def rest_name(name: str) -> str:
    """Return the name of the column with what has no column."""
    return f"{name}_rest"


def _has(wide: Type, narrow: Type, name: str) -> bool:
    if not isinstance(wide, Struct):
        return False
    try:
        return narrow == Struct() or extended(wide, narrow, name) == wide
    except UsageError:
        return False


def has_rests(metadata: pq.FileMetaData) -> bool:
    """Return whether any row has values in a column of the rest, as far as the statistics tell."""
    names = {rest_name(name) for name in NAMES}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema in names:
                statistics = column.statistics
                if statistics is None or not statistics.has_null_count or statistics.null_count < group.num_rows:
                    return True
    return False


def filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of `schema`, and in them the values that they have in the rest."""
    columns = {field.name: batch.column(field.name) for field in batch.schema}
    for name in NAMES:
        rest = columns.get(rest_name(name))
        if rest is not None and name in schema.names:
            type_ = schema.field(name).type
            held = columns.get(name, pa.nulls(batch.num_rows, type_))
            columns[name], columns[rest_name(name)] = _moved(_widened(held, type_), rest, column_type(type_), name)
    return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def _moved(values: pa.Array, rest: pa.Array, type_: Type, name: str) -> tuple[pa.Array, pa.Array]:
    """Return the values with those of the rest that have a column, and the others."""
    rows = pc.indices_nonzero(rest.is_valid())
    if not len(rows):
        return values, rest
    pairs = [
        _together(value, text, type_, name)
        for value, text in zip(values.take(rows).to_pylist(), rest.take(rows).to_pylist(), strict=True)
    ]
    changed = pa.array([value for value, _ in pairs], arrow_type(type_))
    lefts = pa.array([left for _, left in pairs], pa.string())
    places = list(range(len(values)))
    for number, row in enumerate(rows.to_pylist()):
        places[row] = len(values) + number
    indexes = pa.array(places, pa.int64())
    return (
        pa.concat_arrays([values, changed]).take(indexes),
        pa.concat_arrays([rest.cast(pa.string()), lefts]).take(indexes),
    )


def _together(value: Any, text: str, type_: Type, name: str) -> tuple[Any, str | None]:
    fitting, left = divided(parse(text), type_, name, [])
    return _merged(value, fitting), None if left is NOTHING else text_of(left)


def _merged(value: Any, found: Any) -> Any:
    """Return a value with the members that were found; a list is found as a whole."""
    if isinstance(value, dict) and isinstance(found, dict):
        return {**value, **{name: _merged(value.get(name), member) for name, member in found.items()}}
    return value if found is None else found


def _widened(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the array with the fields that its structs lack, which are null."""
    if array.type.equals(type_):
        return array
    if not pa.types.is_struct(array.type):
        return pa.array(array.to_pylist(), type_)
    held = {field.name: array.field(index) for index, field in enumerate(array.type)}
    children = [
        _widened(held[field.name], field.type) if field.name in held else pa.nulls(len(array), field.type)
        for field in type_
    ]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
