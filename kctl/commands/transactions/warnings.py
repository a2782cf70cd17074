"""Warnings about brokers and coordinators that did not respond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.outcome import Outcome


def warn_of_failures(run: Invocation, failed: Sequence[Outcome]) -> ExitStatus:
    """Writes errors to stderr, because stdout contains Kafka's output."""
    for one in failed:
        run.console.warn(f"{one.name}: {one.message}")
    return ExitStatus.FAILED if failed else ExitStatus.DONE
