"""`compact_export`: compacts the export in a target.  Imports the libraries of the kind when it is called."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.environment import Clock
from kctl.spark.commit_log import CommitLog
from kctl.spark.compaction.bins import CompactedTable
from kctl.spark.exec.files import Files
from kctl.spark.exec.target import require_arrow
from kctl.spark.existing import ExistingExport
from kctl.spark.plan import Compression
from kctl.spark.tables.kinds import TableKind


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
        case TableKind.ICEBERG | TableKind.DELTA:
            from kctl.spark.compaction.table_files import compact_table  # noqa: PLC0415 - imports pyarrow

            found = [
                compact_table(
                    files,
                    table,
                    directory,
                    target_bytes=request.target_bytes,
                    compression=request.compression,
                    is_dry_run=request.is_dry_run,
                )
                for directory, table in existing.tables()
            ]
            return [one for one in found if one is not None]
