"""Work on files that the owner of the logs hands to somebody with time: made of values, it touches nothing shared.

A plan never raises: what failed is in `failures` afterwards, for LogManager.take_failures on the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from kctl.storage.files import Files
from kctl.storage.log_directory import LogDirectory


class CheckpointPlan:
    """Checkpoint files to be replaced, one per log directory."""

    __slots__ = ("_files", "_writes", "failures")

    def __init__(self, files: Files, writes: Sequence[tuple[LogDirectory, str, bytes]]) -> None:
        self._files = files
        self._writes = [(path, data) for _, path, data in writes]
        self.failures: list[tuple[str, OSError]] = []

    def run(self) -> None:
        """Write and sync each file."""
        for path, data in self._writes:
            try:
                self._files.write_atomically(path, data)
            except OSError as error:
                self.failures.append((path, error))


class RemovalPlan:
    """Files and directories that nobody needs any more."""

    __slots__ = ("_files", "_paths", "failures")

    def __init__(self, files: Files, paths: Sequence[tuple[str, bool]]) -> None:
        self._files = files
        self._paths = paths
        self.failures: list[tuple[str, OSError]] = []

    def __len__(self) -> int:
        return len(self._paths)

    def run(self) -> None:
        """Remove them; large files take their time."""
        for path, is_directory in self._paths:
            try:
                if is_directory:
                    self._files.remove_tree(path)
                else:
                    self._files.remove(path)
            except OSError as error:
                self.failures.append((path, error))
