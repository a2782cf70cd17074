"""The file with the records of a task that could not be decoded: as they were, with the reason.

It is published before the data file, whose footer has the number of its records, so a finished data file implies it.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from kctl.spark.exec.files import Files
from kctl.spark.exec.outcome import OTHER_REASONS, REASONS_MAX, WrittenFile
from kctl.spark.exec.writer import ParquetFile


class DeadLetters:
    """A file under construction, which exists only if there are records.  Owner: one task."""

    def __init__(self, files: Files, path: str, *, compression: str, metadata: dict[str, str]) -> None:
        self.reasons: Counter[str] = Counter()
        """Numbers of records; of at most REASONS_MAX reasons and the others together."""
        self.records = 0
        self._files = files
        self._path = path
        self._compression = compression
        self._metadata = metadata
        self._open: ParquetFile | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends records with the column `reason`."""
        if self._open is None:
            self._open = ParquetFile(
                lambda: self._files.scratch(self._path),
                schema=batch.schema,
                compression=self._compression,
                metadata=self._metadata,
            )
        self._open.add(batch)
        self.records += batch.num_rows
        for reason in batch.column("reason").to_pylist():
            is_known = reason in self.reasons or len(self.reasons) < REASONS_MAX
            self.reasons[reason if is_known else OTHER_REASONS] += 1

    def publish(self) -> WrittenFile | None:
        """Completes and publishes the file; one that exists was written by another attempt, and is kept."""
        if self._open is None:
            return None
        scratch = self._open.finish({})
        size = scratch.stat().st_size
        self._files.publish(scratch, self._path)
        self._open = None
        return WrittenFile(self._path, size, self.records)

    def abandon(self) -> None:
        """Removes the file unless it is published."""
        if self._open is not None:
            self._open.abandon()
            if self._open.path:
                self._files.discard(self._open.path)
            self._open = None
