"""Applies the last changes of keys to the rows of a bucket.  Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.tables.exec.decoding.changed_rows import key_ids
from kctl.tables.exec.schema.arrow_types import comparable
from kctl.tables.exec.schema.changes import ChangeKind
from kctl.tables.exec.selection.upserts import CHANGE, KEY_ID, UpsertOptions
from kctl.tables.upserts.changes import ORIGIN, RECORD, order_values
from kctl.tables.upserts.history import FIRST, Versions


class Applied(NamedTuple):
    """The rows of a bucket after changes, and numbers of keys."""

    rows: pa.Table
    upserted: int = 0
    deleted: int = 0
    """Rows that are gone."""
    outdated: int = 0
    """Changes that the row of their key has a later value of --order-by than."""
    moved: int = 0
    """Rows that a record of another partition has replaced."""

    @property
    def is_change(self) -> bool:
        """Whether the rows differ from those before."""
        return bool(self.upserted or self.deleted)


def apply(
    rows: pa.Table | None,
    changes: pa.Table,
    schema: pa.Schema,
    options: UpsertOptions,
    versions: Versions | None = None,
) -> Applied:
    """Return the rows after the last changes of their keys; None are no rows.  `versions` gets rows that end."""
    current = schema.empty_table() if rows is None else conform(rows, schema)
    ids, _ = key_ids(current, options)
    new_ids = changes.column(KEY_ID).combine_chunks()
    places = pc.index_in(ids, value_set=new_ids)
    outdated = 0
    if options.order_path and len(ids):
        is_outdated = _outdated(current, changes, places, options)
        outdated = int(is_outdated.sum())
        if outdated:
            changes = changes.filter(pa.array(~is_outdated))
            new_ids = changes.column(KEY_ID).combine_chunks()
            places = pc.index_in(ids, value_set=new_ids)
    is_upsert = pc.equal(changes.column(CHANGE), ChangeKind.UPSERT.value)
    is_kept = places.is_null()
    is_replaced = pc.fill_null(pc.take(is_upsert.combine_chunks(), places), False)
    deleted = len(ids) - _count(is_kept) - _count(is_replaced)
    if versions is not None:
        ended = pc.take(pa.array(range(changes.num_rows), pa.int64()), places.drop_null()).to_numpy()
        firsts = [changes.column(name).to_numpy()[ended] for name in FIRST]
        versions.ended(current.filter(places.is_valid()), firsts)
    added = changes.filter(is_upsert)
    before = current.column("partition")
    after = pc.take(changes.column("partition").combine_chunks(), places)
    moved = _count(pc.fill_null(pc.not_equal(before, after), False))
    kept = current.filter(is_kept) if _count(is_kept) < len(ids) else current
    result = pa.concat_tables([kept, conform(added, schema)]).combine_chunks() if added.num_rows else kept
    return Applied(result, added.num_rows, deleted, outdated, moved)


def _outdated(rows: pa.Table, changes: pa.Table, places: pa.Array, options: UpsertOptions) -> NDArray[np.bool_]:
    """Return which changes are earlier, by the order, than the row of their key; deletes are not."""
    result = np.zeros(changes.num_rows, bool)
    has_change = places.is_valid()
    held = order_values(rows, options.order_path).filter(has_change)
    indexes = places.filter(has_change)
    new = order_values(changes, options.order_path).take(indexes)
    is_later = pc.fill_null(pc.greater(held, new), pc.and_(held.is_valid(), new.is_null()))
    is_upsert = pc.equal(changes.column(CHANGE), ChangeKind.UPSERT.value)
    can_be = pc.and_(is_upsert, pc.equal(changes.column(ORIGIN), RECORD)).combine_chunks().take(indexes)
    result[indexes.filter(pc.and_(is_later, can_be)).to_numpy()] = True
    return result


def _count(mask: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with these columns, and null for those that the rows lack; others are left out."""
    if rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            column = rows.column(field.name)
            whole = column.combine_chunks()
            columns.append(_conformed(whole, field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


def _conformed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the array with a type whose structs have further fields."""
    if array.type.equals(type_):
        return array
    if pa.types.is_struct(type_) and pa.types.is_struct(array.type):
        children = [
            _conformed(pc.struct_field(array, [field.name]), field.type)
            if array.type.get_field_index(field.name) >= 0
            else pa.nulls(len(array), field.type)
            for field in type_
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_) and pa.types.is_list(array.type):
        values = _conformed(array.flatten(), type_.value_type)
        lengths = pc.fill_null(array.value_lengths(), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)))
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=type_, mask=array.is_null())
    return array.cast(type_)


def has_equal_values(rows: pa.Table, others: pa.Table) -> pa.Array:
    """Return which rows equal those at the same place in the other table, which has the same columns."""
    equal = pa.repeat(pa.scalar(True), rows.num_rows)
    for name in rows.schema.names:
        pair = [table.column(name).combine_chunks() for table in (rows, others)]
        equal = pc.and_(equal, _are_equal(pair[0], pair[1]))
    return equal


def _are_equal(first: pa.Array, second: pa.Array) -> pa.Array:
    are_null = pc.and_(first.is_null(), second.is_null())
    if pa.types.is_struct(first.type):
        equal = pc.and_(first.is_valid(), second.is_valid())
        for field in first.type:
            children = [pc.struct_field(array, [field.name]) for array in (first, second)]
            equal = pc.and_(equal, _are_equal(children[0], children[1]))
        return pc.or_(are_null, equal)
    if pa.types.is_nested(first.type):
        pairs = zip(comparable(first).to_pylist(), comparable(second).to_pylist(), strict=True)
        return pa.array([value == other for value, other in pairs], pa.bool_())
    equal = pc.equal(first, second)
    if pa.types.is_floating(first.type):
        equal = pc.or_kleene(equal, pc.and_(pc.is_nan(first), pc.is_nan(second)))
    return pc.or_(are_null, pc.fill_null(equal, False))
