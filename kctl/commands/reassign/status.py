"""`kctl reassign status`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.reassigning import look_settled
from kctl.admin.throttling import finished_keys
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.reassign.options import JsonFile, StateDir
from kctl.commands.reassign.rows import StateRow
from kctl.commands.reassign.states import show_states
from kctl.commands.reassign.targets import plan_file, read_log_dirs, read_targets
from kctl.commands.reassign.throttle import records_of
from kctl.commands.shown import shows

app = typer.Typer(add_completion=False)


@app.command(
    "status",
    cls=QueryCommand,
    epilog=examples("kctl reassign status", "kctl reassign status --reassignment-json-file moves.json --format json"),
)
@shows(StateRow)
def status(
    ctx: typer.Context,
    moves: Annotated[
        list[str] | None,
        typer.Argument(
            help="Partitions and their target replicas; or one file, as --reassignment-json-file.", metavar="T:P=B,B"
        ),
    ] = None,
    *,
    reassignment_json_file: JsonFile = None,
    state_dir: StateDir = None,
) -> ExitStatus:
    """Show the progress of moves.  Default: all moves.

    Changes nothing.  The exit status is 3 while a partition is moving, and 1 if a partition is neither on its target
    replicas nor moving there.
    """
    run: Invocation = ctx.obj
    moves, reassignment_json_file = plan_file(moves, reassignment_json_file)
    targets, log_dirs = read_targets(moves, reassignment_json_file), read_log_dirs(reassignment_json_file)
    situation = run.on_brokers(lambda client: look_settled(client, targets, log_dirs))
    if finished_keys(records_of(state_dir, situation.metadata.cluster_id), situation.ongoing.keys()):
        run.console.note("a move has ended and its throttle is still set; 'kctl reassign verify' restores it")
    return show_states(run, situation, compat=None)
