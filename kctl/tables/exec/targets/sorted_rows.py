"""The rows of a file in the order of --sort-by.

Rows that memory has room for are sorted at once.  Others are sorted in runs, which wait in a temporary file without a
name, and are merged when the file is complete: each part of the result has consecutive rows of each run.  Memory has
the sort columns of all rows then, and one part.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PART_ROWS = 1 << 16
PART_BYTES = 8 << 20
"""Approximate size of the parts in which merged rows are returned."""

SortPaths = Sequence[tuple[str, ...]]


class Runs:
    """Sorted runs of one file.  Owner: one task."""

    def __init__(self, sort_by: SortPaths) -> None:
        self._sort_by = sort_by
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0
        self._bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether no run was added."""
        return not self._rows

    def add(self, rows: pa.Table, folder: Path) -> None:
        """Write a run; its file is in `folder`, and ends with the process at the latest."""
        run = in_order(rows, self._sort_by).combine_chunks()
        if self._writer is None:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
            self._writer = pa.ipc.new_stream(self._file, run.schema)
        self._writer.write_table(run, max_chunksize=max(run.num_rows, 1))
        self._rows += run.num_rows
        self._bytes += run.nbytes

    def merged(self) -> Iterator[pa.Table]:
        """Yield all rows in order; once."""
        if self._file is None or self._writer is None:
            return
        self._writer.close()
        self._file.flush()
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            buffer = pa.py_buffer(mapped)
            yield from self._parts(pa.ipc.open_stream(buffer).read_all().to_batches())
            del buffer

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._file = self._writer = None

    def _parts(self, runs: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        keys = _keys(pa.Table.from_batches(runs), self._sort_by)
        order = _order(keys).to_numpy()
        del keys
        starts = np.cumsum([0, *(run.num_rows for run in runs)])
        taken = [0] * len(runs)
        count = max(min(PART_ROWS, PART_BYTES * self._rows // max(self._bytes, 1)), 1)
        for first in range(0, len(order), count):
            rows = order[first : first + count]
            owners = np.searchsorted(starts, rows, side="right") - 1
            counts = np.bincount(owners, minlength=len(runs))
            # The rows of a run are in order, so that those of a part follow those of the part before.
            parts = [run.slice(taken[number], counts[number]) for number, run in enumerate(runs)]
            shifts = np.cumsum([0, *counts])[:-1] - starts[:-1] - taken
            places = rows.astype(np.int64) + shifts[owners]
            taken = [before + int(more) for before, more in zip(taken, counts, strict=True)]
            yield pa.Table.from_batches(parts).combine_chunks().take(pa.array(places))


def in_order(rows: pa.Table, sort_by: SortPaths) -> pa.Table:
    """Return the rows in ascending order of some columns or fields; null is first, and equal rows keep theirs."""
    return rows.take(_order(_keys(rows, sort_by)))


def _order(keys: pa.Table) -> pa.Array:
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
    return order.combine_chunks() if isinstance(order, pa.ChunkedArray) else order


def _keys(rows: pa.Table, sort_by: SortPaths) -> pa.Table:
    """Return the columns that decide, the last of which is the place of the row."""
    columns: list[pa.ChunkedArray | pa.Array] = []
    for path in sort_by:
        column = _column(rows, path)
        # Versions of pyarrow differ in how they are told where null is.
        columns += [column.is_valid(), column] if column.null_count else [column]
    columns.append(pa.array(np.arange(rows.num_rows)))
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    column = rows.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
