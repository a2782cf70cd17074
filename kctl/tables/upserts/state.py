"""Writes the files of a batch: those of the buckets that changes have touched, which a commit replaces with these."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kctl.errors import KctlError
from kctl.tables.compaction.backfill import filled, has_rests
from kctl.tables.exec.decoding.changed_rows import key_ids
from kctl.tables.exec.outcome import DataLoss, WrittenFile
from kctl.tables.exec.schema.changes import ChangeKind
from kctl.tables.exec.schema.column_types import Columns, columns_to_json
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.columns import CHANGE_FIELD, IS_CURRENT, KEY_ID_FIELD, changes_schema
from kctl.tables.exec.selection.laid_out import as_records, laid_out, laid_out_schema, sort_paths
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.damage import damage_as_arrow_error
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.writer import ParquetFile
from kctl.tables.exec.task import COLUMNS_KEY
from kctl.tables.upserts.buckets import (
    DEPTH_MAX,
    Bucket,
    assign,
    bucket_of_name,
    key_hashes,
    overlapping,
    select,
)
from kctl.tables.upserts.changed_keys import CLOSED, STATE_FILE_BYTES, is_closed_name
from kctl.tables.upserts.changes import OF_TABLE, ORIGIN, RECORD, Truncate, after_truncates, truncates_of
from kctl.tables.upserts.gathering import EXPORT_CHANGES_BYTES_MAX, Group, gather
from kctl.tables.upserts.history import ANY_PLACE, Versions, with_first_places
from kctl.tables.upserts.rows import apply, conform

BATCH_ROWS = 1 << 16
ORIGIN_FIELD = pa.field(ORIGIN, pa.int8())


CLOSED_ROWS_MAX = 10_000_000
"""Of a file with versions that have ended."""


class BrokenState(KctlError):
    """The files of the table are not those that exports have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRequest:
    """The changes of one topic, and the files that they change; paths are relative to the target."""

    changes: Sequence[str]
    current: Collection[str]
    is_cleared: bool
    """Whether no row of before remains, because the topic was created again."""
    place: Callable[[str], str]
    """Returns the path of a new file with a name: that of a bucket, or CLOSED and a number."""
    schema: pa.Schema
    """The columns of the rows, as those of records; files may have other names, see `layout`."""
    columns: Columns
    options: UpsertOptions
    compression: str
    gets_columns: bool = False
    """Whether the batch adds columns to the table, whose values earlier rows have in the rest."""
    layout: ColumnLayout = PLAIN_LAYOUT
    cleared_us: int = 0
    """When all rows have ended at the latest, if `is_cleared`."""
    bucket_bytes_max: int = STATE_FILE_BYTES
    changes_bytes_max: int = EXPORT_CHANGES_BYTES_MAX


