"""Writes a merged file, one row group at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kctl.tables.commits.adoption import RANGE
from kctl.tables.compaction.backfill import FileColumns, filled, has_rests
from kctl.tables.compaction.bins import SourceFile
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.laid_out import as_records, laid_out, sort_paths
from kctl.tables.exec.targets.damage import damage_as_arrow_error
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.writer import ParquetFile, footer
from kctl.tables.exec.task import COLUMNS_KEY, LOST_KEY, PARTS_KEY, RANGE_KEY

BATCH_ROWS = 1 << 16
NO_COLUMNS = FileColumns(pa.schema([]), "", pa.schema([]))


class Sources(NamedTuple):
    """The files of a table, or of one topic of a folder."""

    files: list[SourceFile]
    columns: FileColumns
    """Those of the file with most of them."""


def sources_of(files: Files, paths: Iterable[str], group_of: Callable[[str], Hashable]) -> Sources:
    """Return the files with their sizes and groups: of `group_of` and by the columns that they have or get.

    Raises DataLoss for a file that does not exist or is damaged.
    """
    found: list[tuple[str, int, FileColumns, bool]] = []
    for path in paths:
        size = files.size(path)
        if size is None:
            raise DataLoss(f"{files.location}/{path}, a file of the export, does not exist: restore it from a backup")
        with _opened(files, path) as file:
            metadata = pq.read_metadata(file)
            found.append((path, size, FileColumns.of(metadata), has_rests(metadata)))
    widest = max((columns for _, _, columns, _ in found), key=lambda columns: columns.width, default=NO_COLUMNS)
    sources = []
    for path, size, columns, has_rest in found:
        is_narrower = widest.extends(columns)
        kept = widest if is_narrower else columns
        group = (group_of(path), kept.decoded, str(kept.schema))
        sources.append(SourceFile(path, size, group, lacks_columns=is_narrower and has_rest))
    return Sources(sources, widest)


def merge(
    files: Files,
    paths: Sequence[str],
    widest: FileColumns,
    open_path: Callable[[], Path],
    compression: str,
    layout: ColumnLayout = PLAIN_LAYOUT,
) -> tuple[Path, int]:
    """Write the rows of the files, in their order or that of --sort-by, to a scratch file; return it and the number of
    rows.

    Rows get the columns that their file lacks, see kctl.tables.compaction.backfill.  Raises DataLoss for a damaged
    file.
    """
    with _opened(files, paths[0]) as file:
        columns = FileColumns.of(pq.read_metadata(file))
    columns = widest if widest.extends(columns) else columns
    schema = columns.files
    merged = ParquetFile(
        open_path, schema=schema, compression=compression, metadata={}, sort_by=sort_paths(schema, layout)
    )
    try:
        metadata = _Metadata()
        for path in paths:
            with _opened(files, path) as file:
                metadata.add(footer(file).metadata)
                source = pq.ParquetFile(file, pre_buffer=False)
                for batch in source.iter_batches(BATCH_ROWS, use_threads=False):
                    is_narrower = batch.schema.names != schema.names or batch.schema.types != schema.types
                    whole = laid_out(filled(as_records(batch), columns.schema), schema) if is_narrower else batch
                    merged.add(pa.RecordBatch.from_arrays(whole.columns, schema=schema))
        return merged.finish(metadata.entries(columns.decoded)), merged.records
    except BaseException:
        merged.abandon()
        if merged.path:
            files.discard(merged.path)
        raise


@contextlib.contextmanager
def _opened(files: Files, path: str) -> Iterator[IO[bytes]]:
    try:
        with damage_as_arrow_error(), files.open(path) as file:
            yield file
    except pa.ArrowException as error:
        raise DataLoss(f"{files.location}/{path} is damaged: restore it from a backup ({error})") from error


class _Metadata:
    """The entries of the footer, as a task would write them for all ranges together."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int, int, int, str], list[int]] = {}
        """[records, lost, bad, filtered] by topic, partition, start, end and topic id."""
        self._is_complete = True

    def add(self, entries: dict[str, str]) -> None:
        """Add those of a file."""
        matches = [RANGE.fullmatch(text) for text in entries.get(RANGE_KEY, "").split("; ")]
        parts = json.loads(entries.get(PARTS_KEY, "[]"))
        self._is_complete = self._is_complete and None not in matches and len(parts) == len(matches)
        for match, part in zip(matches, parts, strict=False):
            if match:
                key = (match["topic"], int(match["partition"]), int(match["start"]), int(match["end"]), match["id"])
                held = self._parts.setdefault(key, [0, 0, 0, 0])
                self._parts[key] = [sum(pair) for pair in zip(held, [*part, 0, 0][:4], strict=True)]

    def entries(self, decoded: str) -> dict[str, str]:
        """With neighbouring ranges united; `decoded` is how keys and values were decoded."""
        found = {COLUMNS_KEY: decoded} if decoded else {}
        if not self._is_complete:
            return found
        united: list[tuple[tuple[str, int, int, int, str], list[int]]] = []
        for key, part in sorted(self._parts.items()):
            if united:
                (topic, partition, start, end, id_), held = united[-1]
                if (topic, partition, end, id_) == (*key[:3], key[4]):
                    united[-1] = (
                        (topic, partition, start, key[3], id_),
                        [sum(pair) for pair in zip(held, part, strict=True)],
                    )
                    continue
            united.append((key, part))
        return {
            **found,
            RANGE_KEY: "; ".join(f"{key[0]}-{key[1]} [{key[2]}, {key[3]}) {key[4]}" for key, _ in united),
            LOST_KEY: str(sum(part[1] for _, part in united)),
            PARTS_KEY: json.dumps([part for _, part in united]),
        }
