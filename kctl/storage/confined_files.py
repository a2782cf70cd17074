"""Restricts file access to the log directories.

Names are validated where they enter.  This is the second line of defence: if a validation is missing, the operation
fails and no file outside of the log directories is created, changed or removed.  Paths are compared as text.  Symbolic
links are followed, because an operator may place a log directory or the directory of a log on another disk with one;
clients cannot create links.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from kctl.storage.files import Entry, File, Files, Lock


class PathOutsideLogDirectories(ValueError):
    """A path outside of the log directories: a name was not validated, which is a bug in kctl."""


class ConfinedFiles:
    """A kctl.storage.files.Files that delegates to another one, for paths at or below the given directories."""

    def __init__(self, files: Files, directories: Iterable[str]) -> None:
        self._files = files
        self._roots = frozenset(posixpath.abspath(str(each)) for each in directories)
        self._prefixes = tuple(f"{root.rstrip('/')}/" for root in self._roots)

    def _inside(self, path: str) -> str:
        """Return `path`.  Raises PathOutsideLogDirectories."""
        is_below = path.startswith(self._prefixes) and "/.." not in path and "\0" not in path
        if not is_below and path not in self._roots:
            raise PathOutsideLogDirectories(f"{path!r} is not in a log directory")
        return path

    def open(self, path: str, *, create: bool = False) -> File:
        """See Files.open."""
        return self._files.open(self._inside(path), create=create)

    def list(self, directory: str) -> list[Entry]:
        """See Files.list."""
        return self._files.list(self._inside(directory))

    def exists(self, path: str) -> bool:
        """See Files.exists."""
        return self._files.exists(self._inside(path))

    def size(self, path: str) -> int:
        """See Files.size."""
        return self._files.size(self._inside(path))

    def modified_ms(self, path: str) -> int:
        """See Files.modified_ms."""
        return self._files.modified_ms(self._inside(path))

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """See Files.set_modified_ms."""
        self._files.set_modified_ms(self._inside(path), time_ms)

    def read(self, path: str) -> bytes:
        """See Files.read."""
        return self._files.read(self._inside(path))

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """See Files.write_atomically."""
        self._files.write_atomically(self._inside(path), data, sync=sync)

    def make_directory(self, path: str) -> None:
        """See Files.make_directory."""
        self._files.make_directory(self._inside(path))

    def rename(self, source: str, target: str) -> None:
        """See Files.rename."""
        self._files.rename(self._inside(source), self._inside(target))

    def remove(self, path: str) -> None:
        """See Files.remove."""
        self._files.remove(self._inside(path))

    def remove_tree(self, path: str) -> None:
        """See Files.remove_tree."""
        self._files.remove_tree(self._inside(path))

    def sync_directory(self, path: str) -> None:
        """See Files.sync_directory."""
        self._files.sync_directory(self._inside(path))

    def lock(self, path: str) -> Lock:
        """See Files.lock."""
        return self._files.lock(self._inside(path))
