"""Column types as types of Arrow, and back.

Iceberg, Delta and Spark have all of them.  The names of the children of lists and maps are those of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kctl.tables.exec.schema.column_types import VARIANT, ListOf, MapOf, Struct, Type, decimal_of, leaves
from kctl.tables.exec.schema.logical_types import LOCAL_TIMESTAMP, TIME, TIMESTAMP_NS

TIMESTAMP = pa.timestamp("us", tz="UTC")
VARIANT_TYPE = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
"""No other column is such a struct: the fields of all others may be null."""
_ARROW = {
    "binary": pa.binary(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    TIME: pa.time64("us"),
    LOCAL_TIMESTAMP: pa.timestamp("us"),
    TIMESTAMP_NS: pa.timestamp("ns", tz="UTC"),
    VARIANT: VARIANT_TYPE,
}
_NAMES = {arrow: name for name, arrow in _ARROW.items()} | {pa.large_binary(): "binary", pa.large_string(): "string"}


def arrow_type(type_: Type) -> pa.DataType:
    """Return the type of a column."""
    match type_:
        case Struct(fields):
            return pa.struct([pa.field(name, arrow_type(field_type)) for name, field_type in fields])
        case ListOf(item):
            return pa.list_(pa.field("element", arrow_type(item)))
        case MapOf(value):
            return pa.map_(pa.string(), arrow_type(value))
    number = decimal_of(type_)
    return pa.decimal128(*number) if number else _ARROW[type_]


def column_type(arrow: pa.DataType) -> Type:
    """Return the inverse of `arrow_type`, for the columns of tables; other types are given their Arrow name."""
    if pa.types.is_struct(arrow) and arrow not in _NAMES:
        return Struct(tuple((field.name, column_type(field.type)) for field in arrow))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return ListOf(column_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return MapOf(column_type(arrow.item_type))
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _NAMES.get(arrow, str(arrow))


def held_columns(columns: pa.Schema, name: str) -> Type:
    """Return the type of key or value in a table; a struct without fields has no column."""
    if name in columns.names:
        return column_type(columns.field(name).type)
    return Struct()


def has_columns(held: pa.Schema, new: pa.Schema) -> bool:
    """Return whether all columns of `new`, also nested ones, are in `held`."""
    return set(_paths(new)) <= set(_paths(held))


def _paths(schema: pa.Schema) -> Iterable[str]:
    for field in schema:
        yield from (path for path, _ in leaves(column_type(field.type), field.name))


def leaf_paths(field: pa.Field, path: str = "") -> Iterable[str]:
    """Yield the paths of the leaves of a column in a Parquet file."""
    here = f"{path}.{field.name}" if path else field.name
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from leaf_paths(child, here)
    elif pa.types.is_list(field.type):
        yield from leaf_paths(field.type.value_field, f"{here}.list")
    elif pa.types.is_map(field.type):
        yield f"{here}.key_value.key"
        yield from leaf_paths(field.type.item_field, f"{here}.key_value")
    else:
        yield here


def comparable(column: pa.Array) -> pa.Array:
    """Return the column with nanoseconds as numbers: Python has no times with nanoseconds."""
    type_ = _without_nanoseconds(column.type)
    return column if type_ == column.type else column.cast(type_)


def _without_nanoseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_nanoseconds(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_without_nanoseconds(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, type_.item_field.with_type(_without_nanoseconds(type_.item_type)))
    return pa.int64() if pa.types.is_timestamp(type_) and type_.unit == "ns" else type_
