"""Flushing a log without holding up its owner: collect on the loop what to sync, sync it anywhere, take note of it.

plan = log.plan_flush()          loop: opens what is to be synced
plan.run()                       any thread: fsync, nothing else
log.flushed(plan)                loop: the recovery point moves
"""

from __future__ import annotations

from collections.abc import Sequence

from kctl.storage.files import File, Files


class FlushPlan:
    """Files of one log that hold its records up to `offset`.  Touches nothing that belongs to the loop."""

    __slots__ = ("_files", "_open_files", "directory", "offset", "truncations")

    def __init__(
        self, files: Files, directory: str, open_files: Sequence[File], *, offset: int, truncations: int
    ) -> None:
        self._files = files
        self.directory = directory
        """Where the log was; when it has been renamed meanwhile, its names there are nobody's business any more."""
        self._open_files = open_files
        self.offset = offset
        self.truncations = truncations
        """How often the log had been truncated; a plan from before a truncation proves nothing about what follows."""

    def run(self) -> None:
        """Sync all files, then their names.  Raises OSError."""
        for file in self._open_files:
            file.sync()
        self._files.sync_directory(self.directory)
