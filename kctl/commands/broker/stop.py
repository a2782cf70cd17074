"""`kctl broker stop`."""

from __future__ import annotations

import os
import signal
import time

import typer

from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.errors import KctlError
from kctl.quantities import counted
from kctl.server.data_folder import DataFolder

app = typer.Typer(add_completion=False)


STOP_WAIT_S = 60.0
_POLL_S = 0.05


@app.command("stop", cls=LocalCommand, epilog=examples("kctl broker stop", "kctl broker stop --data-dir /srv/kafka"))
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
    """Waits until the folder is unlocked, or its broker is another process."""
    deadline = time.monotonic() + STOP_WAIT_S
    while time.monotonic() < deadline:
        if not folder.is_locked():
            return True
        following = folder.running()
        if following is not None and following.pid != pid:
            return True
        time.sleep(_POLL_S)
    return False
