"""Copies of the data folder of a broker, from which it is restored.

The records of closed segments never change, so a copy has links to these files and needs neither time nor space for
them.  All other files are copied.  A broker that runs is paused meanwhile: the copy has what a crash leaves on the
disk, and the next start recovers it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_LOG = ".log"
_OF_THE_PROCESS = frozenset({"broker.json", "test-output.txt", ".lock", "broker.lock"})
"""What belongs to the folder or to a start, not to the data."""


class Snapshot:
    """The data of a broker at one time, until `discard` or until the process ends."""

    def __init__(self, source: Path) -> None:
        """Copy a folder that is not written meanwhile."""
        # Beside the folder: links do not reach other file systems.
        self._temporary = tempfile.TemporaryDirectory(prefix=f"{source.name}-snapshot-", dir=source.parent)
        _copy(source, Path(self._temporary.name))

    def restore(self, target: Path) -> None:
        """Replace the data in a folder whose broker does not run."""
        for entry in os.scandir(target):
            if entry.name in _OF_THE_PROCESS:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        _copy(Path(self._temporary.name), target)

    def discard(self) -> None:
        """Remove the copy."""
        self._temporary.cleanup()


def _copy(source: Path, target: Path) -> None:
    entries = list(os.scandir(source))
    logs = sorted(entry.name for entry in entries if entry.name.endswith(_LOG))
    closed = frozenset(logs[:-1])  # Names are offsets; the last one is written to.
    for entry in entries:
        if entry.name in _OF_THE_PROCESS:
            continue
        copy = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            copy.mkdir(exist_ok=True)
            _copy(Path(entry.path), copy)
        elif entry.is_symlink():
            copy.symlink_to(os.readlink(entry.path))
        elif entry.is_file(follow_symlinks=False):
            if entry.name in closed:
                os.link(entry.path, copy)
            else:
                shutil.copy2(entry.path, copy)
