"""`kctl reassign verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.reassigning import look_settled
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.reassign.options import JsonFile, StateDir
from kctl.commands.reassign.rows import StateRow
from kctl.commands.reassign.states import show_cleared_throttles, show_states
from kctl.commands.reassign.targets import plan_file, read_log_dirs, read_targets
from kctl.commands.reassign.throttle import records_of, restore_finished
from kctl.commands.shown import shows

app = typer.Typer(add_completion=False)


@app.command(
    "verify",
    cls=ChangingCommand,
    epilog=examples(
        "kctl reassign verify --reassignment-json-file moves.json",
        "until kctl reassign verify orders:0=1,2,3; do sleep 10; done",
    ),
)
@shows(StateRow)
def verify(
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
    compat: Compat = None,
) -> ExitStatus:
    """Check whether moves are complete, and remove the throttles of those that have ended.

    Only throttles that 'kctl reassign execute' has set are removed, including those of a command that was killed; the
    previous values are restored.  The exit status is 3 while a partition is moving, and 1 if a partition is neither on
    its target replicas nor moving there.
    """
    run: Invocation = ctx.obj
    moves, reassignment_json_file = plan_file(moves, reassignment_json_file)
    targets, log_dirs = read_targets(moves, reassignment_json_file), read_log_dirs(reassignment_json_file)
    situation = run.on_brokers(lambda client: look_settled(client, targets, log_dirs))
    records = records_of(state_dir, situation.metadata.cluster_id)
    restored = restore_finished(run, records, situation.ongoing.keys())
    ended = show_states(run, situation, compat)
    return ended if show_cleared_throttles(run, restored, compat) else ExitStatus.FAILED
