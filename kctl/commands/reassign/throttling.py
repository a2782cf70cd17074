"""The throttles of reassignments: sets and restores them, and shows what was done."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.admin.placement.throttling import (
    Restored,
    ThrottleRecords,
    describe_change,
    finished_keys,
    folder_of,
    name_of,
    release_throttles,
    set_throttles,
)
from kctl.errors import KctlError
from kctl.system.operating_system import signals_wait

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kctl.admin.placement.plan import Move
    from kctl.client.cluster import ClusterClient
    from kctl.commands.frame.invocation import Invocation
    from kctl.model import TopicPartition


def records_of(state_dir: str | None, cluster_id: str | None) -> ThrottleRecords:
    """Return the throttle records of this cluster."""
    if state_dir:
        folder = Path(state_dir).expanduser().absolute()
    else:
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        folder = Path(home).expanduser() / "kctl" / "reassign"
    return ThrottleRecords(folder_of(folder, cluster_id))


async def throttle(
    run: Invocation, client: ClusterClient, records: ThrottleRecords, key: str, moves: Collection[Move], rate: int
) -> None:
    """Set the throttle; warns about unavailable brokers, which get none."""
    for away in await set_throttles(client, records, key, moves, rate):
        run.console.warn(f"broker {away.name} is not available, so no throttle was set there: {away.message}")


def restore(run: Invocation, records: ThrottleRecords, keys: Iterable[str]) -> Restored:
    """Restore the previous values of these records, and show them.  Signals wait until that is done.

    A setting that could not be restored is shown too, and its record stays.
    """
    with signals_wait(), records.locked():
        restored = run.on_brokers(lambda client: release_throttles(client, records, keys))
        for resource, change in restored.settings:
            run.console.note(describe_change(resource, change))
        for resource, name, value in restored.foreign:
            run.console.warn(
                f"{name_of(resource)}: {name} is now {value or 'not set'}, which kctl has not set; it stays"
            )
        for resource, outcome in restored.failed:
            run.console.warn(
                f"the throttle of {name_of(resource)} could not be restored ({outcome.message}); "
                "'kctl reassign verify' tries again"
            )
    return restored


def restore_finished(run: Invocation, records: ThrottleRecords, under_way: Collection[TopicPartition]) -> Restored:
    """Restore the throttles of reassignments without a moving partition."""
    return restore(run, records, finished_keys(records, under_way))


def warn_throttle_stays(run: Invocation, rate: int, state_dir: str | None) -> None:
    """Warn that the throttle stays, because partitions may still be moving, and show the command that removes it."""
    command = f"kctl reassign verify{run.cluster_options()}"
    if state_dir:
        command += f" --state-dir {shlex.quote(state_dir)}"
    run.console.warn(
        f"the throttle of {rate} bytes/s stays, because the partitions may still be moving; "
        f"when they have moved, remove it with: {command}"
    )


def restore_after_failure(run: Invocation, records: ThrottleRecords, key: str) -> None:
    """Restore the throttle while another exception is propagated; an error here is only a warning."""
    try:
        restore(run, records, [key])
    except KctlError as error:
        run.console.warn(f"the throttle could not be restored ({error}); 'kctl reassign verify' tries again")
