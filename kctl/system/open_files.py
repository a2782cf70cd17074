"""The limit on open files of this process.

Every segment that takes appends or has been read has a descriptor, and so has every connection.  Systems start
processes with a low soft limit, often 1024, which they may raise themselves up to the hard limit.
"""

from __future__ import annotations

from kctl.limits import Subject, bound
from kctl.system.operating_system import open_files_limit, raise_open_files_limit

RESERVED_DESCRIPTORS = bound(
    Subject.CONNECTIONS,
    "file descriptors reserved for log files and checkpoints (at most a quarter of the process's limit)",
    2_048,
    "descriptors",
    on_excess="new connections are closed and logged",
)
SCARCE_DESCRIPTORS = bound(
    Subject.CONNECTIONS,
    "the part of them that is left for other files than segments (at most an eighth of the process's limit)",
    1_024,
    "descriptors",
    on_excess="the segments that were opened first are closed until they are used again",
)


OTHER_DESCRIPTORS = 1_000
"""Connections, checkpoints, indexes that are being written, and files of the interpreter."""


def raise_limit() -> int:
    """Set the soft limit to the hard one, if allowed; return the new limit, -1 for none."""
    return raise_open_files_limit()


def limit() -> int:
    """Return the soft limit; -1 for none."""
    return open_files_limit()


def descriptors_for_connections(limit: int) -> int:
    """Return the descriptor from which on connections are refused; the rest is reserved for log files."""
    if limit < 0:
        return 1 << 31
    return limit - min(RESERVED_DESCRIPTORS, limit // 4)


def descriptors_for_segments(limit: int) -> int:
    """From this descriptor on, files of segments are closed when further ones are opened."""
    if limit < 0:
        return 1 << 31
    return limit - min(SCARCE_DESCRIPTORS, limit // 8)


def shortage(limit: int, *, segments: int) -> str | None:
    """Return a warning if the limit is too low for all segments to be open at once; None if it is not."""
    needed = segments + OTHER_DESCRIPTORS
    if limit < 0 or limit >= needed:
        return None
    return (
        f"the limit of {limit} open files is too low for {segments} segments and their clients: allow {needed} or more "
        "(ulimit -n, LimitNOFILE); when it is reached, segments are closed and opened again, which takes time"
    )