@dataclass(slots=True)
class NewState:
    """The new files, and the current ones that they replace."""

    files: list[WrittenFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    upserted: int = 0
    deleted: int = 0
    outdated: int = 0
    moved: int = 0


def write_state(files: Files, request: StateRequest) -> NewState:
    """Write the files of all buckets with changes.  Those of before are read, and not changed.

    Raises BrokenState, DataLoss for a file that is gone or damaged, OSError and StoreFailed; files that were written
    remain then, and belong to no commit.
    """
    return _StateWriter(files, request).run()


class _StateWriter:
    def __init__(self, files: Files, request: StateRequest) -> None:
        self._files = files
        self._request = request
        self._new = NewState()
        self._buckets: dict[Bucket, str] = {}
        """Current files of buckets."""
        self._removed: set[str] = set()
        self._columns = laid_out_schema(request.schema, request.layout)
        """Those of the files."""
        self._versions: Versions | None = None
        self._closed: ParquetFile | None = None
        """The file with versions that have ended."""
        self._closed_path = ""
        self._closed_count = 0
        self._metadata = (
            {COLUMNS_KEY: json.dumps(columns_to_json(request.columns))} if request.columns.are_typed else {}
        )

    def run(self) -> NewState:
        truncates = self._truncates()
        others: list[str] = []
        current = [path for path in self._request.current if not is_closed_name(path)]
        if self._request.options.history:
            self._versions = Versions([*truncates, *self._end_of_all()], self._close)
        if self._request.is_cleared or truncates:
            self._removed.update(current)
            others = current if self._versions else []
        else:
            for path in current:
                bucket = bucket_of_name(path)
                if bucket is None:
                    others.append(path)  # of another program, which has compacted the table
                else:
                    self._check(bucket, path)
                    self._buckets[bucket] = path
            if twins := overlapping(list(self._buckets)):
                first, second = (self._buckets[bucket] for bucket in twins)
                raise BrokenState(f"{first} and {second} have the same keys: one of them is not of this export")
        self._removed.update(others)
        total = sum(self._row_count(path) for path in (*self._request.changes, *others))
        parts = self._parts(truncates, others)
        try:
            for group in gather(
                parts,
                total,
                self._request.options.order_path,
                bytes_max=self._request.changes_bytes_max,
                versions=self._versions,
            ):
                self._apply_group(group)
            if self._request.gets_columns:
                self._fill_columns()
            self._finish_closed()
        except BaseException:
            self._abandon_closed()
            raise
        self._new.removed = sorted(self._removed)
        return self._new

    def _check(self, bucket: Bucket, path: str) -> None:
        if bucket in self._buckets:
            raise BrokenState(
                f"{self._buckets[bucket]} and {path} have the same keys: one of them is not of this export"
            )

    def _truncates(self) -> list[Truncate]:
        found: list[Truncate] = []
        for path in self._request.changes:
            for part in self._read(path, ["change", "partition", "offset", "timestamp"]):
                found += truncates_of(part)
        return found

    def _end_of_all(self) -> list[Truncate]:
        """Return when the rows of a former topic have ended: with the first record of the new one."""
        if not self._request.is_cleared:
            return []
        times = [
            pc.min(part.column("timestamp").cast(pa.int64())).as_py()
            for path in self._request.changes
            for part in self._read(path, ["timestamp"])
        ]
        return [Truncate(ANY_PLACE, 0, min([time for time in times if time is not None] or [self._request.cleared_us]))]

    def _close(self, rows: pa.Table) -> None:
        """Write versions that have ended."""
        if not rows.num_rows:
            return
        if self._closed is None:
            self._closed_path = self._request.place(f"{CLOSED}{self._closed_count:04d}")
            self._closed_count += 1
            self._closed = self._new_file(self._closed_path)
        for batch in conform(rows, self._request.schema).combine_chunks().to_batches():
            self._closed.add(laid_out(batch, self._columns))
        if self._closed.records >= CLOSED_ROWS_MAX:
            self._finish_closed()

    def _finish_closed(self) -> None:
        if self._closed is not None:
            rows, scratch = self._closed.records, self._closed.finish({})
            self._closed = None
            self._publish(scratch, self._closed_path, rows)

    def _abandon_closed(self) -> None:
        if self._closed is not None:
            self._closed.abandon()
            if self._closed.path:
                self._files.discard(self._closed.path)

    def _row_count(self, path: str) -> int:
        with self._files.open(path) as file, damage_as_arrow_error():
            return int(pq.read_metadata(file).num_rows)

    def _parts(self, truncates: list[Truncate], others: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the changes of rows, and the rows of files without buckets as earlier changes."""
        for path in others:
            for rows in self._read_rows(path):
                whole = self._whole(rows)
                if self._versions:
                    is_open = whole.column(IS_CURRENT)
                    self._close(whole.filter(pc.invert(is_open)))
                    whole = whole.filter(is_open)
                ids, _ = key_ids(whole, self._request.options)
                kinds = pa.repeat(pa.scalar(ChangeKind.UPSERT.value), whole.num_rows)
                yield self._from(OF_TABLE, whole.append_column(CHANGE_FIELD, kinds).append_column(KEY_ID_FIELD, ids))
        for path in self._request.changes:
            for part in self._read(path):
                changes = conform(part, changes_schema(self._request.schema))
                marked = self._from(RECORD, changes)
                if self._versions:
                    yield marked.filter(pc.not_equal(marked.column(CHANGE_FIELD.name), ChangeKind.TRUNCATE.value))
                else:
                    yield after_truncates(marked, truncates)

    def _from(self, origin: int, changes: pa.Table) -> pa.Table:
        origins = pa.repeat(pa.scalar(origin, ORIGIN_FIELD.type), changes.num_rows)
        marked = changes.append_column(ORIGIN_FIELD, origins)
        return with_first_places(marked) if self._versions else marked

    def _read(self, path: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
        try:
            with damage_as_arrow_error(), self._files.open(path) as file:
                source = pq.ParquetFile(file, pre_buffer=False)
                for batch in source.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, FileNotFoundError) as error:
            raise DataLoss(
                f"{self._files.location}/{path} is gone or damaged: restore it from a backup ({error})"
            ) from error

    def _read_rows(self, path: str) -> Iterator[pa.Table]:
        """Yield the rows of a file of the table, with the columns of records."""
        for rows in self._read(path):
            for batch in rows.to_batches():
                yield pa.Table.from_batches([as_records(batch)])

    def _rows(self, path: str) -> pa.Table:
        parts = [self._whole(part) for part in self._read_rows(path)]
        return pa.concat_tables(parts).combine_chunks() if parts else self._request.schema.empty_table()

    def _whole(self, rows: pa.Table) -> pa.Table:
        """Return rows of the table with all columns; those with as many are as the batch before has left them."""
        return rows if rows.schema.equals(self._request.schema) else with_all_columns(rows, self._request.schema)

    def _apply_group(self, group: Group) -> None:
        hashes = key_hashes(group.changes.column("key_id").combine_chunks())
        outer = next(
            (bucket for bucket in self._buckets if bucket.depth < group.bucket.depth and bucket.has(group.bucket)), None
        )
        if outer is not None:
            # A part of a bucket: its rows are in the file of the whole bucket, from which each group takes its own.
            self._apply(group.bucket, self._part_of(outer, group.bucket), group.changes)
            self._removed.add(self._buckets[outer])
            return
        for bucket, rows in assign(hashes, self._buckets, group.bucket).items():
            path = self._buckets.get(bucket)
            changes = group.changes.take(pa.array(rows))
            if self._apply(bucket, self._rows(path) if path else None, changes) and path:
                self._removed.add(path)

    def _part_of(self, outer: Bucket, bucket: Bucket) -> pa.Table:
        rows = self._rows(self._buckets[outer])
        ids, _ = key_ids(rows, self._request.options)
        return rows.filter(pa.array(select(bucket, key_hashes(ids))))

    def _fill_columns(self) -> None:
        """Write the buckets without changes again, of which rows have values in the rest."""
        for bucket, path in self._buckets.items():
            if path not in self._removed and self._has_rests(path):
                self._write(bucket, self._rows(path))
                self._removed.add(path)

    def _has_rests(self, path: str) -> bool:
        with self._files.open(path) as file, damage_as_arrow_error():
            return has_rests(pq.read_metadata(file))

    def _apply(self, bucket: Bucket, rows: pa.Table | None, changes: pa.Table) -> bool:
        """Write the rows of a bucket after changes, unless there are none; return whether they have changed."""
        applied = apply(rows, changes, self._request.schema, self._request.options, self._versions)
        self._new.upserted += applied.upserted
        self._new.deleted += applied.deleted
        self._new.outdated += applied.outdated
        self._new.moved += applied.moved
        is_part = rows is not None and bucket not in self._buckets
        if applied.is_change or is_part:
            self._write(bucket, applied.rows)
        return applied.is_change

    def _write(self, bucket: Bucket, rows: pa.Table) -> None:
        """Write the rows as the file of a bucket, or of those that it is divided into."""
        if not rows.num_rows:
            return
        if rows.nbytes > self._request.bucket_bytes_max and rows.num_rows > 1 and bucket.depth < DEPTH_MAX:
            ids, _ = key_ids(rows, self._request.options)
            hashes = key_hashes(ids)
            for half in bucket.halves():
                self._write(half, rows.filter(pa.array(select(half, hashes))))
            return
        path = self._request.place(bucket.name)
        parquet = self._new_file(path)
        try:
            for batch in rows.to_batches():
                parquet.add(laid_out(batch, self._columns))
            scratch = parquet.finish({})
        except BaseException:
            parquet.abandon()
            if parquet.path:
                self._files.discard(parquet.path)
            raise
        self._publish(scratch, path, rows.num_rows)

    def _new_file(self, path: str) -> ParquetFile:
        return ParquetFile(
            partial(self._files.scratch, path),
            schema=self._columns,
            compression=self._request.compression,
            metadata=self._metadata,
            sort_by=sort_paths(self._columns, self._request.layout),
        )

    def _publish(self, scratch: Path, path: str, rows: int) -> None:
        size = scratch.stat().st_size
        if not self._files.publish(scratch, path):
            raise BrokenState(f"{self._files.location}/{path} is in the way: repeat the export")
        self._new.files.append(WrittenFile(path, size, rows))


def with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with these columns, which have the values that are in the rest and fit them."""
    whole = conform(rows, schema).combine_chunks()
    return pa.Table.from_batches([filled(batch, schema) for batch in whole.to_batches()], schema)
