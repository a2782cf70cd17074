"""The exit statuses of kctl.  They are a contract: scripts branch on them, so a number never changes its meaning."""

from __future__ import annotations

from enum import IntEnum

from kctl.errors import KctlError


class ExitStatus(IntEnum):
    """What a command returns; `kctl.cli` hands it to the operating system."""

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
    ExitStatus.FAILED: "failed, or at least one item failed (its row says why)",
    ExitStatus.USAGE: "invalid usage or configuration",
    ExitStatus.UNMET: "a condition that was checked does not hold",
    ExitStatus.UNREACHABLE: "the cluster could not be reached or did not answer in time",
    ExitStatus.REFUSED: "refused for safety, or not confirmed",
    ExitStatus.INTERRUPTED: "interrupted (SIGINT)",
    ExitStatus.TERMINATED: "terminated (SIGTERM)",
}


class Refused(KctlError):
    """Something destructive was asked for without consent; exit status 5."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived.  A KeyboardInterrupt, because that is what asyncio lets through so that cleanup runs."""
