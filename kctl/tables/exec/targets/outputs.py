"""The files that a task writes: one, or one per partition.

The path of a file is a function of the planned path and the partition, so a task that runs twice writes the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.errors import KctlError
from kctl.limits import Subject, bound
from kctl.tables.exec.file_task import FileTask
from kctl.tables.exec.outcome import OTHER_REASONS, REASONS_MAX, WrittenFile
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT
from kctl.tables.exec.selection.columns import CALENDAR_US
from kctl.tables.exec.selection.laid_out import laid_out, laid_out_schema, sort_paths
from kctl.tables.exec.selection.partitioning import HOUR, HOUR_US, Partitioning, Values
from kctl.tables.exec.selection.transforms import Term
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.writer import ROW_GROUP_BYTES, ParquetFile, footer

EXPORT_PARTITIONS_PER_TASK_MAX = bound(
    Subject.EXPORTS,
    "partitions in one task of an export with --partition-by",
    10_000,
    "partitions",
    on_excess="records of further partitions cannot be exported: --on-bad-record",
)
EXPORT_OPEN_FILES_PER_TASK_MAX = bound(
    Subject.EXPORTS,
    "files that a task of an export with --partition-by has open, because their records exceed its memory",
    400,
    "files",
    on_excess="the export fails and suggests a smaller --target-file-size",
)


# Divides records by partition.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 24 * HOUR_US


def by_partition(batch: pa.RecordBatch, partitioning: Partitioning) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the records of each partition, in order.  The batch is not empty."""
    if not partitioning:
        yield (), batch
        return
    if partitioning.unit_us:
        units = _units(batch, partitioning).dictionary_encode()
        found, codes = [_values(unit, partitioning) for unit in units.dictionary], units.indices.to_numpy()
    else:
        found, codes = _places(batch, partitioning.terms)
    if len(found) == 1:
        yield found[0], batch
        return
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(found)), side="right")
    for values, rows in zip(found, np.split(order, ends[:-1]), strict=True):
        yield values, batch.take(pa.array(rows))  # a copy, so that each part can be freed


def _places(batch: pa.RecordBatch, terms: Sequence[Term]) -> tuple[list[Values], NDArray[np.int64]]:
    """Return the partitions in the order in which they occur, and the number of that of each record."""
    columns = [_texts(batch, term) for term in terms]
    codes = np.zeros(batch.num_rows, np.int64)
    for texts, numbers in columns:
        codes = codes * len(texts) + numbers
        _, codes = np.unique(codes, return_inverse=True)  # small again
    _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(firsts))
    values = [tuple(texts[numbers[first]] for texts, numbers in columns) for first in np.sort(firsts).tolist()]
    return values, rank[codes]


def _texts(batch: pa.RecordBatch, term: Term) -> tuple[list[str | None], NDArray[np.int64]]:
    """Return the different values of a term, and the number of that of each record."""
    if term.is_of_record:
        source = batch.column("timestamp")
    else:
        source = pc.struct_field(batch.column("value"), list(term.source))
    if is_time := pa.types.is_timestamp(source.type):
        times = pc.fill_null(source.cast(pa.int64()), 0).to_numpy()
        hours = np.floor_divide(np.clip(times, CALENDAR_US.start, CALENDAR_US.stop - 1), HOUR_US)
        source = pa.array(hours, mask=pc.is_null(source).to_numpy(zero_copy_only=False))
    encoded = source.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if is_time:
        values = [None if hour is None else str(np.datetime64(hour, "h")) for hour in values]
    numbers: dict[str | None, int] = {}
    of_code = [numbers.setdefault(term.text_of(value), len(numbers)) for value in values]
    return list(numbers), np.array(of_code, np.int64)[encoded.indices.to_numpy()]


def _units(batch: pa.RecordBatch, partitioning: Partitioning) -> pa.Array:
    """Return the days or hours since 1970 in the time zone; times outside of the calendar count as its first or last
    ones.
    """
    times = np.clip(batch.column("timestamp").cast(pa.int64()).to_numpy(), CALENDAR_US.start, CALENDAR_US.stop - 1)
    if partitioning.time_zone != "UTC":
        times = times + utc_offsets_us(times, ZoneInfo(partitioning.time_zone))
        times = np.clip(times, CALENDAR_US.start, CALENDAR_US.stop - 1)
    return pa.array(np.floor_divide(times, partitioning.unit_us))


def utc_offsets_us(times: NDArray[np.int64], zone: ZoneInfo) -> NDArray[np.int64]:
    """Return the difference of local time to UTC at each time, which is in microseconds since 1970 and in the calendar.

    Not by Arrow, which knows no daylight-saving time after 2037: files of zones have later changes as a rule only.
    """
    hours, places = np.unique(np.floor_divide(times, HOUR_US), return_inverse=True)
    starts, ends = (
        np.array([_utc_offset_us(hour * HOUR_US, zone) for hour in (hours + later).tolist()], np.int64)
        for later in (0, 1)
    )
    offsets = starts[places]
    for row in np.flatnonzero((starts != ends)[places]).tolist():  # the offset changes within the hour
        offsets[row] = _utc_offset_us(int(times[row]), zone)
    return offsets


