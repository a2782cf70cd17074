"""Where Linux, macOS and other POSIX systems differ, and the commands of processes that kctl starts."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Protocol

# Where Linux, macOS and other POSIX systems differ: the only module that looks at what a system has.
#
# The best call is chosen when this module is imported; the fallbacks work everywhere. docs/platforms.md lists them.


MSG_MORE = 0x8000 if sys.platform == "linux" else 0
"""socket.MSG_MORE, a flag of `send`: more follows at once, so that the system may wait for it to fill a packet."""

_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_HAS_SENDFILE = hasattr(os, "sendfile")
_HAS_PREADV = hasattr(os, "preadv")
_HAS_MEMORY_FILES = hasattr(os, "memfd_create")
_HAS_PIDFD = hasattr(os, "pidfd_open")
_HAS_AFFINITY = hasattr(os, "sched_getaffinity")
_PROCESSES = Path("/proc")
_COPIED_BYTES_MAX = 1 << 17
_SYNCED_FILE_SYSTEMS = frozenset({"ext3", "ext4", "xfs"})
"""Those whose code was read: syncfs followed by one fsync also flushes the cache of the drive.  Overlays, for example,
do not report the errors of what is below them."""
_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)
_WAIT_BEFORE = 1
"""SYNC_FILE_RANGE_WAIT_BEFORE of Linux: waits for writes, and reports an error of one that nobody was told of."""
_OPEN_FILES_MAX = (1 << 20, 1 << 18, 1 << 16, 10_240)
"""Limits to try where the hard limit is infinite: macOS refuses more than kern.maxfilesperproc, which differs."""


LARGE_BLOCK_BYTES = 4 << 20
"""More than the usual requests of producers: with 256 KiB, new pages for each of them doubled the cost of producing."""
_FREE_END_BYTES = 8 * LARGE_BLOCK_BYTES
"""More than the threads that recompress records free at a time: with 8 MiB, they wrote to new pages for each request,
and batches of 2 MB took four times the processor time."""
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
"""From malloc.h of glibc."""


def private_pages(size: int) -> mmap.mmap:
    """Return new memory of `size` bytes, page-aligned and filled with zeros.  Raises OSError.

    Unlike the default of `mmap.mmap(-1, size)`, a process that is forked later does not share it: two brokers of which
    one process was the parent would write into each other's buffers.
    """
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def boot_id() -> str | None:
    """Return what this start of the machine's kernel is called, which no other start and no other machine has.

    None where the system has no such name.  Containers of one machine have the same.
    """
    try:
        return (_PROCESSES / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def flush_to_disk(descriptor: int) -> None:
    """Return when the content of a file or directory is on the disk.  Raises OSError.

    On macOS fsync returns when the drive has the data in its cache, which is lost with the power.
    """
    if _FULL_FSYNC is not None:
        # File systems without it, such as those of networks, refuse it.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _FULL_FSYNC)
            return
    os.fsync(descriptor)


def sync_file_systems(descriptors: Sequence[int]) -> bool:
    """Write the file systems of these files to the disk as a whole, which for many files takes less time than
    `flush_to_disk` of each.

    Return whether that was possible and without any error: then the files and the names in their directories are on
    the disk.  Otherwise use `flush_to_disk`, which tells what is wrong with which file.
    """
    calls = _file_system_calls()
    by_device: dict[int, int] = {}
    try:
        for descriptor in descriptors:
            by_device.setdefault(os.fstat(descriptor).st_dev, descriptor)
        if calls is None or not by_device.keys() <= _devices_to_sync():
            return False
        sync, wait_for = calls
        if any(map(sync, by_device.values())) or any(map(wait_for, descriptors)):
            return False
        for descriptor in by_device.values():
            os.fsync(descriptor)  # XFS does not flush the cache of the drive in syncfs if its log has nothing to write.
    except OSError:
        return False
    return True


@cache
def _file_system_calls() -> tuple[Callable[[int], int], Callable[[int], int]] | None:
    """Return syncfs, and the check of one file for errors, which return 0 if there are none; None without them."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None or (int(release[1]), int(release[2])) < _SYNCFS_REPORTS_ERRORS_SINCE:
        return None
    import ctypes  # noqa: PLC0415 - commands do not need it

    library = ctypes.CDLL(None)
    sync, check = getattr(library, "syncfs", None), getattr(library, "sync_file_range", None)
    if sync is None or check is None:
        return None
    check.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return sync, lambda descriptor: check(descriptor, 0, 0, _WAIT_BEFORE)


