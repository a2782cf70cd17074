"""`kctl broker status`."""

from __future__ import annotations

from typing import NamedTuple

import typer

from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.console import Column
from kctl.server.data_folder import DataFolder, RunningBroker, brokers_in
from kctl.zookeeper.four_letter_words import write_problem

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("state"),
    Column("address"),
    Column("broker_id", numeric=True),
    Column("pid", numeric=True),
    Column("zookeeper"),
    Column("data_dir"),
    Column("metrics_url"),
    Column("problem"),
)


class BrokerRow(NamedTuple):
    """The broker of a data folder; only state and folder are set if none is running."""

    state: str
    address: str | None
    broker_id: int | None
    pid: int | None
    zookeeper: str | None
    data_dir: str
    metrics_url: str | None
    """The endpoint for metrics, with --processes that of the service; null without one."""
    problem: str | None = None
    """Why the broker does not act as leader, or cannot change anything in ZooKeeper; null if nothing is known."""


@app.command("status", cls=LocalCommand, epilog=examples("kctl broker status", "kctl broker status --format json"))
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
    run.console.show(COLUMNS, rows)
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
