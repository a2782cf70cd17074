"""The versions of rows: what each change of a batch begins and ends (kctl export --mode upsert --history).  Pure.

A record with a row begins a version of its key, at its timestamp, and the next record of the key ends it, at its own
timestamp or, if that is lower, at once.  So the versions do not depend on how records are divided into batches.  A
TRUNCATE ends those that begin before it, and a topic that was created again those of the former one.

Changes are reduced while they are read: versions that end within the batch are handed over, and of each key and
partition the last change remains, with the place of the first one, which ends the version that the table has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kctl.tables.exec.schema.arrow_types import TIMESTAMP
from kctl.tables.exec.schema.changes import ChangeKind
from kctl.tables.exec.selection.columns import IS_CURRENT, VALID_FROM, VALID_TO
from kctl.tables.exec.selection.upserts import CHANGE
from kctl.tables.upserts.changes import Longs, Truncate, are_records, codes_of, is_kind, places_of

FIRST = ("first_partition", "first_offset", "first_us")
"""Columns of changes with the place of the first change of their key."""
ANY_PLACE = -1
"""The partition of the end of all rows that the table had before."""


class _Places(NamedTuple):
    partitions: Longs
    offsets: Longs
    times: Longs

    def at(self, rows: NDArray[np.int64]) -> _Places:
        return _Places(*(column[rows] for column in self))


def with_first_places(changes: pa.Table) -> pa.Table:
    """Return changes that are each the first one of their key so far."""
    for name, column in zip(FIRST, places_of(changes), strict=True):
        changes = changes.append_column(name, pa.array(column))
    return changes


class Versions:
    """The versions of one batch.  Owner: the writer of its state."""

    def __init__(self, truncates: Sequence[Truncate], write: Callable[[pa.Table], None]) -> None:
        """`write` takes versions that have ended."""
        self._truncates = sorted(truncates, key=lambda truncate: (truncate.timestamp_us, truncate.offset))
        self._write = write

    def fold(self, changes: pa.Table) -> pa.Table:
        """Return the last change of each key and partition, after the versions before it have been written."""
        if not changes.num_rows:
            return changes
        codes, places, are_new = codes_of(changes), _Places(*places_of(changes)), are_records(changes)
        order = np.lexsort((places.offsets, are_new, places.partitions, codes))
        groups = np.stack((codes[order], places.partitions[order]))
        return self._reduced(changes, order, _are_same(groups))

    def last(self, changes: pa.Table) -> pa.Table:
        """Return the last change of each key, of those of `fold`, as rows of the table if they are such."""
        changes = self.fold(changes)
        if not changes.num_rows:
            return _opened(changes)
        codes, places, are_new = codes_of(changes), _Places(*places_of(changes)), are_records(changes)
        order = np.lexsort((places.offsets, places.partitions, places.times, are_new, codes))
        changes = self._reduced(changes, order, _are_same(codes[order][None, :]))
        return _opened(self._truncated(changes))

    def ended(self, rows: pa.Table, firsts: Sequence[Longs]) -> None:
        """Write rows of the table as versions that have ended, with the first changes of their keys."""
        places = _Places(*places_of(rows))
        self._end(rows, places, _Places(*firsts), is_old=np.ones(rows.num_rows, bool))

    def _reduced(self, changes: pa.Table, order: NDArray[np.int64], has_next: NDArray[np.bool_]) -> pa.Table:
        """Write the versions that the change after them, in this order, ends; return the others with first places."""
        places, old = _Places(*places_of(changes)), ~are_records(changes)
        at = np.flatnonzero(has_next & ~is_kind(changes, ChangeKind.DELETE)[order])
        ending = order[at]
        self._end(changes.take(pa.array(ending)), places.at(ending), places.at(order[at + 1]), is_old=old[ending])
        begins = np.flatnonzero(np.concatenate(([True], ~has_next[:-1])))
        kept = changes.take(pa.array(order[~has_next]))
        firsts = order[begins]
        for name in FIRST:
            values = changes.column(name).to_numpy()[firsts]
            kept = kept.set_column(kept.schema.get_field_index(name), name, pa.array(values))
        return kept

    def _truncated(self, changes: pa.Table) -> pa.Table:
        """Return the changes, of which those that a TRUNCATE ends have become deletes."""
        if not self._truncates:
            return changes
        places, old = _Places(*places_of(changes)), ~are_records(changes)
        never = _Places(*(np.full(changes.num_rows, np.iinfo(np.int64).max) for _ in range(3)))
        ends = self._cuts(places, never, is_old=old)
        is_cut = (ends < never.times) & ~is_kind(changes, ChangeKind.DELETE)
        rows = np.flatnonzero(is_cut)
        self._write(_closed(changes.take(pa.array(rows)), ends[rows]))
        kinds = np.where(is_cut, ChangeKind.DELETE.value, changes.column(CHANGE).to_numpy())
        return changes.set_column(changes.schema.get_field_index(CHANGE), CHANGE, pa.array(kinds, pa.string()))

    def _end(self, rows: pa.Table, places: _Places, following: _Places, *, is_old: NDArray[np.bool_]) -> None:
        if rows.num_rows:
            self._write(_closed(rows, self._cuts(places, following, is_old=is_old)))

    def _cuts(self, places: _Places, following: _Places, *, is_old: NDArray[np.bool_]) -> Longs:
        """Return when versions end: with the first TRUNCATE between them and the next change, or with that."""
        ends = following.times.copy()
        is_open = np.ones(len(ends), bool)
        for truncate in self._truncates:
            is_same = places.partitions == truncate.partition
            is_after = is_old | np.where(
                is_same, places.offsets < truncate.offset, places.times <= truncate.timestamp_us
            )
            if truncate.partition == ANY_PLACE:
                is_after = is_old
            is_next_same = following.partitions == truncate.partition
            is_before = np.where(
                is_next_same, following.offsets > truncate.offset, following.times >= truncate.timestamp_us
            )
            cut = is_open & is_after & is_before
            ends[cut] = truncate.timestamp_us
            is_open &= ~cut
        return ends


def _are_same(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which columns of numbers equal the next one."""
    same = np.zeros(groups.shape[1], bool)
    same[:-1] = (groups[:, 1:] == groups[:, :-1]).all(axis=0)
    return same


def _closed(rows: pa.Table, ends_us: Longs) -> pa.Table:
    """Return rows as versions that have ended."""
    begins = rows.column("timestamp")
    ends = pa.array(np.maximum(ends_us, places_of(rows)[2])).view(TIMESTAMP)
    return _with_versions(rows, begins, ends, is_current=False)


def _opened(rows: pa.Table) -> pa.Table:
    return _with_versions(rows, rows.column("timestamp"), pa.nulls(rows.num_rows, TIMESTAMP), is_current=True)


def _with_versions(rows: pa.Table, begins: pa.ChunkedArray, ends: pa.Array, *, is_current: bool) -> pa.Table:
    flags = pa.repeat(pa.scalar(is_current), rows.num_rows)
    for name, column in ((VALID_FROM, begins), (VALID_TO, ends), (IS_CURRENT, flags)):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows
