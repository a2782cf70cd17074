"""A directory of `log.dirs` and its online state.

The first OSError, or a corrupt checkpoint, takes the directory offline: requests for its logs fail with
KAFKA_STORAGE_ERROR, and other directories are not affected.  It is used again after a restart of the broker.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable

from kctl.errors import CorruptLog, LogDirFailure
from kctl.storage.files import Files
from kctl.storage.names import LOCK
from kctl.storage.state.producer_state import ProducerEntry

_logger = logging.getLogger(__name__)


class CheckpointWriters:
    """Orders writers of a checkpoint file: a lock, and the number of the last plan that wrote it.

    Owner: the thread that holds the lock.
    """

    __slots__ = ("last_written", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last_written: dict[str, int] = {}


class LogDirectory:
    """One log directory.  Owner: event loop."""

    __slots__ = ("_on_failure", "checkpoint_writers", "failure", "path")

    def __init__(self, path: str, on_failure: Callable[[LogDirectory], None] | None = None) -> None:
        self.path = path
        self.failure: str | None = None
        """Why the directory is offline; None while it is online."""
        self._on_failure = on_failure
        self.checkpoint_writers = CheckpointWriters()

    @property
    def is_online(self) -> bool:
        """True until the first failure."""
        return self.failure is None

    def check(self) -> None:
        """Raise LogDirFailure when the directory is offline."""
        if self.failure is not None:
            raise LogDirFailure(self.path, self.failure)

    def check_present(self, files: Files) -> None:
        """Raise FileNotFoundError when the lock file is gone: the directory was removed, or its file system unmounted.

        What is written at its path then would be missing after a restart.
        """
        path = f"{self.path}/{LOCK}"
        if not files.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def fail(self, error: OSError | CorruptLog) -> LogDirFailure:
        """Take the directory offline because of `error`; return the LogDirFailure for the caller to raise."""
        reason = _reason(error)
        if self.failure is None:
            self.failure = reason
            _logger.error(
                "log directory goes offline until the broker is restarted path=%s error=%s", self.path, reason
            )
            if self._on_failure is not None:
                self._on_failure(self)
        return LogDirFailure(self.path, reason)


def _reason(error: OSError | CorruptLog) -> str:
    if isinstance(error, CorruptLog):
        return f"{error}; repair or remove the file"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


class DelayedRemovals:
    """Files and directories that are removed after `file.delete.delay.ms`, already renamed.  Owner: event loop."""

    __slots__ = ("_due", "_producers")

    def __init__(self) -> None:
        self._due: list[tuple[int, str, bool]] = []
        self._producers: list[tuple[int, list[ProducerEntry]]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, paths: list[str], *, due_ms: int, is_directory: bool = False) -> None:
        """Remove the paths at `due_ms`."""
        self._due.extend((due_ms, path, is_directory) for path in paths)

    def keep(self, producers: list[ProducerEntry], *, due_ms: int) -> None:
        """Keep producers that a log has no longer until then: they are freed in the thread that removes files."""
        self._producers.append((due_ms, producers))

    def take_due_producers(self, now_ms: int) -> list[list[ProducerEntry]]:
        """Return what was kept until now, and forget it."""
        due = [producers for due_ms, producers in self._producers if due_ms <= now_ms]
        self._producers = [entry for entry in self._producers if entry[0] > now_ms]
        return due

    def moved(self, directory: str, new_directory: str) -> None:
        """Use the new path of `directory` for files in it."""
        inside = directory + "/"
        self._due = [
            (due_ms, new_directory + path[len(directory) :] if path.startswith(inside) else path, is_directory)
            for due_ms, path, is_directory in self._due
        ]

    def take_due(self, now_ms: int) -> list[tuple[str, bool]]:
        """Return (path, is directory) of all entries that are due, and forget them."""
        due = [(path, is_directory) for due_ms, path, is_directory in self._due if due_ms <= now_ms]
        self._due = [entry for entry in self._due if entry[0] > now_ms]
        return due
