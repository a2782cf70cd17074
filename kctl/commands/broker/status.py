"""`kctl broker status`."""

from __future__ import annotations

import typer

from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.console import Column
from kctl.server.data_folder import DataFolder

app = typer.Typer(add_completion=False)


@app.command("status", cls=LocalCommand, epilog=examples("kctl broker status", "kctl broker status --format json"))
def status(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Check whether the broker of a data folder runs.

    Exit status 0 when it serves, 3 when it does not.
    """
    run: Invocation = ctx.obj
    folder = DataFolder(data_dir_of(data_dir))
    running = folder.running()
    row = {
        "state": "serving" if running else "starting" if folder.is_locked() else "stopped",
        "address": running.address if running else None,
        "broker_id": running.broker_id if running else None,
        "pid": running.pid if running else None,
        "zookeeper": running.zookeeper if running else None,
        "data_dir": str(folder.path),
    }
    run.console.show([Column(name, numeric=name in {"broker_id", "pid"}) for name in row], [row])
    return ExitStatus.DONE if running else ExitStatus.UNMET
