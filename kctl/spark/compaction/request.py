"""`compact_export`: compacts the export in a target.  Imports the libraries of the kind when it is called."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.environment import Clock
from kctl.spark.commit_log import CommitLog
from kctl.spark.compaction.bins import CompactedTable, SourceFile, bins_of, summary
from kctl.spark.exec.files import Files
from kctl.spark.exec.target import require_arrow
from kctl.spark.existing import ExistingExport
from kctl.spark.plan import Compression
from kctl.spark.tables.kinds import TableKind
from kctl.spark.tables.table import TableFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """Options of a compaction."""

    target_bytes: int
    compression: Compression = Compression.ZSTD
    catalog: str | None = None
    namespace: str = ""
    is_dry_run: bool = False


def compact_export(request: CompactRequest, files: Files, clock: Clock) -> list[CompactedTable]:
    """Compacts all topics or tables of a target, one after the other.

    Raises UsageError, PackageMissing, TableFailed, Locked, LostRace, NotCompactable, DataLoss and
    UnknownFiles.
    """
    require_arrow()
    existing = ExistingExport(files, catalog=request.catalog, namespace=request.namespace)
    match existing.options.kind:
        case TableKind.PARQUET:
            from kctl.spark.compaction.folder import compact_folder  # noqa: PLC0415 - imports pyarrow

            return compact_folder(
                files,
                CommitLog(files, is_shared=existing.options.is_shared),
                target_bytes=request.target_bytes,
                compression=request.compression,
                clock=clock,
                is_dry_run=request.is_dry_run,
            )
        case TableKind.ICEBERG:
            found = [_iceberg(request, files, directory, table) for directory, table in existing.tables()]
        case TableKind.DELTA:
            found = [_delta(request, directory, table) for directory, table in existing.tables()]
    return [one for one in found if one is not None]


def _iceberg(request: CompactRequest, files: Files, directory: str, table: object) -> CompactedTable | None:
    from kctl.spark.compaction.iceberg_files import compact_iceberg  # noqa: PLC0415 - imports pyiceberg
    from kctl.spark.tables.iceberg import IcebergTable  # noqa: PLC0415 - same

    assert isinstance(table, IcebergTable)
    return compact_iceberg(
        files,
        table,
        directory,
        target_bytes=request.target_bytes,
        compression=request.compression,
        is_dry_run=request.is_dry_run,
    )


def _delta(request: CompactRequest, directory: str, table: object) -> CompactedTable | None:
    from kctl.spark.tables.delta import DeltaLakeTable  # noqa: PLC0415 - imports deltalake

    assert isinstance(table, DeltaLakeTable)
    if table.state() is None:
        return None
    name = directory or "."
    if table.has_row_deletes():
        raise TableFailed(f"table {name} has deletion vectors: compact it with an engine that applies them")
    before = table.sizes()
    if request.is_dry_run:
        sources = [SourceFile(path, size, path.rpartition("/")[0]) for path, size in sorted(before.items())]
        return summary(name, len(before), bins_of(sources, request.target_bytes), None)
    table.compact(request.target_bytes, request.compression)
    table.state()
    after = table.sizes()
    removed, added = before.keys() - after.keys(), after.keys() - before.keys()
    return CompactedTable(
        name,
        len(before),
        len(after),
        sum(before[path] for path in removed),
        sum(after[path] for path in added),
        "compacted" if removed else "nothing to do",
    )
