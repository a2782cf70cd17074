"""Work on files that the owner of the logs hands to somebody with time: made of values, it touches nothing shared but
the turns that writers of checkpoints take.

A plan never raises: what failed is in `failures` afterwards, for LogManager.take_failures on the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from kctl.storage.files import Files
from kctl.storage.log_directory import LogDirectory

_plan_numbers = count()


class CheckpointPlan:
    """Checkpoint files to be replaced, one per log directory.

    Plans for one file may be run by several threads at once.  Each writes alone, and one that a newer plan has
    overtaken writes nothing.
    """

    __slots__ = ("_files", "_number", "_writes", "failures")

    def __init__(self, files: Files, writes: Sequence[tuple[LogDirectory, str, bytes]]) -> None:
        self._files = files
        self._number = next(_plan_numbers)
        self._writes = [(directory.checkpoint_turns, path, data) for directory, path, data in writes]
        self.failures: list[tuple[str, OSError]] = []

    def run(self) -> None:
        """Write and sync each file."""
        for turns, path, data in self._writes:
            with turns.lock:
                if turns.last_written.get(path, -1) > self._number:
                    continue
                try:
                    self._files.write_atomically(path, data)
                except OSError as error:
                    self.failures.append((path, error))
                else:
                    turns.last_written[path] = self._number


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
