"""Differences between the data files of an export and its commits.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.output.quantities import counted


class UnknownFiles(KctlError):
    """A topic's folder has files that no commit names, whose records an export would write again."""


class DamagedFile(NamedTuple):
    """A file that does not have the size with which it was committed."""

    path: str
    batch: int | None
    """None if another program or a compaction wrote it."""
    committed: int
    found: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """Differences between folder and commits."""

    missing: tuple[tuple[str, int | None], ...] = ()
    """(path, batch) of missing committed files, dead letters included; the batch as in DamagedFile."""
    unknown: tuple[str, ...] = ()
    """Paths of data files that neither a commit nor the pending plan names."""
    set_back: tuple[tuple[str, int], ...] = ()
    """(table, batch) of tables that another program has set back to a state before that batch."""
    may_adopt: bool = True
    """Whether --adopt can rebuild the commits of such an export."""
    damaged: tuple[DamagedFile, ...] = ()
    is_table: bool = False
    """Whether the target is marked as one of tables, so that the metadata of a table may be what is missing."""

    def of(self, is_selected: Callable[[str], bool]) -> Inventory:
        """Return the missing and damaged files whose paths are selected."""
        return Inventory(
            missing=tuple(loss for loss in self.missing if is_selected(loss[0])),
            damaged=tuple(file for file in self.damaged if is_selected(file.path)),
        )

    def loss_text(self) -> str:
        """Return the error text for rows that were exported and are gone; empty without any."""
        if self.set_back:
            table, batch = self.set_back[0]
            return (
                f"{table} was set back to a state before batch {batch}{_more(self.set_back)}, and lacks records that "
                "were exported: set it forward again, to the version or snapshot of that batch"
            )
        if self.missing:
            path, written_by = self.missing[0]
            return f"{path}{_origin(written_by)} is gone{_more(self.missing)}: restore it from a backup"
        if self.damaged:
            first = self.damaged[0]
            return (
                f"{first.path}{_origin(first.batch)} has {counted(first.found, 'byte')} instead of "
                f"{first.committed:,}{_more(self.damaged)}: restore it from a backup"
            )
        return ""

    def unknown_text(self) -> str:
        """Return the error text for the unknown files."""
        if self.is_table:
            return (
                f"there is no table with {self.unknown[0]}{_more(self.unknown)}: if its metadata was lost, restore it; "
                "if an earlier version of kctl was interrupted in the first export, remove these files"
            )
        adopt = ", or take the files over with --adopt" if self.may_adopt else ""
        return (
            f"no commit names {self.unknown[0]}{_more(self.unknown)}: if the folder was copied without _kctl and other "
            f"names that begin with _, copy these too{adopt}; else export to another folder"
        )


def _origin(batch: int | None) -> str:
    return "" if batch is None else f", which batch {batch} wrote,"


def _more(found: Collection[object]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""
