"""Decides which files of an export are merged.  Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.limits import Subject, bound

COMPACTED_FILES_PER_FILE_MAX = bound(
    Subject.EXPORTS,
    "files that `kctl tables compact` merges into one",
    1_000,
    "files",
    on_excess="the others are merged into another file",
)


KEEP_MS = 7 * 86_400_000
"""Age of snapshots and unused files that a maintenance removes, unless another one is given."""
SMALL_SHARE = 0.75
"""Files of at least this share of the target size are left as they are."""


class NotCompactable(KctlError):
    """The export is not in a state in which it can be compacted, or another program has replaced the same files."""


class SourceFile(NamedTuple):
    """A data file, and what it has in common with those that it can be merged with."""

    path: str
    size: int
    group: Hashable
    lacks_columns: bool = False
    """Whether its rows have values in the rest, and later files more columns: then it is written again by itself."""


class CompactedTable(NamedTuple):
    """Result for a table, or for one topic of a folder; sizes in bytes, after is None before it is known."""

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int | None
    status: str


class MaintainedStep(NamedTuple):
    """What a step has done with a table: numbers of files or snapshots, and bytes of files that are gone."""

    table: str
    step: str
    removed: int
    bytes: int
    status: str


def bins_of(sources: Iterable[SourceFile], target_bytes: int) -> list[list[SourceFile]]:
    """Return small files of one group, in the given order, up to the target size together; at least two each, unless
    they lack columns.
    """
    open_bins: dict[Hashable, list[SourceFile]] = {}
    found: list[list[SourceFile]] = []
    for source in sources:
        if source.size >= target_bytes * SMALL_SHARE:
            if source.lacks_columns:
                found.append([source])
            continue
        held = open_bins.setdefault(source.group, [])
        is_full = sum(source_file.size for source_file in held) + source.size > target_bytes
        if held and (is_full or len(held) >= COMPACTED_FILES_PER_FILE_MAX):
            found.append(held)
            held = open_bins[source.group] = []
        held.append(source)
    return [
        held for held in (*found, *open_bins.values()) if len(held) > 1 or any(source.lacks_columns for source in held)
    ]


def summary(
    table: str, files: int, bins: Sequence[Sequence[SourceFile]], sizes: Sequence[int] | None
) -> CompactedTable:
    """Return the row of a table with `files` files; `sizes` are those of the merged files, None if there are none
    yet.
    """
    merged = sum(map(len, bins))
    status = "nothing to do" if not bins else "planned" if sizes is None else "compacted"
    before = sum(source.size for held in bins for source in held)
    after = None if sizes is None else sum(sizes)
    return CompactedTable(table, files, files - merged + len(bins), before, after, status)
