"""Writes a Parquet file in row groups, each compressed and written when it is large enough."""

from __future__ import annotations

from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kctl.spark.exec.columns import schema

ROW_GROUP_BYTES = 64 << 20
"""Uncompressed size at which a row group is written; the memory of a task is a small multiple of it."""

# Level 1, pyarrow's default for zstd, made files a quarter larger than Spark's own.
_LEVELS = {"zstd": 3}
_REPEATING = ["key", "topic", "partition", "timestampType"]
_ASCENDING = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}


class ParquetFile:
    """A file under construction.  Use as a context manager; the file is complete after `finish`."""

    def __init__(self, path: Path, *, include_headers: bool, compression: str, metadata: dict[str, str]) -> None:
        """`metadata` goes into the file's footer."""
        self.records = 0
        self._batches: list[pa.RecordBatch] = []
        self._gathered = 0
        self._schema = schema(include_headers=include_headers)
        self._writer = pq.ParquetWriter(
            path,
            self._schema.with_metadata(metadata),
            compression=compression,
            compression_level=_LEVELS.get(compression),
            use_dictionary=_REPEATING,
            column_encoding=_ASCENDING,
            write_page_index=True,
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends records; their buffers stay referenced until their row group is written."""
        if not batch.num_rows:
            return
        self.records += batch.num_rows
        self._batches.append(batch)
        self._gathered += batch.get_total_buffer_size()
        if self._gathered >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self, metadata: dict[str, str]) -> None:
        """Writes the last row group and the footer; `metadata` is added to that of `__init__`."""
        if self._batches:
            self._write_row_group()
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()

    def abandon(self) -> None:
        """Closes an incomplete file."""
        self._batches.clear()
        self._writer.close()

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._batches.clear()
        self._gathered = 0


class Footer(NamedTuple):
    """The footer of a Parquet file."""

    records: int
    metadata: dict[str, str]
    columns: list[str]


def footer(file: IO[bytes]) -> Footer:
    """Reads the footer of a file.  Raises pyarrow.ArrowException for files that are not Parquet."""
    found = pq.read_metadata(file)
    entries = found.metadata or {}
    metadata = {key.decode(): value.decode(errors="replace") for key, value in entries.items()}
    return Footer(found.num_rows, metadata, found.schema.to_arrow_schema().names)
