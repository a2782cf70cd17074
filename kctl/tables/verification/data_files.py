"""Reads the rows of data files, one row group at a time, as far as the statistics in their footers require."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kctl.errors import KctlError
from kctl.tables.commits.layout import incarnation_of
from kctl.tables.exec.decoding.variant_values import json_of
from kctl.tables.exec.schema.arrow_types import VARIANT_TYPE
from kctl.tables.exec.schema.column_types import Columns, Format, columns_from_json, leaves, raw_name
from kctl.tables.exec.schema.json_text import NotJson
from kctl.tables.exec.selection.columns import form_of, formed
from kctl.tables.exec.selection.laid_out import as_records, record_schema, source_of
from kctl.tables.exec.selection.row_selection import HEADER_LIST
from kctl.tables.exec.targets.damage import damage_as_arrow_error
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.task import COLUMNS_KEY
from kctl.tables.verification.ledger import Longs
from kctl.tables.verification.record_hash import TYPES, Hashes, is_comparable, record_hashes

READ_BYTES = 8 << 20
"""Approximate size of the rows that are decoded at once."""
READ_ROWS_MAX = 1 << 16
SORTED_BYTES_MAX = 1 << 30
"""Uncompressed size of row groups whose rows are sorted in memory."""
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


class Extent(NamedTuple):
    """The first and last offset of a partition in a row group."""

    first: int
    last: int
    group: RowGroup


class Rows(NamedTuple):
    """Some rows of the requested topic."""

    partitions: Longs
    incarnations: Longs
    offsets: Longs
    hashes: Hashes


class DataFiles:
    """The data files of one topic."""

    def __init__(
        self,
        files: Files,
        paths: Iterable[str],
        topic: str,
        *,
        is_table: bool,
        more: tuple[str, ...] = (),
        compares_decoded: bool = False,
    ) -> None:
        """Read all footers.  Raises UnreadableFile.

        `more` are columns that `records` has too, if a file has them.  `compares_decoded`: `columns` has decoded keys
        and values.
        """
        self.groups: list[RowGroup] = []
        self.missing: list[str] = []
        """Paths without a file."""
        self.columns: tuple[str, ...] = tuple(TYPES)
        """Columns that all files have in the form of Kafka's records, as texts, or as variants."""
        self.variants: set[str] = set()
        """Those of them that are variants; in files of dead letters they are as in a record."""
        self.decoded_names: set[str] = set()
        """Those of them that some files have as other columns, or only in the rest; in dead letters as in a record."""
        self.decoded: Columns | None = None
        """How the files were decoded: by the one with most columns, which are only added; None if that is unknown."""
        self._has_raw: set[str] = set()
        self._lacks_raw: set[str] = set()
        self.has_headers = False
        """Whether any file has them."""
        self.header_form = HEADER_LIST
        """Their form in data files; dead letters have the list."""
        self._files = files
        self._topic = topic
        self.is_table = is_table
        self._more = more
        self._compares_decoded = compares_decoded
        for path in paths:
            try:
                with damage_as_arrow_error(), files.open(path) as file:
                    self._add(path, pq.read_metadata(file))
            except FileNotFoundError:
                self.missing.append(path)
            except pa.ArrowException as error:
                raise UnreadableFile(f"{files.location}/{path} is not a complete Parquet file: {error}") from error

    def _add(self, path: str, metadata: pq.FileMetaData) -> None:
        schema = record_schema(metadata.schema.to_arrow_schema())
        types: Mapping[str, pa.DataType] = dict(zip(schema.names, schema.types, strict=True))
        if lacking := [name for name in IDENTITY if name not in types]:
            raise UnreadableFile(
                f"{self._files.location}/{path} has no column {lacking[0]}: it is not a file of an export"
            )
        if "headers" in types:
            self.has_headers = True
            form = form_of(types["headers"])
            self.header_form = self.header_form if form.is_list else form
        decoded = columns_from_json(json.loads((metadata.metadata or {}).get(COLUMNS_KEY.encode(), b"{}")))
        if self.decoded is None or _width(decoded) >= _width(self.decoded):
            self.decoded = decoded
        texts = {name for name in ("key", "value") if getattr(decoded, name).format is Format.STRING}
        lacking = [
            name
            for name in self.columns
            if name not in types or not is_comparable(name, types[name], is_text=name in texts)
        ]
        for name in ("key", "value"):
            if raw_name(name) in types:
                self._has_raw.add(name)
            elif name not in types or not pa.types.is_binary(types[name]):
                self._lacks_raw.add(name)
        if self._compares_decoded:
            self.decoded_names |= {"key", "value"}.intersection(lacking)
        self.columns = tuple(name for name in self.columns if name not in lacking or name in self.decoded_names)
        self.variants |= {name for name in self.columns if types[name] == VARIANT_TYPE}
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

    @property
    def raws(self) -> list[str]:
        """Keys and values of which all files have the bytes, some of them beside decoded ones; see --keep-raw."""
        return sorted(self._has_raw - self._lacks_raw)

    def leave_out_decoded(self) -> None:
        """Compare no decoded keys and values, because it is unknown how they were decoded."""
        self.columns = tuple(name for name in self.columns if name not in self.decoded_names)
        self.decoded_names = set()

    def rows(self, groups: Sequence[RowGroup], *, with_hashes: bool = True) -> Iterator[tuple[RowGroup, Rows]]:
        """Yield the rows of these groups; without hashes, only where they are.  Raises UnreadableFile."""
        raws = [raw_name(name) for name in self.raws]
        for path, of_path in groupby(groups, lambda group: group.path):
            with self._opened(path) as parquet:
                for group in of_path:
                    for batch in self._batches(parquet, group, (*self.columns, *raws) if with_hashes else ()):
                        yield group, self._rows(path, batch, with_hashes=with_hashes)

    def offsets_in(self, paths: Collection[str], incarnations: Mapping[int, int]) -> dict[int, Longs]:
        """Return the offsets of the rows in these files, in ascending order, by partition.

        Only rows of the given incarnation of each partition count.  Raises UnreadableFile.
        """
        found: dict[int, list[Longs]] = {}
        groups = [group for group in self.groups if group.path in paths]
        for _, rows in self.rows(groups, with_hashes=False):
            for partition in np.unique(rows.partitions).tolist():
                is_mine = (rows.partitions == partition) & (rows.incarnations == incarnations.get(partition, -1))
                found.setdefault(partition, []).append(rows.offsets[is_mine])
        return {partition: np.unique(np.concatenate(offsets)) for partition, offsets in found.items()}

    def extents(self, incarnations: Mapping[int, int]) -> dict[int, list[Extent]]:
        """Return where the rows of these partitions are, by partition and in ascending order of offsets.

        Only rows of the given incarnation of each partition count.
        """
        found: dict[int, dict[RowGroup, tuple[int, int]]] = {}
        unclear = []
        may_use_statistics = not any(incarnations.values())
        for group in self.groups:
            if may_use_statistics and group.partitions and group.offsets and len(set(group.partitions)) == 1:
                found.setdefault(group.partitions[0], {})[group] = group.offsets
            else:
                unclear.append(group)
        for group, rows in self.rows(unclear, with_hashes=False):
            for partition in np.unique(rows.partitions).tolist():
                is_mine = (rows.partitions == partition) & (rows.incarnations == incarnations.get(partition, -1))
                if is_mine.any():
                    offsets = rows.offsets[is_mine]
                    low, high = int(offsets.min()), int(offsets.max())
                    first, last = found.setdefault(partition, {}).get(group, (low, high))
                    found[partition][group] = (min(first, low), max(last, high))
        return {
            partition: sorted(Extent(first, last, group) for group, (first, last) in groups.items())
            for partition, groups in found.items()
            if partition in incarnations
        }

    def records(self, group: RowGroup, partition: int, incarnation: int, start: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition from an offset on, with the columns of records: as they were, if the files
        have that, else variants as JSON and texts as UTF-8.

        Raises UnreadableFile.
        """
        decoded = [name for name in self.columns if name not in self.raws]
        names = dict.fromkeys((*decoded, *map(raw_name, self.raws), *self._more))
        with self._opened(group.path) as parquet:
            for batch in self._batches(parquet, group, names):
                rows = self._rows(group.path, batch, with_hashes=False)
                mask = (rows.partitions == partition) & (rows.incarnations == incarnation) & (rows.offsets >= start)
                mine = batch.filter(pc.equal(batch.column("topic").cast(pa.string()), self._topic))
                yield self._as_in_records(group.path, mine.filter(pa.array(mask)))

    def _as_in_records(self, path: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = {raw_name(name): name for name in self.raws}
        batch = batch.rename_columns([names.get(name, name) for name in batch.schema.names])
        for name in {"key", "value"} & set(batch.schema.names):
            column = batch.column(name)
            if column.type == VARIANT_TYPE:
                try:
                    column = json_of(column)
                except ValueError as error:
                    raise UnreadableFile(f"{self._files.location}/{path}: {name}: {error}") from error
            batch = batch.set_column(batch.schema.get_field_index(name), name, column.cast(pa.binary()))
        return batch

    def ordered_records(
        self, groups: Sequence[RowGroup], partition: int, incarnation: int, start: int
    ) -> Iterator[pa.RecordBatch]:
        """As `records`, of row groups of one file, in the order of offsets.

        Rows in another order, which deltalake leaves when it merges files, are sorted in memory.  Raises
        UnreadableFile if that would be too many.
        """
        if len(groups) == 1 and self._is_ordered(groups[0], partition, incarnation):
            yield from self.records(groups[0], partition, incarnation, start)
            return
        if sum(group.size for group in groups) > SORTED_BYTES_MAX:
            raise UnreadableFile(
                f"{self._files.location}/{groups[0].path}: the rows of partition {partition} are not in the order of "
                "offsets, and too many to be sorted in memory"
            )
        batches = [batch for group in groups for batch in self.records(group, partition, incarnation, start)]
        yield from pa.Table.from_batches(batches).sort_by("offset").to_batches(max_chunksize=READ_ROWS_MAX)

    def _is_ordered(self, group: RowGroup, partition: int, incarnation: int) -> bool:
        last = -1
        for _, rows in self.rows([group], with_hashes=False):
            offsets = rows.offsets[(rows.partitions == partition) & (rows.incarnations == incarnation)]
            if offsets.size and (offsets[0] <= last or (np.diff(offsets) <= 0).any()):
                return False
            last = int(offsets[-1]) if offsets.size else last
        return True

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        try:
            with damage_as_arrow_error(), self._files.open(path) as file:
                yield pq.ParquetFile(file, pre_buffer=False)
        except FileNotFoundError:
            raise UnreadableFile(
                f"{self._files.location}/{path} was removed while the files were read, as a compaction does: "
                "repeat the command"
            ) from None
        except pa.ArrowException as error:
            raise UnreadableFile(f"{self._files.location}/{path} cannot be read: {error}") from error

    def _batches(self, parquet: pq.ParquetFile, group: RowGroup, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        wanted = [*IDENTITY, "incarnation", *columns, *(f"{name}_rest" for name in self.decoded_names)]
        held = parquet.schema_arrow
        names = [field.name for field in held if source_of(field)[0] in wanted]
        count = READ_BYTES * group.rows // max(group.size, 1)
        for batch in parquet.iter_batches(
            min(max(count, 1), READ_ROWS_MAX), row_groups=[group.number], columns=names, use_threads=False
        ):
            yield as_records(batch, held)

    def _rows(self, path: str, batch: pa.RecordBatch, *, with_hashes: bool) -> Rows:
        topics = batch.column("topic").cast(pa.string())
        is_mine = pc.fill_null(pc.equal(topics, self._topic), False)
        if is_mine.true_count != len(batch):
            batch = batch.filter(is_mine)
        if batch.schema.get_field_index("incarnation") >= 0:
            incarnations = _longs(batch.column("incarnation").fill_null(0))
        else:
            number = 0 if self.is_table else incarnation_of(path)
            incarnations = np.full(batch.num_rows, number, np.int64)
        return Rows(
            _longs(batch.column("partition").fill_null(-1)),
            incarnations,
            _longs(batch.column("offset").fill_null(-1)),
            self._hashes(path, batch) if with_hashes else np.zeros(batch.num_rows, np.uint64),
        )

    def _hashes(self, path: str, batch: pa.RecordBatch) -> Hashes:
        try:
            return record_hashes(formed(batch, self.header_form), self.columns, self.decoded_names, self.raws)
        except NotJson as error:
            raise UnreadableFile(f"{self._files.location}/{path}: a rest cannot be read: {error}") from error


def _width(columns: Columns) -> tuple[int, int]:
    """Return the numbers of columns and of schemas."""
    both = (columns.key, columns.value)
    return sum(len(leaves(column.type, "")) for column in both), sum(len(column.schemas) for column in both)


def _longs(column: pa.Array) -> Longs:
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
