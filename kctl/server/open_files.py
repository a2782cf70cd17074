"""How many files this process may have open.

Every segment that takes appends or has been read holds a descriptor, and every connection one more.  Systems start
processes with a low soft limit, often 1024, and let them raise it themselves up to the hard one.
"""

from __future__ import annotations

import contextlib
import resource

from kctl.limits import RESERVED_DESCRIPTORS

FOR_THE_REST = 1_000
"""Connections, checkpoints, indexes while they are written, and what the interpreter has open."""


def raise_limit() -> int:
    """Sets the soft limit to the hard one, where the system lets us; answers what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """How many may be open at once."""
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft


def descriptors_for_connections(limit: int) -> int:
    """Connections are refused whose descriptor is this number or above; the others are left to log files."""
    if limit in {resource.RLIM_INFINITY, -1}:
        return 1 << 31
    return limit - min(RESERVED_DESCRIPTORS, limit // 4)


def shortage(limit: int, *, segments: int) -> str | None:
    """What to tell the operator when so many segments may not all be open at once; None when they may."""
    needed = segments + FOR_THE_REST
    if limit in {resource.RLIM_INFINITY, -1} or limit >= needed:
        return None
    return (
        f"the limit of {limit} open files is too low for {segments} segments and their clients: allow {needed} or more "
        "(ulimit -n, LimitNOFILE); when it is reached, log directories go offline"
    )
