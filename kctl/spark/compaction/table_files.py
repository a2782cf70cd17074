"""Compacts an Iceberg or Delta table: merged files replace others in one commit, a snapshot or a version.

Replaced files stay until the snapshots with them have expired, or the table is vacuumed, so that readers of earlier
states are not disturbed.  If an export commits at the same time, the replacement is tried again on top of it, unless
another compaction has replaced the same files.  An interrupted compaction has changed nothing; its merged files belong
to no table.
"""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from kctl.spark.compaction.bins import CompactedTable, NotCompactable, bins_of, summary
from kctl.spark.compaction.merging import merge, sources_of
from kctl.spark.exec.files import Files
from kctl.spark.exec.outcome import WrittenFile
from kctl.spark.layout import DATA_SUFFIX
from kctl.spark.tables.table import Conflict, Replacement, Table, TableFailed
from kctl.spark.tables.table_log import COMMIT_ATTEMPTS

MERGED = "data/compacted"


def compact_table(
    files: Files, table: Table, directory: str, *, target_bytes: int, compression: str, is_dry_run: bool
) -> CompactedTable | None:
    """Compacts the table in a directory of the target; None if there is none.  Raises TableFailed."""
    if table.state() is None:
        return None
    if table.has_row_deletes():
        raise TableFailed(
            f"table {table.name} has delete files or deletion vectors: compact it with an engine that applies them"
        )
    prefix = f"{directory}/" if directory else ""
    partitions = {f"{prefix}{path}": partition for path, partition in table.partitions().items()}
    bins = bins_of(sources_of(files, sorted(partitions), target_bytes, partitions.__getitem__), target_bytes)
    if is_dry_run or not bins:
        return summary(table.name, len(partitions), bins, None if is_dry_run else [])
    replacements: list[Replacement] = []
    try:
        for held in bins:
            path = f"{prefix}{MERGED}/{uuid4().hex}{DATA_SUFFIX}"
            scratch, records = merge(files, [one.path for one in held], partial(files.scratch, path), compression)
            merged = WrittenFile(path.removeprefix(prefix), scratch.stat().st_size, records)
            files.publish(scratch, path)
            replacements.append(Replacement([one.path.removeprefix(prefix) for one in held], merged))
        _commit(table, replacements)
    except TableFailed:
        raise  # the commit may have arrived
    except BaseException:
        for one in replacements:
            files.remove(f"{prefix}{one.merged.path}")
        raise
    return summary(table.name, len(partitions), bins, [one.merged.size for one in replacements])


def _commit(table: Table, replacements: list[Replacement]) -> None:
    for _ in range(COMMIT_ATTEMPTS):
        try:
            table.replace(replacements)
        except Conflict:
            table.state()
            present = table.paths()
            if {one.merged.path for one in replacements} <= present:
                return  # its own commit, whose response was lost
            if not {path for one in replacements for path in one.removed} <= present:
                break
        else:
            return
    raise NotCompactable(f"another program has replaced files of table {table.name}; repeat this")
