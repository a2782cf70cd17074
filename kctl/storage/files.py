"""The file system interface of storage, and its implementation by the operating system.

All file access of storage goes through `Files`, so that a simulated disk (kctl.testing.sim_files) can fail the n-th
operation, tear writes and lose data that was not synced.  Paths are text.  All calls raise OSError and nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
import shutil
import stat
from collections.abc import Iterable, Sequence
from typing import Protocol

from kctl.system.operating_system import flush_to_disk, sync_file_systems

Buffer = bytes | bytearray | memoryview
_SYNCED_TOGETHER_MIN = 128
"""Fewer files are synced one by one, because a file system may have much to write that is not of these files."""


class File(Protocol):
    """An open file.  Reads and writes take a position; there is no shared cursor."""

    @property
    def path(self) -> str:
        """The path when the file was opened; a rename does not change it."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with a hole that reads as zeros."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""

    def sync(self) -> None:
        """Return when the content is on the disk (fsync)."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for sendfile.  A simulated file has none and raises OSError."""
        ...

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        ...


class Lock(Protocol):
    """An exclusive lock on a directory, held until released or until the process ends."""

    def release(self) -> None:
        """Release the lock."""


class Entry(Protocol):
    """An entry of a directory."""

    @property
    def name(self) -> str:
        """The name without the directory."""

    @property
    def is_directory(self) -> bool:
        """True for a directory."""

    @property
    def size(self) -> int:
        """The size in bytes."""


class Files(Protocol):
    """The file system operations that storage needs."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; with `create` a missing file is created empty."""
        ...

    def list(self, directory: str) -> list[Entry]:
        """Return the entries of the directory, sorted by name."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""

    def stamp(self, path: str) -> tuple[int, int]:
        """Return the size and a number that differs after a change of the file, or of the names in the directory."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the modification time in ms since the epoch."""
        ...

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the modification time in ms since the epoch."""

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        ...

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the file by writing `path.tmp` and renaming it; readers see the old or the new content.

        Without `sync`, after a power failure the file may have either content or be empty.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory within the file system, replacing a file at `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content; a missing one is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the entries of the directory are on the disk."""
        ...

    def sync_together(self, files: Sequence[File]) -> bool:
        """Sync these files and the entries of their directories at once, if that takes less time than one by one.

        False if they are still to be synced one by one, which also tells the error if there was one.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, created if missing.  Raises BlockingIOError when another process holds it."""
        ...


class RealFile:
    """A file of the operating system; closed at the latest by the garbage collector."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def read_at(self, position: int, size: int) -> bytes:
        """See File.read_at."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        done = len(data)
        while done < size and (data := os.pread(self._fd, size - done, position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def write_at(self, position: int, data: Buffer) -> None:
        """See File.write_at."""
        size = len(data)
        written = os.pwrite(self._fd, data, position)
        while written < size:
            written += os.pwrite(self._fd, memoryview(data)[written:], position + written)

    def truncate(self, size: int) -> None:
        """See File.truncate."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """See File.size."""
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        """See File.sync."""
        flush_to_disk(self._fd)

    def fileno(self) -> int:
        """See File.fileno."""
        return self._fd

    def close(self) -> None:
        """See File.close."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealEntry:
    """A directory entry with its size."""

    __slots__ = ("is_directory", "name", "size")

    def __init__(self, name: str, *, is_directory: bool, size: int) -> None:
        self.name = name
        self.is_directory = is_directory
        self.size = size


class RealLock:
    """A flock and a POSIX lock; the kernel releases both when the process ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock and close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _open_regular(path: str, flags: int) -> int:
    """Return a descriptor of the file.  Raises OSError for anything else: to open or read a pipe may take for ever."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code) if code == errno.EISDIR else "not a regular file", path)
    return fd


class RealFiles:
    """The file system of the operating system."""

    def open(self, path: str, *, create: bool = False) -> File:
        """See Files.open."""
        return RealFile(path, _open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def list(self, directory: str) -> list[Entry]:
        """See Files.list."""
        entries: list[Entry] = []
        with os.scandir(directory) as found:
            for entry in found:
                is_directory = entry.is_dir()
                size = 0 if is_directory else entry.stat().st_size
                entries.append(RealEntry(entry.name, is_directory=is_directory, size=size))
        entries.sort(key=lambda entry: entry.name)
        return entries

    def exists(self, path: str) -> bool:
        """See Files.exists."""
        return os.path.exists(path)

    def size(self, path: str) -> int:
        """See Files.size."""
        return os.stat(path).st_size

    def stamp(self, path: str) -> tuple[int, int]:
        """See Files.stamp; the number is the modification time in ns."""
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns

    def modified_ms(self, path: str) -> int:
        """See Files.modified_ms."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """See Files.set_modified_ms."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def read(self, path: str) -> bytes:
        """See Files.read."""
        with open(_open_regular(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """See Files.write_atomically."""
        draft = path + ".tmp"
        with open(_open_regular(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                flush_to_disk(file.fileno())
        os.replace(draft, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        """See Files.make_directory."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See Files.rename."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """See Files.remove."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """See Files.remove_tree."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def sync_directory(self, path: str) -> None:
        """See Files.sync_directory."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flush_to_disk(fd)
        finally:
            os.close(fd)

    def sync_together(self, files: Sequence[File]) -> bool:
        """See Files.sync_together."""
        return len(files) >= _SYNCED_TOGETHER_MIN and sync_file_systems([file.fileno() for file in files])

    def lock(self, path: str) -> Lock:
        """See Files.lock."""
        fd = _open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Java's FileLock, which Apache Kafka takes, does not see a flock.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)


# Restricts file access to the log directories.
#
# Names are validated where they enter. This is the second line of defence: if a validation is missing, the operation
# fails and no file outside of the log directories is created, changed or removed. Paths are compared as text.
# Symbolic links are followed, because an operator may place a log directory or the directory of a log on another disk
# with one; clients cannot create links.


class PathOutsideLogDirectories(ValueError):
    """A path outside of the log directories: a name was not validated, which is a bug in kctl."""


class ConfinedFiles:
    """A kctl.storage.files.Files that delegates to another one, for paths at or below the given directories."""

    def __init__(self, files: Files, directories: Iterable[str]) -> None:
        self._files = files
        self._roots = frozenset(posixpath.abspath(str(directory)) for directory in directories)
        self._prefixes = tuple(f"{root.rstrip('/')}/" for root in self._roots)

    @property
    def are_real(self) -> bool:
        """Whether these are the files of the operating system, which other processes can open."""
        return type(self._files) is RealFiles

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

    def stamp(self, path: str) -> tuple[int, int]:
        """See Files.stamp."""
        return self._files.stamp(self._inside(path))

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

    def sync_together(self, files: Sequence[File]) -> bool:
        """See Files.sync_together."""
        return self._files.sync_together(files)

    def lock(self, path: str) -> Lock:
        """See Files.lock."""
        return self._files.lock(self._inside(path))
