"""The keys of changes and of rows, as bytes that are equal for equal keys.

The bytes decide which bucket of a table a row is in (kctl.tables.upserts.buckets), so they must never change for a key:
not with the width of an integer, nor with further fields of a key that are null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kctl.tables.exec.schema.changes import ChangeKind
from kctl.tables.exec.selection.columns import CHANGE_FIELD, KEY_ID_FIELD
from kctl.tables.exec.selection.upserts import CHANGE, UpsertOptions

NO_KEY = "key: the record has no key, by which its row would be found"


class Refused(NamedTuple):
    """Changes that have no key, and why."""

    offsets: pa.Array
    reason: str


def with_plain_changes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return undecoded records with the column `change`: those without a value delete a row."""
    is_null = batch.column("value").is_null()
    kinds = pc.if_else(is_null, ChangeKind.DELETE.value, ChangeKind.UPSERT.value)
    return batch.append_column(CHANGE_FIELD, kinds)


def with_key_ids(batch: pa.RecordBatch, options: UpsertOptions) -> tuple[pa.RecordBatch, list[Refused]]:
    """Return decoded changes with the column `key_id`, and those that need a key and have none.

    Records that change nothing are left out.
    """
    batch = batch.filter(pc.not_equal(batch.column(CHANGE), ChangeKind.NOTHING.value))
    ids, reason = key_ids(batch, options)
    needs_key = pc.not_equal(batch.column(CHANGE), ChangeKind.TRUNCATE.value)
    ids = pc.if_else(needs_key, ids, pa.scalar(None, pa.binary()))
    lacks_key = pc.and_(needs_key, ids.is_null())
    batch = batch.append_column(KEY_ID_FIELD, ids)
    if not pc.any(lacks_key).as_py():
        return batch, []
    refused = Refused(batch.column("offset").filter(lacks_key), reason)
    return batch.filter(pc.invert(lacks_key)), [refused]


def key_ids(rows: pa.RecordBatch | pa.Table, options: UpsertOptions) -> tuple[pa.Array, str]:
    """Return the key of each row as bytes, null where it has none, and the reason why a row has none."""
    if options.keys:
        columns = [_key_field(rows, tuple(name.split("."))) for name in options.keys]
        if len(columns) == 1:
            return columns[0], f"key: value.{options.keys[0]} is missing or null"
        return _joined(columns), f"key: one of value.{', value.'.join(options.keys)} is missing or null"
    if "key" not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary()), NO_KEY
    column = _whole(rows.column("key"))
    if not pa.types.is_struct(column.type):
        return _text(column), NO_KEY
    parts = [_named(name, leaf) for name, leaf in _leaves(column, "")]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")
    has_key = pc.and_(column.is_valid(), pc.greater(pc.binary_length(joined), 0))
    if "key_rest" in rows.schema.names:
        has_key = pc.and_(has_key, _whole(rows.column("key_rest")).is_null())
        return _where(joined, has_key), "key: the record has no key, or one with other fields or types than its columns"
    return _where(joined, has_key), NO_KEY


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def field_of(rows: pa.RecordBatch | pa.Table, path: tuple[str, ...]) -> pa.Array | None:
    """Return the values of a column, or of a field of a struct, null where a struct is; None if there is none."""
    if path[0] not in rows.schema.names:
        return None
    column = _whole(rows.column(path[0]))
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, [name])
    return column


def _key_field(rows: pa.RecordBatch | pa.Table, path: tuple[str, ...]) -> pa.Array:
    """Return a key field of the values as text; that of the key where a value lacks it, as those of tombstones do."""
    found = [_text(column) for name in ("value", "key") if (column := field_of(rows, (name, *path))) is not None]
    if not found:
        return pa.nulls(rows.num_rows, pa.binary())
    return found[0] if len(found) == 1 else pc.coalesce(*found)


def _leaves(column: pa.Array, name: str) -> Iterator[tuple[str, pa.Array]]:
    if not pa.types.is_struct(column.type):
        yield name, column
        return
    for field in column.type:
        yield from _leaves(pc.struct_field(column, [field.name]), f"{name}.{field.name}" if name else field.name)


def _text(column: pa.Array) -> pa.Array:
    """Return a column as bytes that are equal for equal values."""
    type_ = column.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(type_):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(type_):
        column = column.cast(pa.int32())
    elif pa.types.is_dictionary(type_):
        column = column.dictionary_decode()
    return column.cast(pa.string()).cast(pa.binary())


def _joined(columns: list[pa.Array]) -> pa.Array:
    """Return the parts of a key together, each after its length; null if one is."""
    parts = [pc.binary_join_element_wise(_length(column), column, b":") for column in columns]
    return pc.binary_join_element_wise(*parts, b",")


def _named(name: str, column: pa.Array) -> pa.Array:
    """Return a field of a key with its name and length; nothing for null."""
    text = _text(column)
    part = pc.binary_join_element_wise(pa.scalar(f"{name}=".encode(), pa.binary()), _length(text), text, b":")
    return pc.fill_null(part, b"")


def _length(column: pa.Array) -> pa.Array:
    return pc.binary_length(column).cast(pa.string()).cast(pa.binary())


def _where(ids: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, ids, pa.scalar(None, pa.binary()))
