"""Runs `kctl` as on a system that has none of what Linux has beyond POSIX: `python -m tests.peers.other_system ...`.

The names are removed from Python's modules before kctl is imported.  F_FULLFSYNC of macOS is added, as a command that
this system refuses, as macOS does on some file systems.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import select
import signal
import socket
from pathlib import Path

REMOVED = {
    os: (
        *("memfd_create", "MFD_CLOEXEC", "preadv", "pwritev", "pipe2", "posix_fadvise", "posix_fallocate"),
        *("sched_getaffinity", "copy_file_range", "eventfd", "fdatasync", "getrandom", "pidfd_open", "splice"),
        *("O_DIRECT", "O_PATH", "O_TMPFILE"),
    ),
    socket: (
        *("MSG_MORE", "MSG_NOSIGNAL", "SO_REUSEPORT", "SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
        *("TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_KEEPIDLE"),
    ),
    select: ("epoll",),
    mmap: ("MAP_POPULATE", "MADV_DONTNEED"),
    resource: ("prlimit", "RUSAGE_THREAD"),
    signal: ("sigtimedwait", "sigwaitinfo"),
}
UNKNOWN_COMMAND = 9999


def become_other_system() -> None:
    """Removes the names of Linux from this process."""
    for module, names in REMOVED.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    # Python's own libraries use sendfile only if it is there when they are imported.
    del os.sendfile
    if hasattr(os, "process_cpu_count"):  # Since Python 3.13; it calls sched_getaffinity if the system has that.
        os.process_cpu_count = os.cpu_count
    setattr(fcntl, "F_FULLFSYNC", UNKNOWN_COMMAND)  # noqa: B010 - not a name of this system's module
    from kctl.system import operating_system  # noqa: PLC0415 - after the removal

    operating_system._PROCESSES = Path("/no/such/folder")
    operating_system.MSG_MORE = 0


def main() -> None:
    become_other_system()
    from kctl.__main__ import main as kctl  # noqa: PLC0415 - same

    kctl()


if __name__ == "__main__":
    main()
