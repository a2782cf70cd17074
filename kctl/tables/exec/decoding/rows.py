"""Applies --where and --select to batches of decoded records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kctl.admin.records.where import parse_where
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.schema.column_types import Columns
from kctl.tables.exec.selection.row_filter import (
    AnyOf,
    Comparison,
    Every,
    IsIn,
    IsNull,
    Like,
    Opposite,
    TypedCondition,
    typed,
)
from kctl.tables.exec.selection.row_selection import IDENTITY

_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Filtered(NamedTuple):
    """The records for which the condition is true, and the number of others."""

    batch: pa.RecordBatch
    removed: int


class RowFilter:
    """The condition of --where for the records of a topic."""

    def __init__(self, where: str, columns: Columns) -> None:
        """Type the condition, or raise UsageError."""
        self._condition = typed(parse_where(where), columns)
        self._decoder = BatchDecoder(columns)

    def filtered(self, batch: pa.RecordBatch) -> Filtered:
        """Filter decoded records."""
        if not batch.num_rows:
            return Filtered(batch, 0)
        kept = batch.filter(_mask(self._condition, batch), null_selection_behavior="drop")
        return Filtered(kept, batch.num_rows - kept.num_rows)

    def filtered_records(self, batch: pa.RecordBatch) -> Filtered:
        """Filter records that are not decoded; those that cannot be decoded remain, as an export keeps them."""
        fitting = self._decoder.decode(batch).fitting
        mask = pc.fill_null(_mask(self._condition, fitting), False)
        removed = fitting.column("offset").filter(pc.invert(mask))
        kept = batch.filter(pc.invert(pc.is_in(batch.column("offset"), removed)))
        return Filtered(kept, len(removed))


def selected(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema with the columns that --select names, and those that identify a record; all for no names."""
    if not names:
        return schema
    paths = {tuple(name.split(".")) for name in names}
    kept = [field if field.name in IDENTITY else _pruned(field, paths) for field in schema]
    return pa.schema([field for field in kept if field is not None])


def projected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of `schema`, a selection of its own."""
    if len(batch.schema) == len(schema) and batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([_array(batch.column(field.name), field) for field in schema], schema=schema)


def _pruned(field: pa.Field, paths: set[tuple[str, ...]]) -> pa.Field | None:
    here = {path[1:] for path in paths if fnmatchcase(field.name, path[0])}
    if () in here:
        return field
    if not here or not pa.types.is_struct(field.type):
        return None
    inner = [pruned for child in field.type if (pruned := _pruned(child, here)) is not None]
    return field.with_type(pa.struct(inner)) if inner else None


def _array(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type.equals(field.type):
        return array
    children = [_array(pc.struct_field(array, [child.name]), child) for child in field.type]
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=array.is_null())


def _mask(condition: TypedCondition, batch: pa.RecordBatch) -> pa.Array:
    match condition:
        case Opposite(inner):
            return pc.invert(_mask(inner, batch))
        case Every(several):
            return functools.reduce(pc.and_kleene, (_mask(inner, batch) for inner in several))
        case AnyOf(several):
            return functools.reduce(pc.or_kleene, (_mask(inner, batch) for inner in several))
        case Comparison(path, operator, literal):
            column = _column(batch, path)
            return _COMPARE[operator](column, _scalar(literal, column.type))
        case IsIn(path, literals):
            column = _column(batch, path)
            equal = [pc.equal(column, _scalar(literal, column.type)) for literal in literals]
            return functools.reduce(pc.or_kleene, equal, _none_of(column))
        case Like(path, pattern):
            return pc.match_like(_column(batch, path), pattern)
        case IsNull(path):
            return pc.is_null(_column(batch, path))


def _none_of(column: pa.Array) -> pa.Array:
    """Return what IN without literals means: false, and unknown for null."""
    return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), pa.scalar(False))


def _column(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _scalar(literal: object, type_: pa.DataType) -> pa.Scalar:
    """Return the literal with the type of its column, or one with which it can be compared."""
    is_number = isinstance(literal, int | float) and not isinstance(literal, bool)
    return pa.scalar(literal) if is_number else pa.scalar(literal, type_)
