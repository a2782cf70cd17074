"""Port for operations on an export folder.  Recovery relies on their order.

A file gets its name when it is complete and on disk: it is written under a temporary name, synced, and published with
link(), which fails if the name exists.  So of two publishers of a name one succeeds, and no reader sees an incomplete
file.  A name is durable after its directory has been synced.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Protocol

from kctl.errors import KctlError
from kctl.operating_system import flush_to_disk

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Locked(KctlError):
    """Another exporter has locked the folder."""


class Files(Protocol):
    """File operations of the commit log and the data writer.  Missing files raise OSError."""

    def make_directory(self, path: Path) -> None:
        """Create the directory and its parents, each durable; an existing one is fine."""
        ...

    def names(self, directory: Path) -> list[str]:
        """Sorted names in the directory; empty if it does not exist."""
        ...

    def read(self, path: Path) -> bytes:
        """All bytes of the file.  Raises FileNotFoundError."""

    def write(self, path: Path, data: bytes) -> None:
        """Create a file that does not exist yet and sync it."""
        ...

    def sync(self, path: Path) -> None:
        """Syncs a file written by another writer."""
        ...

    def publish(self, temporary: Path, final: Path) -> bool:
        """Gives a complete file its name, durably; False if the name exists.

        The temporary name is removed in either case.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def lock(self, path: Path) -> BinaryIO:
        """Take the lock until the returned file is closed or the process ends.  Raises Locked."""
        ...


class DiskFiles:
    """Files on a POSIX file system with hard links."""

    def make_directory(self, path: Path) -> None:
        """Creates the directory and its missing parents, and syncs each parent."""
        if path.is_dir():
            return
        if path.parent != path:
            self.make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync(path.parent)

    def names(self, directory: Path) -> list[str]:
        """The sorted names in the directory; none if it does not exist."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes:
        """All bytes of the file.  Raises FileNotFoundError."""
        return path.read_bytes()

    def write(self, path: Path, data: bytes) -> None:
        """Creates the file and syncs it.  Raises FileExistsError."""
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            flush_to_disk(file.fileno())

    def sync(self, path: Path) -> None:
        """Makes the file or directory durable (fsync)."""
        _sync(path)

    def publish(self, temporary: Path, final: Path) -> bool:
        """Gives the file its final name by a hard link, unless that name exists; False if it did.

        The directory is synced and the temporary name removed in both cases.  Raises OSError where the file system has
        no hard links.
        """
        try:
            os.link(temporary, final)
            is_first = True
        except FileExistsError:
            is_first = False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            raise OSError(
                error.errno, "the file system has no hard links; export to one that has", str(final)
            ) from error
        # Also if another publisher was first: the caller relies on the name, and the other one may crash.
        _sync(final.parent)
        temporary.unlink(missing_ok=True)
        return is_first

    def remove(self, path: Path) -> None:
        """Removes the file if it exists."""
        path.unlink(missing_ok=True)

    def lock(self, path: Path) -> BinaryIO:
        """Locks the file (flock) until it is closed.  Raises Locked while another process holds the lock."""
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Locked(f"another export into {path.parent.parent} is running") from None
        return file


def put_if_absent(files: Files, path: Path, data: bytes, *, temporary: str) -> bool:
    """Creates `path` with `data` atomically; False if it exists.  `temporary` is a unique name."""
    unfinished = path.with_name(temporary)
    files.remove(unfinished)
    files.write(unfinished, data)
    return files.publish(unfinished, path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)
