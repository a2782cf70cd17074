"""`kctl reassign execute`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kctl.admin.placement.execution import look
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Rate
from kctl.commands.frame.options.parameters import NOT_AN_OPTION, BootstrapController, with_groups
from kctl.commands.frame.output.shown import shows
from kctl.commands.reassign.controllers import RequestedRow, execute_at_controllers, refuse_what_needs_brokers
from kctl.commands.reassign.performing import Choices, perform
from kctl.commands.reassign.rows import (
    ROWS,
    WOULD_MOVE,
    DryRun,
    JsonFile,
    PlanRow,
    Report,
    StateDir,
    StateRow,
    cost_text,
    plan_file,
    plan_row,
    read_log_dirs,
    read_targets,
)
from kctl.errors import UsageError
from kctl.output.quantities import INT32_MAX

verbs = typer.Typer(add_completion=False)


@verbs.command(
    "execute",
    cls=ChangingCommand,
    epilog=examples(
        "kctl reassign execute moves.json --dry-run",
        "kctl reassign execute moves.json --throttle 50m --wait",
        "kctl reassign execute moves.json --throttle 50m --max-moves 20 --wait",
        "kctl reassign execute orders:0=1,2,3 orders:1=2,3,1",
    ),
)
@shows(PlanRow, StateRow, RequestedRow)
@with_groups
def execute(
    ctx: typer.Context,
    moves: Annotated[
        list[str] | None,
        typer.Argument(
            help="Partitions and their replicas, the preferred leader first; or one file, as --reassignment-json-file.",
            metavar="T:P=B,B",
        ),
    ] = None,
    *,
    reassignment_json_file: JsonFile = None,
    throttle: Annotated[
        Rate | None,
        typer.Option(
            "--throttle",
            parser=Rate.within("1"),
            help="Limit on the replication traffic of each broker, such as 50m; removed when the move has ended.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the partitions have moved, and show progress.")
    ] = False,
    max_moves: Annotated[
        int | None,
        typer.Option(
            "--max-moves",
            metavar="N",
            help="Move at most N partitions at once: with --wait, each phase starts when the one before has ended.",
            min=1,
            max=INT32_MAX,
        ),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Start even if other partitions are being moved.")
    ] = False,
    rollback_file: Annotated[
        str | None,
        typer.Option(
            "--rollback-file",
            metavar="FILE",
            help="File to write the reverse reassignment to, in addition to rollback-*.json in --state-dir.",
        ),
    ] = None,
    state_dir: StateDir = None,
    bootstrap_controller: BootstrapController = None,
    dry_run: DryRun = False,
    report: Annotated[Report, NOT_AN_OPTION] = ROWS,
) -> ExitStatus:
    """Move partitions to other brokers, change the order of their replicas, or move replicas between log directories.

    In a file, "log_dirs" lists the log directory of each replica, or "any"; 'kctl cluster log-dirs' shows them.

    All moves are checked first; if one of them is impossible, none is started.  A throttle applies only to the brokers
    and topics of this move.  The previous values are saved in --state-dir and restored when the move has ended.
    Without --wait, or if the command is interrupted or loses the connection, the throttle stays until 'kctl reassign
    verify' finds the move complete and restores the previous values.

    To change the throttle of a move, execute the same move again with another --throttle.  --wait shows bytes, speed
    and remaining time, and warns if producers append as fast as the throttle permits to copy.

    With --max-moves the throttle holds over all phases.  If a partition of a phase cannot be moved, no other phase is
    started; the same command, executed again, continues with the partitions that have not moved.

    Through --bootstrap-controller the controller checks each move when it is requested, and starts those that are
    possible.  There is no throttle, wait or rollback file then: controllers tell neither replicas nor sizes.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    moves, reassignment_json_file = plan_file(moves, reassignment_json_file)
    targets, log_dirs = read_targets(moves, reassignment_json_file), read_log_dirs(reassignment_json_file)
    if targets is None:
        raise UsageError("nothing to move; give --reassignment-json-file, or moves such as orders:0=1,2,3")
    if max_moves is not None and not wait:
        raise UsageError("--max-moves requires --wait, because a phase starts when the one before has ended")
    if bootstrap_controller is not None:
        needing_brokers = {
            "--throttle": throttle is not None,
            "--wait": wait,
            "--max-moves": max_moves is not None,
            "--rollback-file": rollback_file is not None,
        }
        refuse_what_needs_brokers(log_dirs, needing_brokers)
        return execute_at_controllers(run, targets, report, additional=additional, dry_run=dry_run)
    rate = throttle
    situation = run.on_brokers(lambda client: look(client, targets, log_dirs))
    plan = situation.moves
    run.console.note(cost_text(plan, rate))
    if dry_run or any(move.problem for move in plan):
        planned = [plan_row(move, WOULD_MOVE) for move in plan]
        run.console.show(PlanRow, planned)
        return run.status_of(planned)
    choices = Choices(rate, wait, max_moves, additional, Path(rollback_file) if rollback_file else None, state_dir)
    return perform(run, situation, choices, report)
