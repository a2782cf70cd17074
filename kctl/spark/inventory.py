"""Compares the data files in an export folder with its commits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kctl.errors import KctlError
from kctl.spark.commit_log import CommitLog
from kctl.spark.path_set import NO_PATHS
from kctl.spark.plan import Plan, Positions


class UnknownFiles(KctlError):
    """A topic's folder has files that no commit names, whose records an export would write again."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Differences between folder and commits."""

    missing: tuple[tuple[str, int], ...] = ()
    """(path, batch) of missing committed files."""
    unknown: tuple[str, ...] = ()
    """Paths of data files that neither a commit nor the pending plan names."""

    def missing_text(self) -> str:
        """Error text for the missing files."""
        path, batch = self.missing[0]
        return f"{path}, which batch {batch} wrote, is gone{_more(self.missing)}: restore it from a backup"

    def unknown_text(self) -> str:
        """Error text for the unknown files."""
        return (
            f"no commit names {self.unknown[0]}{_more(self.unknown)}: if the folder was copied without _kctl, copy "
            "that too, or take the files over with --adopt; else export to another folder"
        )


def take_inventory(log: CommitLog, positions: Positions, pending: Plan | None, topics: Collection[str]) -> Inventory:
    """Compares the folders of `topics` and of all exported topics with the commits.

    The last commit has a summary of all files; the other commits are read only if it does not match.
    """
    planned = pending.shares() if pending else {}
    present = log.data_files({*topics, *positions.topics}) - set(planned)
    if NO_PATHS.plus(present) == positions.files:
        return Inventory()
    committed = log.committed_paths()
    return Inventory(
        missing=tuple(sorted((path, batch) for path, batch in committed.items() if path not in present)),
        unknown=tuple(sorted(present - set(committed))),
    )


def _more(found: Collection[object]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""
