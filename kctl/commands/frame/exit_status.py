"""The exit statuses of kctl.  They are stable: scripts depend on them, so a number never changes its meaning."""

from __future__ import annotations

from enum import IntEnum

from kctl.errors import KctlError


class ExitStatus(IntEnum):
    """The status that a command returns; `kctl.cli` passes it to the operating system."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNMET = 3
    UNREACHABLE = 4
    REFUSED = 5
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[int, str] = {
    ExitStatus.DONE: "success",
    ExitStatus.FAILED: "failed, or at least one item failed (its row has the reason)",
    ExitStatus.USAGE: "invalid usage or configuration",
    ExitStatus.UNMET: "a condition that was checked does not hold",
    ExitStatus.UNREACHABLE: "the cluster could not be reached or did not respond in time",
    ExitStatus.REFUSED: "refused for safety, or not confirmed",
    ExitStatus.INTERRUPTED: "interrupted (SIGINT)",
    ExitStatus.TERMINATED: "terminated (SIGTERM)",
}


class Refused(KctlError):
    """A destructive operation was not confirmed; exit status 5."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived.  A subclass of KeyboardInterrupt, which asyncio propagates after cleanup."""
