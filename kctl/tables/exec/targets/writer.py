"""Writes a Parquet file in row groups, each compressed and written when it is large enough."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kctl.errors import KctlError
from kctl.tables.exec.schema.arrow_types import VARIANT_TYPE, leaf_paths
from kctl.tables.exec.selection.column_layout import DECODED
from kctl.tables.exec.selection.laid_out import source_of
from kctl.tables.exec.targets.damage import damage_as_arrow_error
from kctl.tables.exec.targets.sorted_rows import Runs, SortPaths, in_order
from kctl.tables.exec.targets.variant_footer import UnknownFooter, annotated

ROW_GROUP_BYTES = 64 << 20
"""Uncompressed size at which a row group is written; the memory of a task is a small multiple of it."""

LEVELS = {"zstd": 1}
"""Level 3 takes 14 to 32 % more processor time for files 4 % smaller to 1 % larger (benchmarks.export_compression)."""
_REPEATING = ["key", "key_raw", "topic", "partition", "timestampType"]
_ASCENDING = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}


class ParquetFile:
    """A file under construction.  Use as a context manager; the file is complete after `finish`."""

    def __init__(
        self,
        open_path: Callable[[], Path],
        *,
        schema: pa.Schema,
        compression: str,
        metadata: dict[str, str],
        level: int | None = None,
        sort_by: SortPaths = (),
    ) -> None:
        """`open_path` returns the path when the first row group is written; `metadata` goes into the file's footer.

        `level` is that of the codec, by default the one in LEVELS.  `sort_by` are the columns by which rows are sorted.
        """
        self.path: Path | None = None
        """None until the file is opened."""
        self.records = 0
        self._batches: list[pa.RecordBatch] = []
        self.gathered_bytes = 0
        """Size of the row group that is not written yet."""
        self._schema = schema
        self._open_path = open_path
        self._compression = compression
        self._level = LEVELS.get(compression) if level is None else level
        self._metadata = metadata
        self._writer: pq.ParquetWriter | None = None
        self._sort_by = sort_by
        self._runs = Runs(sort_by) if sort_by else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Append records; their buffers stay referenced until their row group is written."""
        if not batch.num_rows:
            return
        self.records += batch.num_rows
        self._batches.append(batch)
        self.gathered_bytes += batch.get_total_buffer_size()
        if self.gathered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def finish(self, metadata: dict[str, str]) -> Path:
        """Write the last row group and the footer; `metadata` is added to that of `__init__`.  Return the path."""
        if self._runs is not None:
            self._write_sorted(self._runs)
        if self._batches:
            self._write_group()
        path, writer = self._opened()
        writer.add_key_value_metadata(metadata)
        writer.close()
        if variants := [field.name for field in self._schema if field.type == VARIANT_TYPE]:
            _annotate(path, variants)
        return path

    def abandon(self) -> None:
        """Close an incomplete file."""
        self._batches.clear()
        if self._runs is not None:
            self._runs.close()
        if self._writer:
            self._writer.close()

    def flush(self) -> None:
        """Write a row group of the records added since the last one, or set them aside until all are sorted."""
        if self._runs is None:
            self._write_group()
            return
        rows = pa.Table.from_batches(self._batches, self._schema)
        path, _ = self._opened()
        self._runs.add(rows, path.parent)
        self._batches.clear()
        self.gathered_bytes = 0

    def _write_sorted(self, runs: Runs) -> None:
        """Write the row groups of a sorted file but the last one."""
        if runs.is_empty:
            rows = pa.Table.from_batches(self._batches, self._schema)
            self._batches = in_order(rows, self._sort_by).combine_chunks().to_batches()
            return
        if self._batches:
            self.flush()
        for part in runs.merged():
            self._batches += part.to_batches()
            self.gathered_bytes += part.nbytes
            if self.gathered_bytes >= ROW_GROUP_BYTES:
                self._write_group()
        runs.close()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._opened()[1].write_table(table, row_group_size=table.num_rows)
        self._batches.clear()
        self.gathered_bytes = 0

    def _opened(self) -> tuple[Path, pq.ParquetWriter]:
        if self.path is None or self._writer is None:
            self.path = self._open_path()
            self._writer = pq.ParquetWriter(
                self.path,
                self._schema.with_metadata(self._metadata),
                compression=self._compression,
                compression_level=self._level,
                use_dictionary=[*_REPEATING, *_typed_leaves(self._schema)],
                column_encoding=_ASCENDING,
                write_page_index=True,
            )
        return self.path, self._writer


def _typed_leaves(schema: pa.Schema) -> list[str]:
    """Return the columns below decoded keys and values, which get dictionaries while these are small.

    The values of variants get none, as undecoded values.
    """
    typed = [field for field in schema if source_of(field)[0] in DECODED]
    nested = [
        path for field in typed if source_of(field)[1:] or pa.types.is_nested(field.type) for path in leaf_paths(field)
    ]
    variants = {f"{field.name}.value" for field in typed if field.type == VARIANT_TYPE}
    return [path for path in nested if path not in variants]


_TAIL_BYTES = 8
"""The size of the footer, and PAR1."""


def _annotate(path: Path, variants: list[str]) -> None:
    """Give columns the logical type VARIANT, which pyarrow cannot write.  Raises KctlError."""
    with path.open("r+b") as file:
        end = file.seek(-_TAIL_BYTES, os.SEEK_END)
        tail = file.read(_TAIL_BYTES)
        start = file.seek(end - int.from_bytes(tail[:4], "little"))
        try:
            changed = annotated(file.read(end - start), variants)
        except UnknownFooter as error:
            raise KctlError(f"the files of pyarrow {pa.__version__} cannot get the type VARIANT: {error}") from error
        file.seek(start)
        file.write(changed + len(changed).to_bytes(4, "little") + tail[4:])


class Footer(NamedTuple):
    """The footer of a Parquet file."""

    records: int
    metadata: dict[str, str]
    columns: list[str]


def footer(file: IO[bytes]) -> Footer:
    """Read the footer of a file.  Raises pyarrow.ArrowException for files that are not Parquet."""
    with damage_as_arrow_error():
        found = pq.read_metadata(file)
        entries = found.metadata or {}
        metadata = {key.decode(): value.decode(errors="replace") for key, value in entries.items()}
        return Footer(found.num_rows, metadata, found.schema.to_arrow_schema().names)
