"""The files that a task writes: one, or one per day or hour of the records' timestamps.

The path of a file is a function of the planned path and the time, so a task that runs twice writes the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kctl.errors import KctlError
from kctl.limits import EXPORT_TIMES_PER_TASK_MAX
from kctl.spark.exec.files import Files
from kctl.spark.exec.outcome import WrittenFile
from kctl.spark.exec.partitioning import PartitionBy
from kctl.spark.exec.writer import ROW_GROUP_BYTES, ParquetFile, footer

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GATHERED_BYTES_MAX = 2 * ROW_GROUP_BYTES
"""Bytes gathered for all open files together; beyond it the largest row group is written."""


class Outputs:
    """Files under construction.  Owner: one task."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        partition_by: PartitionBy,
        schema: pa.Schema,
        compression: str,
        metadata: dict[str, str],
    ) -> None:
        self.records = 0
        self._files = files
        self._path = path
        self._partition_by = partition_by
        self._schema = schema
        self._compression = compression
        self._metadata = metadata
        self._open: dict[str, tuple[Path, ParquetFile]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends records to the files of their times.  Raises KctlError if there are too many."""
        if not batch.num_rows:
            return
        self.records += batch.num_rows
        for time, part in _by_time(batch, self._partition_by):
            self._file(time).add(part)
        if sum(parquet.gathered_bytes for _, parquet in self._open.values()) > GATHERED_BYTES_MAX:
            max((parquet for _, parquet in self._open.values()), key=lambda one: one.gathered_bytes).flush()

    def finish(self, metadata: Mapping[str, str]) -> tuple[tuple[WrittenFile, ...], bool]:
        """Completes and publishes the files; also returns whether none of them existed.

        Files that exist, which another attempt has published, are kept, and counted as they are.
        """
        written = []
        are_first = True
        for time in sorted(self._open):
            scratch, parquet = self._open[time]
            parquet.finish(dict(metadata))
            size = scratch.stat().st_size
            path = self._path_of(time)
            is_first = self._files.publish(scratch, path)
            del self._open[time]
            if is_first:
                written.append(WrittenFile(path, size, parquet.records, time))
            else:
                are_first = False
                written.append(self._existing(path, time))
        return tuple(written), are_first

    def abandon(self) -> None:
        """Removes the files that are not published."""
        for scratch, parquet in self._open.values():
            parquet.abandon()
            self._files.discard(scratch)
        self._open.clear()

    def _existing(self, path: str, time: str) -> WrittenFile:
        with self._files.open(path) as file:
            found = footer(file)
        return WrittenFile(path, self._files.size(path) or 0, found.records, time)

    def _file(self, time: str) -> ParquetFile:
        if time not in self._open:
            if len(self._open) == EXPORT_TIMES_PER_TASK_MAX:
                raise KctlError(
                    f"the records of {self._path} have timestamps of more than {EXPORT_TIMES_PER_TASK_MAX} "
                    f"{self._partition_by}s: use a smaller --target-file-size, or another --partition-by"
                )
            scratch = self._files.scratch(self._path_of(time))
            parquet = ParquetFile(scratch, schema=self._schema, compression=self._compression, metadata=self._metadata)
            self._open[time] = scratch, parquet
        return self._open[time][1]

    def _path_of(self, time: str) -> str:
        stem, dot, suffix = self._path.rpartition(".")
        return f"{stem}+{time}{dot}{suffix}" if time else self._path


def _by_time(batch: pa.RecordBatch, partition_by: PartitionBy) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of each day or hour (UTC), in order; the text of an hour is like 2026-11-01T07."""
    unit_us = partition_by.unit_us
    if not unit_us:
        yield "", batch
        return
    timestamps = batch.column("timestamp").cast(pa.int64()).to_numpy()
    units = np.floor_divide(timestamps, unit_us)
    for unit in np.unique(units):
        part = (
            batch
            if len(units) and units[0] == unit and (units == unit).all()
            else batch.filter(pa.array(units == unit))
        )
        yield _text(int(unit), partition_by), part


def _text(unit: int, partition_by: PartitionBy) -> str:
    """The time as in ISO 8601; the timestamps of tables are within the calendar."""
    time = EPOCH + timedelta(microseconds=unit * partition_by.unit_us)
    date = f"{time.year:04}-{time.month:02}-{time.day:02}"
    return f"{date}T{time.hour:02}" if partition_by is PartitionBy.HOUR else date
