"""The throttle of a reassignment as a command sees it: set, told about, and given back whatever happens."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.admin.throttle_records import ThrottleRecords, folder_of
from kctl.admin.throttling import Restored, describe_change, finished_keys, name_of, release_throttles, set_throttles
from kctl.commands.invocation import Invocation
from kctl.commands.signals import signals_wait
from kctl.errors import KctlError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kctl.admin.reassignment_plan import Move
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition


def records_of(state_dir: str | None, cluster_id: str | None) -> ThrottleRecords:
    """Where throttles of this cluster are remembered."""
    if state_dir:
        folder = Path(state_dir).expanduser().absolute()
    else:
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        folder = Path(home).expanduser() / "kctl" / "reassign"
    return ThrottleRecords(folder_of(folder, cluster_id))


async def throttle(
    run: Invocation, client: ClusterClient, records: ThrottleRecords, key: str, moves: Collection[Move], rate: int
) -> None:
    """Set the throttle; brokers that are away are told and left out."""
    for away in await set_throttles(client, records, key, moves, rate):
        run.console.warn(f"broker {away.name} is not available, so no throttle was set there: {away.message}")


def restore(run: Invocation, records: ThrottleRecords, keys: Iterable[str]) -> Restored:
    """Give back what these records hold, and say so.  A signal waits until that is done.

    What could not be given back is told as well, and stays remembered.
    """
    with signals_wait(), records.locked():
        restored = run.on_brokers(lambda client: release_throttles(client, records, keys))
        for resource, change in restored.settings:
            run.console.note(describe_change(resource, change))
        for resource, name, value in restored.foreign:
            run.console.warn(f"{name_of(resource)}: {name} is {value or 'not set'} by now, which is not ours; it stays")
        for resource, outcome in restored.failed:
            run.console.warn(
                f"the throttle of {name_of(resource)} could not be restored ({outcome.message}); "
                "'kctl reassign verify' tries again"
            )
    return restored


def restore_finished(run: Invocation, records: ThrottleRecords, under_way: Collection[TopicPartition]) -> Restored:
    """Give back what is held for partitions of which none is on its way any more."""
    return restore(run, records, finished_keys(records, under_way))


def tell_kept(run: Invocation, rate: int, state_dir: str | None) -> None:
    """Say that the throttle stays, because data may still be moving, and what restores the settings from before."""
    command = f"kctl reassign verify{run.cluster_options()}"
    if state_dir:
        command += f" --state-dir {shlex.quote(state_dir)}"
    run.console.warn(
        f"the throttle of {rate} bytes/s stays, because the partitions may still be moving; "
        f"when they have moved, this lifts it: {command}"
    )


def restore_after_failure(run: Invocation, records: ThrottleRecords, key: str) -> None:
    """Give back what can be while an exception is on its way, which must not be hidden by another."""
    try:
        restore(run, records, [key])
    except KctlError as error:
        run.console.warn(f"the throttle could not be restored ({error}); 'kctl reassign verify' tries again")
