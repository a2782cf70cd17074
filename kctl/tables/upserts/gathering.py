"""The changes of a batch in groups that memory has room for.

A batch of usual size is one group.  More changes, as those of a first export, are reduced to the last ones of keys
while they are read; what is still too much is divided by the hashes of keys into temporary files of this machine
(TMPDIR), each of which is a group.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa

from kctl.limits import Subject, bound
from kctl.tables.exec.selection.upserts import KEY_ID
from kctl.tables.upserts.buckets import ALL_KEYS, Bucket, assign, key_hashes
from kctl.tables.upserts.changes import last_changes, last_of_each_partition
from kctl.tables.upserts.history import Versions

EXPORT_CHANGES_BYTES_MAX = bound(
    Subject.EXPORTS,
    "changes of an export with --mode upsert that are in memory together, as Arrow columns",
    64 << 20,
    "bytes",
    on_excess="they are divided by key into temporary files",
)
GROUPS_DEPTH_MAX = 9
"""2^9 temporary files are open together."""


class Group(NamedTuple):
    """The last changes of the keys of a bucket, which has all buckets of a table, or some, or is a part of one."""

    bucket: Bucket
    changes: pa.Table


def gather(
    parts: Iterator[pa.Table],
    rows_total: int,
    order: tuple[str, ...],
    *,
    bytes_max: int = EXPORT_CHANGES_BYTES_MAX,
    versions: Versions | None = None,
) -> Iterator[Group]:
    """Yield the last changes in groups that have all keys together; `rows_total` is the number of rows in all parts.

    The parts have the same columns.  `versions` gets the changes before the last ones.
    """
    rule = _Rule(order, versions)
    held: list[pa.Table] = []
    size = rows = reduced_size = 0
    for part in parts:
        held.append(part)
        rows += part.num_rows
        size += part.nbytes
        # Each key in several changes is reduced; the next time is after as many bytes again.
        if size - reduced_size > bytes_max // 2:
            held = [rule.reduced(pa.concat_tables(held))]
            size = reduced_size = held[0].nbytes
        if size > bytes_max:
            estimate = size * max(rows_total, 1) // max(rows, 1)
            depth = min((estimate // (bytes_max // 2)).bit_length(), GROUPS_DEPTH_MAX)
            yield from _spilled(held, parts, rule, depth, bytes_max)
            return
    if held:
        yield Group(ALL_KEYS, rule.last(pa.concat_tables(held).combine_chunks()))


class _Rule(NamedTuple):
    """Which changes of a key count."""

    order: tuple[str, ...]
    versions: Versions | None

    def reduced(self, changes: pa.Table) -> pa.Table:
        """Return changes that lead to the same rows as these, fewer if possible."""
        return self.versions.fold(changes) if self.versions else last_of_each_partition(changes, self.order)

    def last(self, changes: pa.Table) -> pa.Table:
        """Return the last change of each key."""
        return self.versions.last(changes) if self.versions else last_changes(changes, self.order)


def _spilled(
    held: list[pa.Table], parts: Iterator[pa.Table], rule: _Rule, depth: int, bytes_max: int
) -> Iterator[Group]:
    """Yield the groups of changes by the last bits of their hashes, those without changes too."""
    groups = [Bucket(depth, bits) for bits in range(1 << depth)]
    with tempfile.TemporaryDirectory(prefix="kctl-changes-") as folder, _Spills(Path(folder)) as spills:
        for part in _chained(held, parts):
            ids = part.column(KEY_ID).combine_chunks()
            for group, rows in assign(key_hashes(ids), groups).items():
                spills.add(group, part.take(pa.array(rows)))
        spills.close()
        schema = held[0].schema if held else None
        for group in groups:
            changes = _read(spills.path(group), rule, bytes_max) if group in spills.groups else None
            if changes is not None:
                yield Group(group, rule.last(changes))
            elif schema is not None:
                yield Group(group, schema.empty_table())


def _chained(held: list[pa.Table], parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield from held
    yield from parts


def _read(path: Path, rule: _Rule, bytes_max: int) -> pa.Table:
    """Return the changes of a file, reduced while they are read."""
    held: list[pa.Table] = []
    size = reduced_size = 0
    with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            held.append(pa.Table.from_batches([batch]))
            size += batch.nbytes
            if size - reduced_size > bytes_max:
                held = [rule.reduced(pa.concat_tables(held))]
                size = reduced_size = held[0].nbytes
    return pa.concat_tables(held).combine_chunks()


class _Spills:
    """The temporary files of groups."""

    def __init__(self, folder: Path) -> None:
        self.groups: set[Bucket] = set()
        self._folder = folder
        self._writers: dict[Bucket, pa.ipc.RecordBatchStreamWriter] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, group: Bucket) -> Path:
        return self._folder / f"{group.bits:05x}"

    def add(self, group: Bucket, changes: pa.Table) -> None:
        if group not in self._writers:
            sink = self._stack.enter_context(pa.OSFile(str(self.path(group)), "wb"))
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writers[group] = self._stack.enter_context(pa.ipc.new_stream(sink, changes.schema, options=options))
            self.groups.add(group)
        self._writers[group].write_table(changes)

    def close(self) -> None:
        self._writers.clear()
        self._stack.close()
