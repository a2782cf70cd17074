"""A disk in memory with injected failures: kctl.storage.files.Files for tests.

    disk = SimFiles()
    disk.fail_at(7)              the 7th operation from now on and all later ones raise OSError(EIO)
    disk.crash(random)           power failure: a prefix of the unsynced writes survives, the last one possibly torn
    disk.kill()                  process crash: the disk keeps everything, locks are released

Changes of names (create, rename, remove) are durable at once, nearly as on a journaling file system; the contents of a
file are durable after its sync.  So after a rename without a previous sync and a power failure, the new name may refer
to an empty file.  Open files stay valid after rename and removal.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections.abc import Sequence
from zlib import crc32

from kctl.storage.files import Buffer, Entry, File, Lock, RealEntry
from kctl.system.environment import Random


class _Content:
    """Contents of a file: as written, as on disk, and the pending writes between them.

    Zeros at the end use no memory, like the hole of a preallocated file: `data` ends at the last written byte.
    """

    __slots__ = ("data", "modified_ms", "pending", "size", "synced", "synced_size")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.size = 0
        self.synced = b""
        self.synced_size = 0
        self.pending: list[tuple[int, bytes | None]] = []
        """(position, bytes written there) or (size, None) for a truncation, since the last sync."""
        self.modified_ms = modified_ms

    def read(self, position: int, size: int) -> bytes:
        size = max(min(size, self.size - position), 0)
        return bytes(self.data[position : position + size]).ljust(size, b"\0")

    def write(self, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        self.size = max(self.size, len(self.data))
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.size = size
        self.pending.append((size, None))

    def sync(self) -> None:
        self.synced = bytes(self.data)
        self.synced_size = self.size
        self.pending.clear()

    def lose_power(self, random: Random) -> None:
        """Reverts to the synced contents plus a random prefix of the pending writes."""
        survivors = self.pending[: random.randrange(0, len(self.pending) + 1)]
        is_torn = bool(survivors) and random.randrange(0, 2) == 1
        self.data = bytearray(self.synced)
        self.size = self.synced_size
        for index, (position, data) in enumerate(survivors):
            if data is None:
                self.truncate(position)
            elif is_torn and index == len(survivors) - 1:
                self.write(position, data[: random.randrange(0, len(data) + 1)])
            else:
                self.write(position, data)
        self.sync()


class SimFile:
    """An open file."""

    __slots__ = ("_content", "_disk", "_is_open", "path")

    def __init__(self, disk: SimFiles, path: str, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._is_open = True
        self.path = path

    def read_at(self, position: int, size: int) -> bytes:
        """Return at most `size` bytes from `position`; fewer at the end of the file."""
        self._step("read")
        return self._content.read(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write at `position`; not durable before `sync`."""
        self._step("write")
        self._content.write(position, bytes(data))
        self._content.modified_ms = self._disk.now_ms

    def truncate(self, size: int) -> None:
        """Set the size; not durable before `sync`."""
        self._step("truncate")
        self._content.truncate(size)
        self._content.modified_ms = self._disk.now_ms

    def size(self) -> int:
        """Return the size in bytes, including what is not durable yet."""
        return self._content.size

    def sync(self) -> None:
        """Make all that was written durable."""
        self._step("sync")
        self._content.sync()

    def fileno(self) -> int:
        """Raise OSError: simulated files have no descriptor."""
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self.path)

    def close(self) -> None:
        """End the use of this object; the file stays on the disk."""
        self._is_open = False

    def _step(self, operation: str) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "file is closed", self.path)
        self._disk.step(operation, self.path)


