"""Detects changes of files by their attributes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeAlias

FileStates: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Modification time (ns), size and inode of each file; None for one that cannot be accessed."""


def states_of(paths: Iterable[str]) -> FileStates:
    """The current states."""
    return tuple(_state(path) for path in paths)


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: the path contains NUL, for example.
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