def _devices_to_sync() -> set[int]:
    """Return the numbers of the devices with a file system that can be synced as a whole.  Raises OSError."""
    devices = set()
    for line in (_PROCESSES / "self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        mount, _, source = line.partition(" - ")
        if source.partition(" ")[0] in _SYNCED_FILE_SYSTEMS:
            major, _, minor = mount.split()[2].partition(":")
            devices.add(os.makedev(int(major), int(minor)))
    return devices


def send_file(target: int, source: int, position: int, size: int) -> int:
    """Send a range of a file to a socket; return how many bytes, 0 at the end of the file.

    Without sendfile the bytes are copied, at most 128 KiB.  Raises OSError, BlockingIOError if the socket is full.
    """
    if _HAS_SENDFILE:
        return os.sendfile(target, source, position, size)
    data = os.pread(source, min(size, _COPIED_BYTES_MAX), position)
    return os.write(target, data) if data else 0


def watch_hang_up(descriptor: int) -> int | None:
    """Return a new descriptor that becomes readable when the other end of a pipe or terminal is closed.

    None without epoll.  Raises OSError for a file, which cannot hang up.
    """
    if not hasattr(select, "epoll"):
        return None
    epoll = select.epoll()
    try:
        epoll.register(descriptor, 0)  # Hang-ups and errors are always reported.
        return os.dup(epoll.fileno())
    finally:
        epoll.close()


def read_into(source: int, buffer: memoryview, position: int) -> int:
    """Read a range of a file into a buffer; return how many bytes, fewer than its size at the end of the file."""
    if _HAS_PREADV:
        return os.preadv(source, [buffer], position)
    data = os.pread(source, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


@contextlib.contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Provide the path of a file that only this process can find, for libraries that read secrets from files only.

    It is in memory where the system supports that, else it has mode 0600 and is deleted on leaving.
    """
    if _HAS_MEMORY_FILES and _PROCESSES.is_dir():
        descriptor = os.memfd_create("kctl-key", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as memory:
            memory.write(data)
            memory.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        import tempfile  # noqa: PLC0415 - rarely used

        with tempfile.NamedTemporaryFile() as private:
            private.write(data)
            private.flush()
            yield private.name


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """SIGINT and SIGTERM are delivered after the block; SIGKILL cannot be delayed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class HasDescriptor(Protocol):
    """What an event loop can wait for."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


class _Descriptor:
    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def __del__(self) -> None:
        os.close(self._number)


def end_of_process(pid: int) -> HasDescriptor | None:
    """Return a descriptor that becomes readable when the process ends, whatever ends it; None if the system has none.

    A pidfd on Linux, a kqueue on macOS.  Raises ProcessLookupError if there is no such process.
    """
    if _HAS_PIDFD:
        try:
            return _Descriptor(os.pidfd_open(pid))
        except ProcessLookupError:
            raise
        except OSError:  # An old kernel, or a sandbox that does not permit the call.
            return None
    if sys.platform != "linux" and hasattr(select, "kqueue"):
        queue = select.kqueue()
        event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
        queue.control([event], 0)
        return queue
    return None


def is_process_alive(pid: int) -> bool:
    """Return whether the process exists; one that has ended and that its parent has not waited for does not, on
    Linux.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    with contextlib.suppress(OSError, IndexError):
        return (_PROCESSES / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    return True


def raise_open_files_limit() -> int:
    """Raise the soft limit on open files as far as the system permits; return it (-1 for none)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    attempts = [hard]
    if hard == resource.RLIM_INFINITY:
        attempts += [limit for limit in _OPEN_FILES_MAX if limit > soft]
    for limit in attempts if soft not in {hard, resource.RLIM_INFINITY} else []:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            break
    return open_files_limit()


def open_files_limit() -> int:
    """Return the soft limit on open files; -1 for none."""
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def limit_freed_memory() -> bool:
    """Limit the freed memory that the C library keeps; call it before threads are started.

    Blocks of at least LARGE_BLOCK_BYTES are returned to the system when they are freed.  glibc ceases to do so once a
    larger block has been freed, and keeps fragments between smaller ones: a broker that used 60 MB held 170 MB after
    requests of 19 MB each.

    All threads share one heap.  glibc makes one for each thread, and keeps the free end of each, also in malloc_trim:
    18 MB after the compaction of 250,000 keys.  Threads rarely wait for each other, because most memory is taken by
    the thread that holds the interpreter lock.

    False where the C library has no such settings.
    """
    import ctypes  # noqa: PLC0415 - commands do not need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Without the third one, glibc returns the end of the heap whenever 128 KiB of it are free.
    settings = ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES), (_M_TRIM_THRESHOLD, _FREE_END_BYTES))
    return mallopt is not None and all(mallopt(*setting) == 1 for setting in settings)


def heap_trim() -> Callable[[], object] | None:
    """Return a function that returns free pages of the heap to the system; None where the C library has none.

    glibc itself returns only the end of the heap, when much of it is free.  The function may be called in any thread,
    and lets the others run Python meanwhile.
    """
    import ctypes  # noqa: PLC0415 - commands do not need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else partial(trim, ctypes.c_size_t(0))


def resident_bytes() -> int | None:
    """Return the memory of this process that is in use, in pages of the system; None where the system does not count
    it.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROCESSES / "self" / "statm").read_bytes().split()[1]) * mmap.PAGESIZE
    return None


def lacks_profile_guided_optimization() -> bool:
    """Return whether this CPython was certainly built without `--enable-optimizations`.

    False where the build does not tell: Debian's optimizes by options of its own, and leaves PGO_PROF_USE_FLAG empty.
    """
    import sysconfig  # noqa: PLC0415 - reads a large module, and only --version and the bundle ask

    options, flag = sysconfig.get_config_vars("CONFIG_ARGS", "PGO_PROF_USE_FLAG")
    return bool(flag) and isinstance(options, str) and "--enable-optimizations" not in options


def usable_processors() -> int:
    """Return the number of processors that this process may use; all of the machine where the system does not restrict
    it.
    """
    return len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1


def disk_bytes() -> tuple[int, int] | None:
    """Return the bytes that this process caused to be read from and written to disks; None where the system does not
    count.
    """
    with contextlib.suppress(OSError, ValueError):
        values = dict(line.split(": ") for line in (_PROCESSES / "self" / "io").read_text().splitlines())
        if "read_bytes" in values and "write_bytes" in values:
            return int(values["read_bytes"]), int(values["write_bytes"])
    return None


class ProcessorWaits:
    """How long the thread that makes it has waited for a processor."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(_PROCESSES / "thread-self" / "schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def seconds(self) -> float:
        """Return the sum since the thread began; 0 where the system does not count it."""
        if self._descriptor is None:
            return 0.0
        return int(os.pread(self._descriptor, 100, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Close the file of the system; the sum is 0 from now on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def list_open_files(pid: int) -> list[str]:
    """Return the paths of the files that a process has open.

    Raises OSError, also on systems that do not report them.
    """
    paths = []
    for descriptor in (_PROCESSES / str(pid) / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
            paths.append(os.readlink(descriptor))
    return paths


# Processes that kctl starts.


def lower_priority(niceness: int, out_of_memory_score: int) -> None:
    """Let others have the processors first; when memory is short, the kernel ends this process before the others.

    `out_of_memory_score` is from 0 to 1000, and has an effect on Linux only.
    """
    with contextlib.suppress(OSError):
        os.nice(niceness)
    with contextlib.suppress(OSError):
        (_PROCESSES / "self" / "oom_score_adj").write_text(str(out_of_memory_score))


def module_command(name: str) -> list[str]:
    """Return the beginning of a command line that runs a module of kctl in a process of its own.

    With -P, Python does not search the current directory for modules.  Otherwise it would execute a file there that is
    named like a module of the standard library.
    """
    return [sys.executable, "-P", "-m", name]
