"""The disk as a port, and the real disk behind it.

Everything that storage does to files passes here, so that a simulated disk (kctl.testing.sim_files) can fail the n-th
operation, tear writes and forget what was not synced.  Paths are text.  All calls raise OSError and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file.  Reads and writes name their position; there is no shared cursor."""

    @property
    def path(self) -> str:
        """Where the file was when it was opened; renaming does not change it."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; shorter only at the end of the file."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """All of `data` at `position`."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with a hole that reads as zeros."""
        ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return when the content is on the disk."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile.  A simulated file has none and raises OSError."""
        ...

    def close(self) -> None:
        """Closing twice does nothing."""
        ...


class Lock(Protocol):
    """An exclusive lock on a directory, held until released or until the process ends."""

    def release(self) -> None: ...


class Entry(Protocol):
    """One name in a directory."""

    @property
    def name(self) -> str: ...

    @property
    def is_directory(self) -> bool: ...

    @property
    def size(self) -> int: ...


class Files(Protocol):
    """What storage asks of a disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        """An existing file for reading and writing, created empty when missing if `create`."""
        ...

    def list(self, directory: str) -> list[Entry]:
        """What the directory holds, by name."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Time of the last change of the content, on the disk's clock."""
        ...

    def set_modified_ms(self, path: str, time_ms: int) -> None: ...

    def read(self, path: str) -> bytes:
        """The whole content of a small file."""
        ...

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the file by way of `path.tmp` and a rename; readers see the old or the new content.

        Without `sync` a power failure may leave either, or an empty file.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; existing is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move within the disk, replacing a file at `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory are on the disk."""
        ...

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, created if missing.  Raises BlockingIOError when another process holds it."""
        ...


class RealFile:
    """A file of the operating system; closed at the latest when nobody refers to it any more."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def read_at(self, position: int, size: int) -> bytes:
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
        size = len(data)
        written = os.pwrite(self._fd, data, position)
        while written < size:
            written += os.pwrite(self._fd, memoryview(data)[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        os.fsync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
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
    """A flock; the kernel releases it when the process dies."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFiles:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def list(self, directory: str) -> list[Entry]:
        entries: list[Entry] = []
        with os.scandir(directory) as found:
            for entry in found:
                is_directory = entry.is_dir()
                size = 0 if is_directory else entry.stat().st_size
                entries.append(RealEntry(entry.name, is_directory=is_directory, size=size))
        entries.sort(key=lambda entry: entry.name)
        return entries

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        draft = path + ".tmp"
        with open(draft, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)
