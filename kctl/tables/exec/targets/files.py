"""Port for operations on the target of an export, and its implementation for file systems.

Paths are relative to the target, with `/`.  Two operations publish a file: `create` for small ones, and `publish` for
data files, which are first written to a local scratch file.  Both make a complete file visible under its name at once,
and only if that name does not exist yet.  So of two publishers of a name one succeeds, and no reader sees an incomplete
file.  The commit of a batch is such a file.

A path that leaves the target raises PathOutsideTarget.  Topics have valid names, and paths in commits and in the
metadata of tables are those of exports; this is the second line of defence.  On a file system, nothing is created or
removed through a symbolic link that leads out of the target.

On a file system the scratch file is beside the final one; it is synced and linked to its name with link(), which fails
if the name exists.  The name is durable after its directory has been synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol
from uuid import uuid4

from kctl.errors import KctlError
from kctl.system.operating_system import flush_to_disk

LOCK = "_kctl/lock"
SCRATCH_SUFFIX = ".tmp"

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class StoreFailed(KctlError):
    """An operation of an object store failed."""


class PathOutsideTarget(KctlError):
    """A path that is not in the target: of a commit, of the metadata of a table, or made of an invalid name."""


def checked(path: str, location: str) -> str:
    """Return a path relative to a target.  Raises PathOutsideTarget for one that leaves it, or is absolute."""
    if path.startswith("/") or "://" in path or "\0" in path or {".", ".."}.intersection(path.split("/")):
        raise PathOutsideTarget(f"{path!r} is not in {location}: nothing is read or written there")
    return path


class Locked(KctlError):
    """Another exporter has locked the folder."""


class Files(Protocol):
    """The files of a target.

    Operations raise OSError, or StoreFailed for object stores, and PathOutsideTarget.
    """

    @property
    def location(self) -> str:
        """The target as an absolute path or a URL."""
        ...

    def prepare(self, directories: Collection[str]) -> None:
        """Create directories of the log, durably; existing ones are fine."""
        ...

    def names(self, directory: str) -> list[str]:
        """Sorted names of files and directories in the directory; empty if it does not exist."""
        ...

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes in bytes of all files below the directory, by path; empty if it does not exist."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size of the file in bytes; None if it does not exist."""
        ...

    def modified_ms(self, path: str) -> int | None:
        """Return when the file was written, in milliseconds since 1970; None if it does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Return all bytes of the file.  Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> IO[bytes]:
        """Return the file for random access.  Raises FileNotFoundError."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create a small file with its contents, durably; False, and no change, if the name exists."""
        ...

    def scratch(self, path: str) -> Path:
        """Return a new local path for writing what is to become `path`, unique to the caller."""
        ...

    def publish(self, scratch: Path, path: str) -> bool:
        """Give a complete scratch file its name, durably; False if the name exists.

        The scratch file is removed in either case.
        """
        ...

    def discard(self, scratch: Path) -> None:
        """Remove a scratch file; a missing one is fine."""
        ...

    def replace(self, path: str, other: str) -> None:
        """Give a file the name of another one, which it replaces at once and durably; a missing one is fine."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_scratch(self, directories: Collection[str]) -> None:
        """Remove scratch files for these directories that interrupted processes left.  Requires the lock."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Hold the lock of the target during the returned context.  Raises Locked."""
        ...


