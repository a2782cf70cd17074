"""Keeps tables of an export small: removes old rows, merges files, expires snapshots, and removes unused files.

Each step is a commit of its own or removes files that no commit names, so that an interrupted maintenance has done some
of the steps, and the next one does the others.  Exports may run at the same time:

- of old rows and merged files as for a compaction (kctl.tables.compaction.table_files);
- an unused file is removed only if it is older than what is kept, and in the folder of a batch that is committed or in
  that of compactions: files of such a batch that its commit does not name are never published (kctl.tables.formats.
  table_log).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.parquet as pq

from kctl.errors import UsageError
from kctl.system.environment import Clock
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.compaction.bins import CompactedTable, MaintainedStep
from kctl.tables.compaction.table_files import CompactRequest, commit_replacements, compact_export
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.selection.laid_out import physical_path
from kctl.tables.exec.targets.damage import damage_as_arrow_error
from kctl.tables.exec.targets.files import Files
from kctl.tables.formats.kinds import TableKind
from kctl.tables.formats.publications import Publications
from kctl.tables.formats.table import Replacement, Table
from kctl.tables.plans.plan import Compression

REMOVED_FILES_MAX = 10_000
"""Files that one step removes of a table; the next maintenance removes further ones."""
_UNUSED = re.compile(r"data/(?:(?P<batch>\d{12})|compacted)/[^/]+\.parquet|metadata/[^/]+\.avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainRequest:
    """Options of a maintenance; times in milliseconds."""

    target_bytes: int
    keep_ms: int
    """Age of snapshots and unused files that are removed."""
    rows_ms: int | None = None
    """Age of rows that are removed; None: none."""
    compression: Compression = Compression.ZSTD
    catalog: str | None = None
    namespace: str = ""
    is_dry_run: bool = False


def maintain_export(request: MaintainRequest, files: Files, clock: Clock) -> list[MaintainedStep]:
    """Maintain all tables of a target, or merge the files of a folder.

    Raises UsageError for rows to remove from a folder or from a table of the current state, and as `compact_export`.
    """
    existing = ExistingExport(files, catalog=request.catalog, namespace=request.namespace)
    is_folder = existing.options.kind is TableKind.PARQUET
    if request.rows_ms is not None and (is_folder or existing.options.upsert):
        raise UsageError(
            "--delete-rows-after is an option of Iceberg and Delta tables with all records: a folder of Parquet files "
            "and a table of the current state keep theirs"
        )
    now_ms = clock.now_ms()
    found: list[MaintainedStep] = []
    if request.rows_ms is not None:
        for directory, table in existing.tables():
            found += _delete_rows(files, table, directory, now_ms - request.rows_ms, is_dry_run=request.is_dry_run)
    upsert = existing.options.upsert
    if upsert is None or upsert.history:
        compact = CompactRequest(
            target_bytes=request.target_bytes,
            compression=request.compression,
            catalog=request.catalog,
            namespace=request.namespace,
            is_dry_run=request.is_dry_run,
        )
        found += [_merged(row) for row in compact_export(compact, files, clock)]
    for directory, table in () if is_folder else existing.tables():
        records = Publications(files, directory, existing.options.partition_by)
        found += _clean(request, files, table, directory, records, now_ms)
    return found


def _merged(row: CompactedTable) -> MaintainedStep:
    after = row.bytes_before if row.bytes_after is None else row.bytes_after
    return MaintainedStep(
        row.table, "merge files", row.files_before - row.files_after, max(row.bytes_before - after, 0), row.status
    )


def _step(table: Table, step: str, removed: int, size: int, *, is_dry_run: bool) -> MaintainedStep:
    status = "nothing to do" if not removed else "planned" if is_dry_run else "done"
    return MaintainedStep(table.name, step, removed, size, status)


def _delete_rows(
    files: Files, table: Table, directory: str, before_ms: int, *, is_dry_run: bool
) -> list[MaintainedStep]:
    """Remove the files all of whose rows have earlier timestamps, in one commit."""
    if table.state() is None:
        return []
    prefix = f"{directory}/" if directory else ""
    before = datetime.fromtimestamp(before_ms / 1000, UTC)
    sizes = table.sizes()
    old = [path for path in sorted(sizes) if _is_older(files, f"{prefix}{path}", before)][:REMOVED_FILES_MAX]
    if old and not is_dry_run:
        commit_replacements(table, [Replacement(old, None, is_change=True)])
    return [_step(table, "delete rows", len(old), sum(sizes[path] for path in old), is_dry_run=is_dry_run)]


def _is_older(files: Files, path: str, before: datetime) -> bool:
    """Return whether all rows of a file have timestamps before this time, as its statistics say."""
    try:
        with damage_as_arrow_error(), files.open(path) as file:
            metadata = pq.read_metadata(file)
    except FileNotFoundError:
        raise DataLoss(
            f"{files.location}/{path}, a file of the export, does not exist: restore it from a backup"
        ) from None
    column = physical_path(metadata.schema.to_arrow_schema(), ("timestamp",))
    if column is None or not metadata.num_rows:
        return False
    index = metadata.schema.names.index(column[0])
    found = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
    return all(statistics is not None and statistics.has_min_max and statistics.max < before for statistics in found)


def _clean(
    request: MaintainRequest, files: Files, table: Table, directory: str, records: Publications, now_ms: int
) -> list[MaintainedStep]:
    """Expire snapshots, and remove files that no snapshot or version uses."""
    state = table.state()
    if state is None:
        return []
    before_ms = now_ms - request.keep_ms
    expired = table.expire(before_ms, is_dry_run=request.is_dry_run)
    prefix = f"{directory}/" if directory else ""
    sizes = files.sizes(directory)
    published = {file.path for record in records.newest_first() for file in record.commit.files}
    candidates = _unused(
        [path.removeprefix(prefix) for path in sizes],
        table.used(before_ms) | published,
        state.batch,
        lambda path: files.modified_ms(f"{prefix}{path}") or now_ms,
        before_ms,
    )
    for path in () if request.is_dry_run else candidates:
        files.remove(f"{prefix}{path}")
    size = sum(sizes[f"{prefix}{path}"] for path in candidates)
    steps = [_step(table, "expire snapshots", expired, 0, is_dry_run=request.is_dry_run)] if expired else []
    return [*steps, _step(table, "remove unused files", len(candidates), size, is_dry_run=request.is_dry_run)]


def _unused(
    paths: Iterable[str], used: set[str], batch: int, modified_ms: Callable[[str], int], before_ms: int
) -> Sequence[str]:
    """Return the files that can be removed; `batch` is the last one that is committed."""
    found = []
    for path in sorted(set(paths) - used):
        match = _UNUSED.fullmatch(path)
        if match is None or (match["batch"] and int(match["batch"]) > batch):
            continue
        if modified_ms(path) < before_ms:
            found.append(path)
            if len(found) == REMOVED_FILES_MAX:
                break
    return found
