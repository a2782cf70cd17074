"""The last change of each key in a batch.  Pure.

A key is in one partition, as producers with the default partitioner place it; there the record with the highest offset
is the last one.  Of a key in several partitions the record with the highest timestamp counts, and then that of the
highest partition.  With an order, the record with its highest value counts, one without a value as the lowest, and of
equal ones the last; a delete removes the row whatever its value is, and what follows begins anew.

A TRUNCATE removes all rows of before: changes with lower offsets of its partition, and of other partitions those that
are not younger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.tables.exec.decoding.changed_rows import field_of
from kctl.tables.exec.schema.changes import ChangeKind
from kctl.tables.exec.selection.upserts import CHANGE, KEY_ID

ORIGIN = "origin"
"""The column of changes with one of the following numbers."""
OF_TABLE = 0
"""A row that the table has in a file without a bucket."""
RECORD = 1
RECORD_AFTER_DELETE = 2
"""A record of a key whose row was deleted before, so that it does not matter what the row's order was."""


Longs = NDArray[np.int64]


class Truncate(NamedTuple):
    """The place of a change that removes all rows of before."""

    partition: int
    offset: int
    timestamp_us: int


def truncates_of(changes: pa.Table) -> list[Truncate]:
    """Return the changes of a table that remove all rows."""
    found = changes.filter(pc.equal(changes.column(CHANGE), ChangeKind.TRUNCATE.value))
    times = found.column("timestamp").cast(pa.int64()).to_pylist()
    places = zip(found.column("partition").to_pylist(), found.column("offset").to_pylist(), times, strict=True)
    return [Truncate(*place) for place in places]


def after_truncates(changes: pa.Table, truncates: list[Truncate]) -> pa.Table:
    """Return the changes of rows that no TRUNCATE of the batch removes."""
    if not truncates:
        return changes
    partitions, offsets, times = places_of(changes)
    kept = ~is_kind(changes, ChangeKind.TRUNCATE) & are_records(changes)
    for truncate in truncates:
        is_same = partitions == truncate.partition
        kept &= np.where(is_same, offsets > truncate.offset, times > truncate.timestamp_us)
    return changes.filter(pa.array(kept))


def last_of_each_partition(changes: pa.Table, order: tuple[str, ...] = ()) -> pa.Table:
    """Return changes of which `last_changes` returns the same, with at most one for each key and partition."""
    if order:
        return last_changes(changes, order)
    partitions, offsets, _ = places_of(changes)
    codes = codes_of(changes)
    return changes.take(_last_of(codes, partitions, order=(offsets, are_records(changes))))


def last_changes(changes: pa.Table, order: tuple[str, ...] = ()) -> pa.Table:
    """Return the last change of each key; `order` is the path of the column by which they are ordered."""
    if not changes.num_rows:
        return changes
    if order:
        return _highest(changes, order)
    changes = last_of_each_partition(changes)
    partitions, offsets, times = places_of(changes)
    return changes.take(_last_of(codes_of(changes), order=(offsets, partitions, times, are_records(changes))))


def _highest(changes: pa.Table, order: tuple[str, ...]) -> pa.Table:
    """Return the change of each key with the highest value after its last delete."""
    codes = codes_of(changes)
    partitions, offsets, _ = places_of(changes)
    are_new = are_records(changes)
    is_delete = is_kind(changes, ChangeKind.DELETE)
    rows = np.lexsort((offsets, partitions, are_new, codes))
    deletes = np.cumsum(is_delete[rows])
    is_first = np.ones(len(rows), bool)
    is_first[1:] = codes[rows][1:] != codes[rows][:-1]
    before_key: Longs = (deletes - is_delete[rows])[is_first]
    counts = np.empty(len(rows), np.int64)
    counts[rows] = deletes - before_key[np.cumsum(is_first) - 1]
    values = ranks(order_values(changes, order))
    chosen = _last_of(codes, order=(offsets, partitions, are_new, values, ~is_delete, counts))
    origins = _numbers(changes.column(ORIGIN))
    is_after = np.zeros(int(codes.max()) + 1, bool)
    np.logical_or.at(is_after, codes, (counts > 0) | (origins == RECORD_AFTER_DELETE))
    found = changes.take(chosen)
    marks = np.where(is_after[codes[chosen]], RECORD_AFTER_DELETE, origins[chosen]).astype(np.int8)
    return found.set_column(found.schema.get_field_index(ORIGIN), ORIGIN, pa.array(marks))


def order_values(rows: pa.Table, order: tuple[str, ...]) -> pa.Array:
    """Return the values by which rows are ordered."""
    values = field_of(rows, order)
    assert values is not None  # checked with the columns
    return values


def ranks(values: pa.Array) -> Longs:
    """Return numbers in the order of the values; equal values have the same one, and nulls the lowest."""
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy(zero_copy_only=False).astype(np.int64)
    rank_of_code = np.empty(len(order) + 1, np.int64)
    rank_of_code[order] = np.arange(len(order))
    rank_of_code[-1] = -1
    codes = pc.fill_null(encoded.indices, len(order)).to_numpy(zero_copy_only=False)
    found: Longs = rank_of_code[codes]
    return found


def _last_of(codes: Longs, *by: Longs, order: tuple[NDArray[Any], ...]) -> pa.Array:
    """Return the rows, in ascending order, that are the last ones of each key and value of `by`.

    The last one of `order` decides first.
    """
    rows = np.lexsort((*order, *by, codes))
    groups = np.stack([column[rows] for column in (codes, *by)])
    is_last = np.ones(len(rows), bool)
    is_last[:-1] = (groups[:, 1:] != groups[:, :-1]).any(axis=0)
    return pa.array(np.sort(rows[is_last]))


def codes_of(changes: pa.Table) -> Longs:
    """Return a number of each key."""
    ids = changes.column(KEY_ID).combine_chunks()
    codes = ids.dictionary_encode().indices
    found: Longs = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def places_of(changes: pa.Table) -> tuple[Longs, Longs, Longs]:
    """Return partitions, offsets, and timestamps in microseconds."""
    names = ("partition", "offset", "timestamp")
    columns = [_numbers(changes.column(name).cast(pa.int64())) for name in names]
    return columns[0], columns[1], columns[2]


def are_records(changes: pa.Table) -> NDArray[np.bool_]:
    """Return which are changes of records, which come after all rows of the table."""
    found: NDArray[np.bool_] = _numbers(changes.column(ORIGIN)) != OF_TABLE
    return found


def is_kind(changes: pa.Table, kind: ChangeKind) -> NDArray[np.bool_]:
    """Return which changes are of a kind."""
    return np.asarray(_numbers(pc.equal(changes.column(CHANGE), kind.value)), bool)


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    found: NDArray[Any] = column.to_numpy()
    return found
