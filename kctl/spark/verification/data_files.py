"""Reads the rows of data files, one row group at a time, as far as the statistics in their footers require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kctl.errors import KctlError
from kctl.spark.exec.files import Files
from kctl.spark.layout import incarnation_of
from kctl.spark.verification.ledger import Longs
from kctl.spark.verification.record_hash import TYPES, Hashes, is_comparable, record_hashes

READ_BYTES = 8 << 20
"""Approximate size of the rows that are decoded at once."""
READ_ROWS_MAX = 1 << 16
IDENTITY = ("topic", "partition", "offset")


class UnreadableFile(KctlError):
    """A data file cannot be read."""


class RowGroup(NamedTuple):
    """A row group and the range of its partitions and offsets; None if the file has no statistics of them."""

    path: str
    number: int
    rows: int
    size: int
    """Uncompressed bytes."""
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None


class Rows(NamedTuple):
    """Some rows of the requested topic."""

    partitions: Longs
    incarnations: Longs
    offsets: Longs
    hashes: Hashes


class DataFiles:
    """The data files of one topic."""

    def __init__(self, files: Files, paths: Iterable[str], topic: str, *, is_table: bool) -> None:
        """Reads all footers.  Raises UnreadableFile."""
        self.groups: list[RowGroup] = []
        self.missing: list[str] = []
        """Paths without a file."""
        self.columns: tuple[str, ...] = tuple(TYPES)
        """Columns that all files have in the form of Kafka's records."""
        self.has_headers = False
        """Whether any file has them."""
        self._files = files
        self._topic = topic
        self._is_table = is_table
        for path in paths:
            try:
                with files.open(path) as file:
                    self._add(path, pq.read_metadata(file))
            except FileNotFoundError:
                self.missing.append(path)
            except pa.ArrowException as error:
                raise UnreadableFile(f"{files.location}/{path} is no complete Parquet file: {error}") from error

    def _add(self, path: str, metadata: pq.FileMetaData) -> None:
        schema = metadata.schema.to_arrow_schema()
        types: Mapping[str, pa.DataType] = dict(zip(schema.names, schema.types, strict=True))
        if lacking := [name for name in IDENTITY if name not in types]:
            raise UnreadableFile(
                f"{self._files.location}/{path} has no column {lacking[0]}: it is no file of an export"
            )
        self.has_headers |= "headers" in types
        self.columns = tuple(name for name in self.columns if name in types and is_comparable(name, types[name]))
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            found = {}
            for index in range(group.num_columns):
                column = group.column(index)
                if column.path_in_schema in IDENTITY and column.statistics and column.statistics.has_min_max:
                    found[column.path_in_schema] = (column.statistics.min, column.statistics.max)
            topics = found.pop("topic", None)
            if topics is None or topics[0] <= self._topic <= topics[1]:
                self.groups.append(
                    RowGroup(
                        path, number, group.num_rows, group.total_byte_size, found.get("partition"), found.get("offset")
                    )
                )

    def rows(self, groups: Sequence[RowGroup], *, with_hashes: bool = True) -> Iterator[tuple[RowGroup, Rows]]:
        """The rows of these groups; without hashes, only where they are.  Raises UnreadableFile."""
        for path, of_path in groupby(groups, lambda group: group.path):
            try:
                with self._files.open(path) as file:
                    parquet = pq.ParquetFile(file, pre_buffer=False)
                    for group in of_path:
                        for batch in self._batches(parquet, group, with_hashes=with_hashes):
                            yield group, self._rows(path, batch, with_hashes=with_hashes)
            except FileNotFoundError:
                raise UnreadableFile(
                    f"{self._files.location}/{path} was removed while the files were read, as a compaction does: "
                    "repeat the command"
                ) from None
            except (pa.ArrowException, OSError) as error:
                raise UnreadableFile(f"{self._files.location}/{path} cannot be read: {error}") from error

    def first_offsets(self, incarnations: Mapping[int, int]) -> dict[int, int]:
        """The lowest offset of each of these partitions in its incarnation."""
        found: dict[int, int] = {}
        unclear = []
        may_use_statistics = not any(incarnations.values())
        for group in self.groups:
            if may_use_statistics and group.partitions and group.offsets and len(set(group.partitions)) == 1:
                partition = group.partitions[0]
                found[partition] = min(found.get(partition, group.offsets[0]), group.offsets[0])
            else:
                unclear.append(group)
        for _, rows in self.rows(unclear, with_hashes=False):
            for partition in np.unique(rows.partitions).tolist():
                is_mine = (rows.partitions == partition) & (rows.incarnations == incarnations.get(partition, -1))
                if is_mine.any():
                    lowest = int(rows.offsets[is_mine].min())
                    found[partition] = min(found.get(partition, lowest), lowest)
        return {partition: offset for partition, offset in found.items() if partition in incarnations}

    def _batches(self, parquet: pq.ParquetFile, group: RowGroup, *, with_hashes: bool) -> Iterator[pa.RecordBatch]:
        wanted = [*IDENTITY, "incarnation", *(self.columns if with_hashes else ())]
        names = [name for name in wanted if name in parquet.schema_arrow.names]
        count = READ_BYTES * group.rows // max(group.size, 1)
        yield from parquet.iter_batches(
            min(max(count, 1), READ_ROWS_MAX), row_groups=[group.number], columns=names, use_threads=False
        )

    def _rows(self, path: str, batch: pa.RecordBatch, *, with_hashes: bool) -> Rows:
        topics = batch.column("topic").cast(pa.string())
        is_mine = pc.fill_null(pc.equal(topics, self._topic), False)
        if is_mine.true_count != len(batch):
            batch = batch.filter(is_mine)
        if batch.schema.get_field_index("incarnation") >= 0:
            incarnations = _longs(batch.column("incarnation").fill_null(0))
        else:
            number = 0 if self._is_table else incarnation_of(path)
            incarnations = np.full(batch.num_rows, number, np.int64)
        return Rows(
            _longs(batch.column("partition").fill_null(-1)),
            incarnations,
            _longs(batch.column("offset").fill_null(-1)),
            record_hashes(batch, self.columns) if with_hashes else np.zeros(batch.num_rows, np.uint64),
        )


def _longs(column: pa.Array) -> Longs:
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
