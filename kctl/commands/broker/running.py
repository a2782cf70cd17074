"""`kctl broker`: status, stop."""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated, NamedTuple

import typer

from kctl.commands.broker.start import DataDir, data_dir_of
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.errors import KctlError
from kctl.output.quantities import counted
from kctl.server.process.data_folder import DataFolder, RunningBroker, brokers_in
from kctl.zookeeper.four_letter_words import write_problem

verbs = typer.Typer(add_completion=False)

# `kctl broker status`.


class BrokerRow(NamedTuple):
    """The broker of a data folder; only state and folder are set if none is running."""

    state: str
    address: str | None
    broker_id: int | None
    pid: int | None
    zookeeper: str | None
    data_dir: str
    metrics_url: Annotated[
        str | None, "The endpoint for metrics, with --processes that of the service; null without one."
    ]
    problem: Annotated[
        str | None,
        "Why the broker does not act as leader, or cannot change anything in ZooKeeper; null if nothing is known.",
    ] = None


@verbs.command("status", cls=LocalCommand, epilog=examples("kctl broker status", "kctl broker status --format json"))
@shows(BrokerRow)
def status(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Check whether the broker of a data folder is running; with --processes, a row for each broker.

    A broker that has lost its registration in ZooKeeper, or cannot verify it, is fenced: it runs, but does not act as
    the leader of its partitions.

    The exit status is 0 if it serves clients and its ZooKeeper can be reached and written, else 3; of several brokers,
    all have to.
    """
    run: Invocation = ctx.obj
    root = DataFolder(data_dir_of(data_dir))
    found = brokers_in(root)
    service = root.running()
    metrics_url = service.metrics_url or None if service else None
    rows = [_row(folder, running, metrics_url) for folder, running in found]
    run.console.show(BrokerRow, rows)
    is_serving = all(running for _, running in found) and not any(row.problem for row in rows)
    return ExitStatus.DONE if is_serving else ExitStatus.UNMET


def _state(folder: DataFolder, running: RunningBroker | None) -> str:
    if running is None:
        return "starting" if folder.is_locked() else "stopped"
    return "fenced" if running.problem else "serving"


def _row(folder: DataFolder, running: RunningBroker | None, metrics_url: str | None) -> BrokerRow:
    return BrokerRow(
        state=_state(folder, running),
        address=running.address if running else None,
        broker_id=running.broker_id if running else None,
        pid=running.pid if running else None,
        zookeeper=running.zookeeper if running else None,
        data_dir=str(folder.path),
        metrics_url=metrics_url if running else None,
        problem=(running.problem or write_problem(running.zookeeper)) if running else None,
    )


# `kctl broker stop`.


STOP_WAIT_S = 60.0
_POLL_S = 0.05


@verbs.command("stop", cls=LocalCommand, epilog=examples("kctl broker stop", "kctl broker stop --data-dir /srv/kafka"))
def stop(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Stop the broker of a data folder by a controlled shutdown, and wait until it has ended.

    With --processes all brokers are stopped.  A single one of them, given by its own folder DATA_DIR/process-N, is
    restarted by the service.

    The exit status is 3 if no broker is running in the folder.
    """
    run: Invocation = ctx.obj
    folder = DataFolder(data_dir_of(data_dir))
    running = folder.running()
    if running is None:
        run.console.note(f"no broker is running in {folder.path}")
        return ExitStatus.UNMET
    os.kill(running.pid, signal.SIGTERM)
    if not _wait_ended(folder, running.pid):
        raise KctlError(
            f"the broker at {running.address} (process {running.pid}) has not stopped in {STOP_WAIT_S:.0f} s"
        )
    what = counted(running.processes, "broker") if running.processes else "broker"
    run.console.note(f"stopped the {what} at {running.address}")
    return ExitStatus.DONE


def _wait_ended(folder: DataFolder, pid: int) -> bool:
    """Wait until the folder is unlocked, or its broker is another process."""
    deadline = time.monotonic() + STOP_WAIT_S
    while time.monotonic() < deadline:
        if not folder.is_locked():
            return True
        following = folder.running()
        if following is not None and following.pid != pid:
            return True
        time.sleep(_POLL_S)
    return False