def _utc_offset_us(time_us: int, zone: ZoneInfo) -> int:
    # Local times must be in the calendar as well.
    within = min(max(time_us, CALENDAR_US.start + DAY_US), CALENDAR_US.stop - DAY_US)
    offset = (EPOCH + timedelta(microseconds=within)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _values(unit: pa.Scalar, partitioning: Partitioning) -> Values:
    time = np.datetime64(unit.as_py(), "h" if partitioning.by == HOUR else "D")
    return tuple(str(time).split("T"))


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
        """The columns of the records; those of the files may have other names, see FileTask.layout."""
        layout = PLAIN_LAYOUT if task.upsert else task.layout
        self._columns = laid_out_schema(schema, layout)
        self._sort_by = sort_paths(self._columns, layout)
        self._metadata = metadata
        self._open: dict[str, ParquetFile] = {}
        self._values: dict[str, Values] = {}

    def add(self, batch: pa.RecordBatch) -> list[Unplaced]:
        """Append records to the files of their partitions; return those for which there can be none."""
        if not batch.num_rows:
            return []
        unplaced = []
        for values, part in by_partition(batch, self._task.partition_by):
            path = self._task.path_of(values)
            if reason := self._refusal(path, values):
                unplaced.append(Unplaced(part.column("offset"), reason))
                continue
            self._values[path] = values
            self._file(path).add(laid_out(part, self._columns))
            self.records += part.num_rows
        while sum(parquet.gathered_bytes for parquet in self._open.values()) > GATHERED_BYTES_MAX:
            self._flush_largest()
        return unplaced

    def listed(self) -> dict[str, tuple[Values, int]]:
        """Return the partition and number of records of each file."""
        return {path: (self._values[path], parquet.records) for path, parquet in sorted(self._open.items())}

    def finish(
        self, metadata: Mapping[str, str], listed: Mapping[str, tuple[Values, int]]
    ) -> tuple[tuple[WrittenFile, ...], bool]:
        """Complete and publish the listed files, those without records too; drop the others.

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
        """Remove the files that are not published."""
        for parquet in self._open.values():
            parquet.abandon()
            if parquet.path:
                self._files.discard(parquet.path)
        self._open.clear()

    def _refusal(self, path: str, values: Values) -> str:
        """Return why there can be no partition with these values; empty if it is possible."""
        if path in self._open:
            return ""
        by = self._task.partition_by
        if not by.is_short(values):
            return f"{by.by}: the text is too long for the name of a partition"
        if len(self._open) >= EXPORT_PARTITIONS_PER_TASK_MAX:
            return f"{by.by}: more than {EXPORT_PARTITIONS_PER_TASK_MAX} partitions in one file of the plan"
        return ""

    def _flush_largest(self) -> None:
        """Write the largest row group, which opens its file."""
        parquets = self._open.values()
        largest = max(parquets, key=lambda parquet: parquet.gathered_bytes)
        if not largest.path and sum(parquet.path is not None for parquet in parquets) >= EXPORT_OPEN_FILES_PER_TASK_MAX:
            raise KctlError(
                f"the records of {self._task.path} have too many partitions ({len(parquets)}) for its size: export to "
                "another folder with a smaller --target-file-size, or another --partition-by"
            )
        largest.flush()

    def _existing(self, path: str, values: Values) -> WrittenFile:
        with self._files.open(path) as file:
            footer_of_file = footer(file)
        return WrittenFile(path, self._files.size(path) or 0, footer_of_file.records, values)

    def _file(self, path: str) -> ParquetFile:
        if path not in self._open:
            self._open[path] = ParquetFile(
                partial(self._files.scratch, path),
                schema=self._columns,
                compression=self._task.compression,
                metadata=self._metadata,
                sort_by=self._sort_by,
            )
        return self._open[path]


# The file with the records of a task that could not be decoded: as they were, with the reason.
#
# It is published before the data file, whose footer has the number of its records, so a finished data file implies
# it.


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
        """Append records with the column `reason`."""
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
        """Complete and publish the file; one that exists was written by another attempt, and is kept."""
        if self._open is None:
            return None
        scratch = self._open.finish({})
        size = scratch.stat().st_size
        self._files.publish(scratch, self._path)
        self._open = None
        return WrittenFile(self._path, size, self.records)

    def abandon(self) -> None:
        """Remove the file unless it is published."""
        if self._open is not None:
            self._open.abandon()
            if self._open.path:
                self._files.discard(self._open.path)
            self._open = None