class DiskFiles:
    """Files in a folder of a POSIX file system with hard links."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def location(self) -> str:
        """The absolute path of the folder."""
        return str(self._folder)

    def prepare(self, directories: Collection[str]) -> None:
        """Create the directories and their missing parents, and sync each parent."""
        for directory in directories:
            _make_directory(self._written(directory))

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in the directory; none if it does not exist."""
        try:
            return sorted(os.listdir(self._at(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes of all files below the directory, by path; files that disappear meanwhile are left out."""
        found: dict[str, int] = {}
        root = self._folder
        folders = [checked(directory, self.location)]
        while folders:
            folder = folders.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for entry in list(os.scandir(f"{root}/{folder}")):
                    path = f"{folder}/{entry.name}".lstrip("/")
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_dir():
                            folders.append(path)
                        else:
                            found[path] = entry.stat().st_size
        return found

    def size(self, path: str) -> int | None:
        """Return the size of the file in bytes; None if it does not exist."""
        try:
            return os.path.getsize(self._at(path))
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int | None:
        """Return the time of the last modification."""
        try:
            return os.stat(self._at(path)).st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str) -> bytes:
        """Return all bytes of the file.  Raises FileNotFoundError."""
        return self._at(path).read_bytes()

    def open(self, path: str) -> IO[bytes]:
        """Return the file for random access.  Raises FileNotFoundError."""
        return self._at(path).open("rb")

    def create(self, path: str, data: bytes) -> bool:
        """Write the data to a scratch file and publish it."""
        scratch = self.scratch(path)
        with scratch.open("xb") as file:
            file.write(data)
        return self.publish(scratch, path)

    def scratch(self, path: str) -> Path:
        """Return a hidden name beside the final one; create the directory."""
        final = self._written(path)
        _make_directory(final.parent)
        return final.with_name(f".{final.name}.{uuid4().hex}{SCRATCH_SUFFIX}")

    def publish(self, scratch: Path, path: str) -> bool:
        """Sync the file and give it its final name by a hard link, unless that name exists; False if it did.

        The directory is synced and the scratch file removed in both cases.  Raises OSError where the file system has
        no hard links.
        """
        _sync(scratch)
        final = self._written(path)
        is_first = link_if_absent(scratch, final)
        # Also if another publisher was first: the caller relies on the name, and the other one may crash.
        _sync(final.parent)
        self.discard(scratch)
        return is_first

    def discard(self, scratch: Path) -> None:
        """Remove the scratch file if it exists."""
        scratch.unlink(missing_ok=True)

    def replace(self, path: str, other: str) -> None:
        """Rename the file if it exists."""
        source, final = self._written(path), self._written(other)
        _make_directory(final.parent)
        with contextlib.suppress(FileNotFoundError):
            os.replace(source, final)
        _sync(final.parent)

    def remove(self, path: str) -> None:
        """Remove the file if it exists."""
        self._written(path).unlink(missing_ok=True)

    def remove_scratch(self, directories: Collection[str]) -> None:
        """Remove the scratch files in these directories."""
        for directory in directories:
            for name in self.names(directory):
                if name.startswith(".") and name.endswith(SCRATCH_SUFFIX):
                    self.remove(f"{directory}/{name}".lstrip("/"))

    def lock(self) -> AbstractContextManager[object]:
        """Lock a file (flock) until the context ends.  Raises Locked while another process holds the lock."""
        file = (self._folder / LOCK).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Locked(f"another export into {self._folder} is running") from None
        return file

    def _at(self, path: str) -> Path:
        """Return the file or directory with this path.  Raises PathOutsideTarget."""
        return self._folder / checked(path, self.location)

    def _written(self, path: str) -> Path:
        """As `_at`, for what is created or removed: symbolic links on the way must stay in the target."""
        found = self._at(path)
        root = os.path.realpath(self._folder)
        parent = os.path.realpath(found.parent if path else found)
        if parent != root and not parent.startswith(f"{root.rstrip('/')}/"):
            raise PathOutsideTarget(
                f"{found} is not in {self.location}, but in {parent}, by a symbolic link: nothing is written there; "
                "export to that folder itself, or mount it"
            )
        return found


def link_if_absent(scratch: Path, final: Path) -> bool:
    """Link the file to another name; return False if that name exists.

    Raises OSError, with a remedy without hard links.
    """
    try:
        os.link(scratch, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise OSError(error.errno, "the file system has no hard links; export to one that has", str(final)) from error
    return True


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    if path.parent != path:
        _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)
