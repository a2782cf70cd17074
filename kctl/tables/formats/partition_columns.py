"""The partition columns of a Delta table, which are in its log and not in its files."""

from __future__ import annotations

import pyarrow as pa

from kctl.tables.exec.selection.laid_out import physical_path
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.transforms import BUCKET, DAY, HOUR_OF, MONTH, YEAR

_TIME_TYPES = {"date": pa.date32(), "hour": pa.int32()}
_TERM_TYPES = {YEAR: pa.int32(), MONTH: pa.string(), DAY: pa.date32(), HOUR_OF: pa.string(), BUCKET: pa.int32()}


def with_partition_columns(schema: pa.Schema, by: Partitioning) -> pa.Schema:
    """Return the columns of the table, for those of its files."""
    types = _TIME_TYPES | {
        term.column: _TERM_TYPES.get(term.transform) or _source_type(schema, term.path) for term in by.terms
    }
    return pa.schema([*schema, *(pa.field(name, types[name]) for name in by.columns)])


def _source_type(schema: pa.Schema, path: str) -> pa.DataType:
    column, *fields = physical_path(schema, tuple(path.split("."))) or path.split(".")
    type_ = schema.field(column).type
    for name in fields:
        type_ = type_.field(name).type
    return type_
