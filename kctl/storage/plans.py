"""Blocking work on files that the event loop prepares and a thread runs.

A plan consists of values and shares no state, except the locks of the checkpoint files.  It never raises: errors are in
`failures` afterwards, for LogManager.take_failures on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from kctl.storage.files import Files
from kctl.storage.log_directory import LogDirectory
from kctl.storage.producer_state import ProducerEntry, release

_plan_numbers = count()


def next_plan_number() -> int:
    """The number of a plan whose content is collected from now on."""
    return next(_plan_numbers)


class CheckpointPlan:
    """Replaces checkpoint files, one per log directory.

    Several threads may run plans for the same file.  They are serialised, and a plan that is older than the last one
    written does nothing.
    """

    __slots__ = ("_files", "_number", "_writes", "failures")

    def __init__(
        self,
        files: Files,
        writes: Sequence[tuple[LogDirectory, str, Callable[[], bytes]]],
        number: int | None = None,
    ) -> None:
        """`writes`: directory, path and the function that makes the content, which `run` calls.

        `number` is the `next_plan_number` of the time when collecting the content began; None for now.
        """
        self._files = files
        self._number = next_plan_number() if number is None else number
        self._writes = writes
        self.failures: list[tuple[str, OSError]] = []

    def run(self) -> None:
        """Write and sync each file."""
        for directory, path, content in self._writes:
            turns = directory.checkpoint_writers
            with turns.lock:
                if turns.last_written.get(path, -1) > self._number:
                    continue
                try:
                    directory.check_present(self._files)
                    self._files.write_atomically(path, content())
                except OSError as error:
                    self.failures.append((path, error))
                else:
                    turns.last_written[path] = self._number


class RemovalPlan:
    """Removes files and directories, and frees the producers of deleted logs."""

    __slots__ = ("_files", "_paths", "_producers", "failures")

    def __init__(
        self, files: Files, paths: Sequence[tuple[str, bool]], producers: Sequence[list[ProducerEntry]] = ()
    ) -> None:
        self._files = files
        self._paths = paths
        self._producers = producers
        self.failures: list[tuple[str, OSError]] = []

    def __len__(self) -> int:
        return len(self._paths)

    def run(self) -> None:
        """Remove the files; large files take time.  So does freeing 100,000 producers: 20 to 40 ms."""
        for producers in self._producers:
            release(producers)
        for path, is_directory in self._paths:
            try:
                if is_directory:
                    self._files.remove_tree(path)
                else:
                    self._files.remove(path)
            except OSError as error:
                self.failures.append((path, error))
