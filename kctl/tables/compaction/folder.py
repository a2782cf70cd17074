"""Compacts a folder of Parquet files by its commit log.

A compaction is a batch of the log: a plan that names the merged files and those that they replace, then the commit.
Merged files are complete before the plan is written; then they are published, committed, and the replaced
files are removed.  A compaction without a commit is abandoned by the next one who takes the lock, and its files are
removed; replaced files that are left after the commit are removed by the next run.

The files that the log names are at each moment a complete export, without a record twice.  Readers that list the folder
see records twice from the first published file to the last removed one, but never miss one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

from kctl.system.environment import Clock
from kctl.tables.commits.commit_json import Compaction
from kctl.tables.commits.commit_log import CommitLog, LostRace
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.commits.layout import DATA_SUFFIX, incarnation_of, topic_part
from kctl.tables.compaction.bins import CompactedTable, NotCompactable, SourceFile, bins_of, summary
from kctl.tables.compaction.merging import merge, sources_of
from kctl.tables.exec.outcome import DataLoss, WrittenFile
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.targets.files import Files
from kctl.tables.plans.plan import Positions
from kctl.tables.upserts.changed_keys import CLOSED, is_closed_name

BINS_PER_BATCH_MAX = 16
"""Merged files of one commit, which are on disk before they replace others."""


def compact_folder(
    files: Files,
    log: CommitLog,
    *,
    target_bytes: int,
    compression: str,
    clock: Clock,
    is_dry_run: bool,
    layout: ColumnLayout = PLAIN_LAYOUT,
    has_state: bool = False,
) -> list[CompactedTable]:
    """Compact all topics of a folder; rows are in the order of `layout`.

    `has_state`: it has the current state by key, of which only files with versions that have ended are merged.

    Raises Locked, LostRace, NotCompactable, DataLoss, UnknownFiles and OSError; the log is then as before, or the
    compaction is abandoned by the next run.
    """
    with contextlib.nullcontext() if is_dry_run else log.lock():
        positions = _checked(log)
        if not is_dry_run:
            log.remove_unfinished(positions.topics)
        committed = [path for path in log.committed_paths() if not has_state or is_closed_name(path)]
        found = []
        for directory in sorted({path.partition("/")[0] for path in committed}):
            paths = [path for path in committed if path.startswith(f"{directory}/")]
            sources = sources_of(files, paths, _group)
            bins = bins_of(sources.files, target_bytes)
            sizes: list[int] | None = None
            if not is_dry_run:
                sizes = []
                for first in range(0, len(bins), BINS_PER_BATCH_MAX):
                    some = bins[first : first + BINS_PER_BATCH_MAX]
                    write = partial(merge, files, widest=sources.columns, compression=compression, layout=layout)
                    positions, written = _compact(files, log, positions, some, write, clock)
                    sizes += [file.size for file in written]
            found.append(summary(directory, len(paths), bins, sizes))
        return found


def _checked(log: CommitLog) -> Positions:
    positions = log.positions()
    if pending := log.pending(positions):
        raise NotCompactable(f"batch {pending.batch} was interrupted or is running: complete the export first")
    inventory = log.inventory(positions, None, positions.topics)
    if loss := inventory.loss_text():
        raise DataLoss(loss)
    if inventory.unknown:
        raise UnknownFiles(inventory.unknown_text())
    return positions


def _compact(
    files: Files,
    log: CommitLog,
    positions: Positions,
    bins: Sequence[Sequence[SourceFile]],
    write: Callable[..., tuple[Path, int]],
    clock: Clock,
) -> tuple[Positions, list[WrittenFile]]:
    """Merge some bins in one batch with `write`, a part of `merge`; return the positions after it."""
    batch = positions.last_batch + 1
    merged: dict[str, tuple[Path, int]] = {}
    try:
        for number, held in enumerate(bins):
            path = _merged_path(held[0].path, batch, number)
            paths = [source.path for source in held]
            merged[path] = write(paths, open_path=partial(files.scratch, path))
        removed = tuple(source.path for held in bins for source in held)
        plan = Compaction(batch, clock.now_ms(), uuid4().hex, tuple(merged), removed)
        log.write_compaction_plan(plan)
        written = []
        for path, (scratch, records) in list(merged.items()):
            size = scratch.stat().st_size
            files.publish(scratch, path)
            del merged[path]
            written.append(WrittenFile(path, size, records))
        try:
            after = log.commit_compaction(plan, written, positions, now_ms=clock.now_ms())
        except LostRace:  # abandoned by another process, which may not have seen all files
            for path in plan.added:
                files.remove(path)
            raise
    finally:
        for scratch, _ in merged.values():
            files.discard(scratch)
    for path in removed:
        files.remove(path)
    return after, written


def _group(path: str) -> tuple[str, str, int]:
    """Files are merged within the directory of a topic or partition."""
    return path.rpartition("/")[0], topic_part(path), incarnation_of(path)


def _merged_path(path: str, batch: int, number: int) -> str:
    directory = path.rpartition("/")[0]
    incarnation = incarnation_of(path)
    recreated = f"+r{incarnation}" if incarnation else ""
    kind = CLOSED if is_closed_name(path) else "+"
    return f"{directory}/{topic_part(path)}{kind}compacted-{batch:012d}-{number}{recreated}{DATA_SUFFIX}"
