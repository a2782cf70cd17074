"""Compacts an Iceberg or Delta table: merged files replace others in one commit, a snapshot or a version.

Replaced files stay until the snapshots with them have expired, or the table is vacuumed, so that readers of earlier
states are not disturbed.  If an export commits at the same time, the replacement is tried again on top of it, unless
another compaction has replaced the same files.  An interrupted compaction has changed nothing; its merged files belong
to no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from kctl.system.environment import Clock
from kctl.tables.commits.commit_log import CommitLog
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.commits.layout import DATA_SUFFIX
from kctl.tables.compaction.bins import CompactedTable, NotCompactable, bins_of, summary
from kctl.tables.compaction.merging import merge, sources_of
from kctl.tables.exec.outcome import WrittenFile
from kctl.tables.exec.selection.column_layout import ColumnLayout
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.target import require_arrow
from kctl.tables.formats.kinds import TableKind, state_options
from kctl.tables.formats.table import Conflict, Replacement, Table, TableFailed
from kctl.tables.formats.table_log import COMMIT_ATTEMPTS
from kctl.tables.plans.plan import Compression
from kctl.tables.upserts.changed_keys import CLOSED, is_closed_name

MERGED = "data/compacted"


def compact_table(
    files: Files,
    table: Table,
    directory: str,
    *,
    target_bytes: int,
    compression: str,
    is_dry_run: bool,
    layout: ColumnLayout,
    has_state: bool = False,
) -> CompactedTable | None:
    """Compact the table in a directory of the target; None if there is none.  Raises TableFailed.

    `has_state`: it has the current state by key, of which only files with versions that have ended are merged.
    """
    if table.state() is None:
        return None
    if table.has_row_deletes():
        raise TableFailed(
            f"table {table.name} has delete files or deletion vectors: compact it with an engine that applies them"
        )
    prefix = f"{directory}/" if directory else ""
    partitions = {
        f"{prefix}{path}": partition
        for path, partition in table.partitions().items()
        if not has_state or is_closed_name(path)
    }
    sources = sources_of(files, sorted(partitions), partitions.__getitem__)
    bins = bins_of(sources.files, target_bytes)
    if is_dry_run or not bins:
        return summary(table.name, len(partitions), bins, None if is_dry_run else [])
    replacements: list[Replacement] = []
    merged_files: list[WrittenFile] = []
    try:
        for held in bins:
            path = f"{prefix}{MERGED}/{CLOSED if has_state else ''}{uuid4().hex}{DATA_SUFFIX}"
            paths = [source.path for source in held]
            scratch, records = merge(files, paths, sources.columns, partial(files.scratch, path), compression, layout)
            merged = WrittenFile(path.removeprefix(prefix), scratch.stat().st_size, records)
            files.publish(scratch, path)
            merged_files.append(merged)
            is_change = any(source.lacks_columns for source in held)
            replacements.append(Replacement([path.removeprefix(prefix) for path in paths], merged, is_change))
        commit_replacements(table, replacements)
    except TableFailed:
        raise  # the commit may have arrived
    except BaseException:
        for file in merged_files:
            files.remove(f"{prefix}{file.path}")
        raise
    return summary(table.name, len(partitions), bins, [file.size for file in merged_files])


def commit_replacements(table: Table, replacements: Sequence[Replacement]) -> None:
    """Replace files in one commit, again if another program has changed the table.

    Raises NotCompactable if it has replaced the same files.
    """
    merged = {replacement.merged.path for replacement in replacements if replacement.merged}
    removed = {path for replacement in replacements for path in replacement.removed}
    for _ in range(COMMIT_ATTEMPTS):
        try:
            table.replace(replacements)
        except Conflict:
            table.state()
            present = table.paths()
            if merged <= present and not removed & present:
                return  # its own commit, whose response was lost
            if not removed <= present:
                break
        else:
            return
    raise NotCompactable(f"another program has replaced files of table {table.name}; repeat this")


# `compact_export`: compacts the export in a target. Imports the libraries of the kind when it is called.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """Options of a compaction."""

    target_bytes: int
    compression: Compression = Compression.ZSTD
    catalog: str | None = None
    namespace: str = ""
    is_dry_run: bool = False


def compact_export(request: CompactRequest, files: Files, clock: Clock) -> list[CompactedTable]:
    """Compact all topics or tables of a target, one after the other.

    Raises UsageError, PackageMissing, TableFailed, Locked, LostRace, NotCompactable, DataLoss and
    UnknownFiles.
    """
    require_arrow()
    existing = ExistingExport(files, catalog=request.catalog, namespace=request.namespace)
    upsert = existing.options.upsert
    if upsert and not upsert.history:
        raise NotCompactable(
            f"{files.location} has the current state by key (--mode upsert), whose files exports divide and replace "
            "by key: there is nothing to merge"
        )
    match existing.options.kind:
        case TableKind.PARQUET:
            from kctl.tables.compaction.folder import compact_folder  # noqa: PLC0415 - imports pyarrow

            return compact_folder(
                files,
                CommitLog(files, is_shared=existing.options.is_shared, upsert=state_options(existing.options)),
                target_bytes=request.target_bytes,
                compression=request.compression,
                clock=clock,
                layout=existing.options.layout,
                is_dry_run=request.is_dry_run,
                has_state=upsert is not None,
            )
        case TableKind.ICEBERG | TableKind.DELTA:
            found = [
                compact_table(
                    files,
                    table,
                    directory,
                    target_bytes=request.target_bytes,
                    compression=request.compression,
                    is_dry_run=request.is_dry_run,
                    layout=existing.options.layout,
                    has_state=upsert is not None,
                )
                for directory, table in existing.tables()
            ]
            return [row for row in found if row is not None]