class _SimLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimFiles, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimFiles:
    """The disk."""

    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}
        self._directories: set[str] = {"/"}
        self._names = threading.Lock()
        """Held while names are read or changed: threads that open logs share the disk."""
        self.locks: set[str] = set()
        self.now_ms = 0
        """Modification time of changed files."""
        self.syncs_together = False
        """Whether `sync_together` syncs, as a real file system does for many files."""
        self.operations = 0
        """Number of operations so far that can fail."""
        self._fails_from: int | None = None
        self._error = errno.EIO

    def fail_at(self, operation: int | None, *, error: int = errno.EIO) -> None:
        """Make the n-th operation from now on and all later ones raise OSError(`error`); None removes the failure."""
        self._fails_from = None if operation is None else self.operations + operation
        self._error = error

    @property
    def has_failed(self) -> bool:
        """Whether an operation has failed since `fail_at`."""
        return self._fails_from is not None and self.operations >= self._fails_from

    def crash(self, random: Random) -> None:
        """Simulate a power failure: unsynced writes may be lost; remove injected failures."""
        for path in sorted(self._contents):
            self._contents[path].lose_power(random)
        self.kill()

    def kill(self) -> None:
        """Simulate a process crash: only locks are lost; remove injected failures."""
        self.locks.clear()
        self._fails_from = None

    def step(self, operation: str, path: str) -> None:
        """Count an operation; raise OSError if it has to fail."""
        self.operations += 1
        if self.has_failed:
            raise OSError(self._error, f"{os.strerror(self._error)} (simulated, {operation})", path)

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file.  Raises FileNotFoundError for a missing file without `create`, or a missing directory."""
        content = self._contents.get(path)
        if content is None:
            if not create or posixpath.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            with self._names:
                content = self._contents.setdefault(path, _Content(self.now_ms))
        return SimFile(self, path, content)

    def list(self, directory: str) -> list[Entry]:
        """Return the files and directories in the directory, by name.  Raises FileNotFoundError."""
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        with self._names:
            entries: list[Entry] = [
                RealEntry(posixpath.basename(path), is_directory=True, size=0)
                for path in self._directories
                if path != directory and posixpath.dirname(path) == directory
            ]
            entries += (
                RealEntry(posixpath.basename(path), is_directory=False, size=content.size)
                for path, content in self._contents.items()
                if posixpath.dirname(path) == directory
            )
        return sorted(entries, key=lambda entry: entry.name)

    def exists(self, path: str) -> bool:
        """Return True for a file or a directory."""
        return path in self._contents or path in self._directories

    def size(self, path: str) -> int:
        """Return the size of the file in bytes.  Raises FileNotFoundError."""
        return self._content(path).size

    def stamp(self, path: str) -> tuple[int, int]:
        """Return the size and a checksum, of the names for a directory.  Raises FileNotFoundError."""
        if path in self._directories:
            return 0, crc32("\0".join(entry.name for entry in self.list(path)).encode())
        content = self._content(path)
        return content.size, crc32(content.read(0, content.size))

    def modified_ms(self, path: str) -> int:
        """Modification time in ms since the epoch.  Raises FileNotFoundError."""
        return self._content(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the modification time in ms since the epoch.  Raises FileNotFoundError."""
        self.step("set time", path)
        self._content(path).modified_ms = time_ms

    def read(self, path: str) -> bytes:
        """Return all bytes of the file.  Raises FileNotFoundError."""
        self.step("read", path)
        content = self._content(path)
        return content.read(0, content.size)

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the file by way of a temporary file and a rename, as the real port does.

        Each of these operations is a step of its own, after which a crash or a failure can happen.
        """
        draft = path + ".tmp"
        file = self.open(draft, create=True)
        file.truncate(0)
        file.write_at(0, data)
        if sync:
            file.sync()
        file.close()
        self.rename(draft, path)
        if sync:
            self.sync_directory(posixpath.dirname(path))

    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents."""
        if path in self._directories:
            return
        self.step("make directory", path)
        with self._names:
            while path not in self._directories:
                self._directories.add(path)
                path = posixpath.dirname(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a directory with its contents; a target file is replaced.  Raises FileNotFoundError."""
        self.step("rename", source)
        with self._names:
            if source in self._contents:
                self._contents[target] = self._contents.pop(source)
            elif source in self._directories:
                self._rename_directory(source, target)
            else:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)

    def _rename_directory(self, source: str, target: str) -> None:
        self._directories = {_moved(path, source, target) for path in self._directories}
        self._contents = {_moved(path, source, target): content for path, content in self._contents.items()}

    def remove(self, path: str) -> None:
        """Remove the file if it exists."""
        self.step("remove", path)
        with self._names:
            self._contents.pop(path, None)

    def remove_tree(self, path: str) -> None:
        """Remove the directory with its contents, if it exists."""
        self.step("remove directory", path)
        inside = path + "/"
        with self._names:
            self._directories = {name for name in self._directories if name != path and not name.startswith(inside)}
            self._contents = {name: kept for name, kept in self._contents.items() if not name.startswith(inside)}

    def sync_directory(self, path: str) -> None:
        """Count the sync; names are durable at once.  Raises FileNotFoundError."""
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.step("sync directory", path)

    def sync_together(self, files: Sequence[File]) -> bool:
        """Sync the files one after the other; a failure leaves some of them synced."""
        try:
            for file in files if self.syncs_together else ():
                file.sync()
        except OSError:
            return False
        return self.syncs_together

    def lock(self, path: str) -> Lock:
        """Lock the file, which is created if necessary.  Raises BlockingIOError while it is locked."""
        self.open(path, create=True)
        if path in self.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
        self.locks.add(path)
        return _SimLock(self, path)

    def _content(self, path: str) -> _Content:
        try:
            return self._contents[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None


def _moved(path: str, source: str, target: str) -> str:
    if path == source:
        return target
    return target + path[len(source) :] if path.startswith(source + "/") else path
