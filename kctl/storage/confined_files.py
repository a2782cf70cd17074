"""The disk, confined to the log directories: a path outside of them is never touched.

Names are validated where they enter.  This is the second line of defence: when a check is missing, the operation fails
and no file outside is created, changed or removed.  The comparison is by text.  Symbolic links are followed, since an
operator may place a log directory, or the directory of a log, on another disk with one; no client can create a link.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from kctl.storage.files import Entry, File, Files, Lock


class PathOutsideLogDirectories(ValueError):
    """A name that was not validated became part of a path: an error of the program, not of the disk."""


class ConfinedFiles:
    """kctl.storage.files.Files over another one, for paths at or below the given directories."""

    def __init__(self, files: Files, directories: Iterable[str]) -> None:
        self._files = files
        self._roots = frozenset(posixpath.abspath(str(each)) for each in directories)
        self._prefixes = tuple(f"{root.rstrip('/')}/" for root in self._roots)

    def _inside(self, path: str) -> str:
        """`path` itself.  Raises PathOutsideLogDirectories."""
        is_below = path.startswith(self._prefixes) and "/.." not in path and "\0" not in path
        if not is_below and path not in self._roots:
            raise PathOutsideLogDirectories(f"{path!r} is not in a log directory")
        return path

    def open(self, path: str, *, create: bool = False) -> File:
        return self._files.open(self._inside(path), create=create)

    def list(self, directory: str) -> list[Entry]:
        return self._files.list(self._inside(directory))

    def exists(self, path: str) -> bool:
        return self._files.exists(self._inside(path))

    def size(self, path: str) -> int:
        return self._files.size(self._inside(path))

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(self._inside(path))

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._files.set_modified_ms(self._inside(path), time_ms)

    def read(self, path: str) -> bytes:
        return self._files.read(self._inside(path))

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._files.write_atomically(self._inside(path), data, sync=sync)

    def make_directory(self, path: str) -> None:
        self._files.make_directory(self._inside(path))

    def rename(self, source: str, target: str) -> None:
        self._files.rename(self._inside(source), self._inside(target))

    def remove(self, path: str) -> None:
        self._files.remove(self._inside(path))

    def remove_tree(self, path: str) -> None:
        self._files.remove_tree(self._inside(path))

    def sync_directory(self, path: str) -> None:
        self._files.sync_directory(self._inside(path))

    def lock(self, path: str) -> Lock:
        return self._files.lock(self._inside(path))
