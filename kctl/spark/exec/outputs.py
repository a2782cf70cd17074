"""The files that a task writes: one, or one per partition.

The path of a file is a function of the planned path and the partition, so a task that runs twice writes the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from kctl.errors import KctlError
from kctl.limits import EXPORT_OPEN_FILES_PER_TASK_MAX, EXPORT_PARTITIONS_PER_TASK_MAX
from kctl.spark.exec.file_task import FileTask
from kctl.spark.exec.files import Files
from kctl.spark.exec.outcome import WrittenFile
from kctl.spark.exec.partitioning import Values
from kctl.spark.exec.partitions import by_partition
from kctl.spark.exec.writer import ROW_GROUP_BYTES, ParquetFile, footer

GATHERED_BYTES_MAX = 2 * ROW_GROUP_BYTES
"""Bytes gathered for all open files together; beyond it the largest row group is written."""


class Unplaced(NamedTuple):
    """Records for which there can be no partition, and why."""

    offsets: pa.Array
    reason: str


class Outputs:
    """Files under construction.  Owner: one task."""

    def __init__(self, files: Files, task: FileTask, *, schema: pa.Schema, metadata: dict[str, str]) -> None:
        self.records = 0
        self._files = files
        self._task = task
        self.schema = schema
        """The columns of the files."""
        self._metadata = metadata
        self._open: dict[str, ParquetFile] = {}
        self._values: dict[str, Values] = {}

    def add(self, batch: pa.RecordBatch) -> list[Unplaced]:
        """Appends records to the files of their partitions; returns those for which there can be none."""
        if not batch.num_rows:
            return []
        unplaced = []
        for values, part in by_partition(batch, self._task.partition_by):
            path = self._task.path_of(values)
            if reason := self._refusal(path, values):
                unplaced.append(Unplaced(part.column("offset"), reason))
                continue
            self._values[path] = values
            self._file(path).add(part)
            self.records += part.num_rows
        while sum(parquet.gathered_bytes for parquet in self._open.values()) > GATHERED_BYTES_MAX:
            self._flush_largest()
        return unplaced

    def listed(self) -> dict[str, tuple[Values, int]]:
        """Partition and number of records of each file."""
        return {path: (self._values[path], parquet.records) for path, parquet in sorted(self._open.items())}

    def finish(
        self, metadata: Mapping[str, str], listed: Mapping[str, tuple[Values, int]]
    ) -> tuple[tuple[WrittenFile, ...], bool]:
        """Completes and publishes the listed files, those without records too; drops the others.

        Files that exist, which another attempt has published, are kept, and counted as they are.  Also returns
        whether none of them existed.
        """
        written = []
        are_first = True
        for path, (values, _) in listed.items():
            parquet = self._file(path)
            scratch = parquet.finish(dict(metadata))
            size = scratch.stat().st_size
            is_first = self._files.publish(scratch, path)
            del self._open[path]
            if is_first:
                written.append(WrittenFile(path, size, parquet.records, values))
            else:
                are_first = False
                written.append(self._existing(path, values))
        self.abandon()
        return tuple(written), are_first

    def abandon(self) -> None:
        """Removes the files that are not published."""
        for parquet in self._open.values():
            parquet.abandon()
            if parquet.path:
                self._files.discard(parquet.path)
        self._open.clear()

    def _refusal(self, path: str, values: Values) -> str:
        """Why there can be no partition with these values; empty if it is possible."""
        if path in self._open:
            return ""
        by = self._task.partition_by
        if not by.is_short(values):
            return f"{by.by}: the text is too long for the name of a partition"
        if len(self._open) >= EXPORT_PARTITIONS_PER_TASK_MAX:
            return f"{by.by}: more than {EXPORT_PARTITIONS_PER_TASK_MAX} partitions in one file of the plan"
        return ""

    def _flush_largest(self) -> None:
        """Writes the largest row group, which opens its file."""
        parquets = self._open.values()
        largest = max(parquets, key=lambda one: one.gathered_bytes)
        if not largest.path and sum(one.path is not None for one in parquets) >= EXPORT_OPEN_FILES_PER_TASK_MAX:
            raise KctlError(
                f"the records of {self._task.path} have too many partitions ({len(parquets)}) for its size: export to "
                "another folder with a smaller --target-file-size, or another --partition-by"
            )
        largest.flush()

    def _existing(self, path: str, values: Values) -> WrittenFile:
        with self._files.open(path) as file:
            found = footer(file)
        return WrittenFile(path, self._files.size(path) or 0, found.records, values)

    def _file(self, path: str) -> ParquetFile:
        if path not in self._open:
            self._open[path] = ParquetFile(
                partial(self._files.scratch, path),
                schema=self.schema,
                compression=self._task.compression,
                metadata=self._metadata,
            )
        return self._open[path]
