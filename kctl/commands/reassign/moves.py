"""`kctl reassign`: list, status, verify, cancel."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.groups.undo_files import original_order
from kctl.admin.placement.execution import cancel_moves, find_copies, look, look_settled
from kctl.admin.placement.log_dirs import move_replicas
from kctl.admin.placement.reassignment import list_reassignments
from kctl.admin.placement.throttling import finished_keys
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import NOT_AN_OPTION, BootstrapController, with_groups
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.reassign.controllers import cancel_at_controllers, refuse_what_needs_brokers
from kctl.commands.reassign.rows import (
    ROWS,
    Cancelled,
    CancelRow,
    DryRun,
    JsonFile,
    OngoingRow,
    Report,
    StateDir,
    StateRow,
    cancel_row,
    list_row,
    plan_file,
    read_log_dirs,
    read_targets,
    status_of_moves,
)
from kctl.commands.reassign.throttling import records_of, restore_finished
from kctl.errors import UsageError

# `kctl reassign list`.


verbs = typer.Typer(add_completion=False)


@verbs.command("list", cls=QueryCommand, epilog=examples("kctl reassign list", "kctl reassign list --format json"))
@shows(OngoingRow)
def list_moves(ctx: typer.Context, *, bootstrap_controller: BootstrapController = None) -> ExitStatus:
    """List all partitions that are being moved."""
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    ongoing = run.on_brokers(list_reassignments)
    run.console.show(OngoingRow, [list_row(tp, reassignment) for tp, reassignment in ongoing.items()])
    return ExitStatus.DONE


# `kctl reassign status`.


@verbs.command(
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
    ROWS.show_states(run, situation)
    return status_of_moves(run, situation)


# `kctl reassign verify`.


@verbs.command(
    "verify",
    cls=ChangingCommand,
    epilog=examples(
        "kctl reassign verify --reassignment-json-file moves.json",
        "until kctl reassign verify orders:0=1,2,3; do sleep 10; done",
    ),
)
@shows(StateRow)
@with_groups
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
    report: Annotated[Report, NOT_AN_OPTION] = ROWS,
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
    report.show_states(run, situation)
    report.throttles_cleared(restored)
    return ExitStatus.FAILED if restored.failed else status_of_moves(run, situation)


# `kctl reassign cancel`.


@verbs.command(
    "cancel",
    cls=ChangingCommand,
    epilog=examples(
        "kctl reassign cancel --reassignment-json-file moves.json", "kctl reassign cancel orders:0 orders:1"
    ),
)
@shows(CancelRow)
@with_groups
def cancel(
    ctx: typer.Context,
    partitions: Annotated[
        list[str] | None, typer.Argument(help="Partitions; or one file, as --reassignment-json-file.", metavar="T:P")
    ] = None,
    *,
    reassignment_json_file: JsonFile = None,
    all_: Annotated[bool, typer.Option("--all", help="All partitions that are being moved.")] = False,
    state_dir: StateDir = None,
    bootstrap_controller: BootstrapController = None,
    dry_run: DryRun = False,
    report: Annotated[Report, NOT_AN_OPTION] = ROWS,
) -> ExitStatus:
    """Cancel moves in progress, and remove their throttles.

    New replicas are deleted, and replicas that were to be removed stay.  Their order is that before the move if 'kctl
    reassign execute' has saved it in --state-dir.  A replica that is moving to another log directory stays in its
    present one; with a file, only moves to the log directories in the file are cancelled.  A partition that is not
    moving is left unchanged, which is not an error; one that does not exist is.

    Through --bootstrap-controller moves to other brokers are cancelled; throttles stay, and so do moves to other log
    directories.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    partitions, reassignment_json_file = plan_file(partitions, reassignment_json_file)
    targets = read_targets(partitions, reassignment_json_file, with_replicas=False)
    if (targets is None) is not all_:
        raise UsageError("give --reassignment-json-file, partitions such as orders:0, or --all")
    if bootstrap_controller is not None:
        refuse_what_needs_brokers(read_log_dirs(reassignment_json_file), {})
        return cancel_at_controllers(run, targets, state_dir, report, dry_run=dry_run)
    situation = run.on_brokers(lambda client: look(client, None))
    found = run.on_brokers(lambda client: find_copies(client, targets))
    copies = found.places
    if reassignment_json_file:
        named = read_log_dirs(reassignment_json_file)
        copies = {replica: path for replica, path in copies.items() if replica in named}
    copied = {tp for _, tp in copies}
    requested = sorted({*situation.ongoing, *copied} if targets is None else targets)
    active = [tp for tp in requested if tp in situation.ongoing]
    records = records_of(state_dir, situation.metadata.cluster_id)
    origins = {tp: original_order(records.folder, tp, situation.ongoing[tp].origin) for tp in active}
    outcomes = {tp: outcome for tp, outcome in found.unknown.items() if tp not in situation.ongoing}
    report.unknown(outcomes.values())
    if not dry_run:
        outcomes |= run.on_brokers(lambda client: cancel_moves(client, origins))
    if not dry_run and copies:
        stayed = run.on_brokers(lambda client: move_replicas(client, copies))
        outcomes |= {tp: outcome for (_, tp), outcome in stayed.items() if not outcome.is_done}
    done = "would be cancelled" if dry_run else "cancelled"
    moves = {*active, *copied}
    rows = [cancel_row(tp, done if tp in moves else "does not move", outcomes.get(tp)) for tp in requested]
    failed = {tp: outcome for tp, outcome in outcomes.items() if tp in moves and not outcome.is_done}
    restored = None
    if not dry_run:
        moving = [tp for tp in situation.ongoing if tp not in active or tp in failed]
        restored = restore_finished(run, records, moving)
    report.show(run, CancelRow, rows)
    report.cancelled(Cancelled(active, copies, failed))
    if restored is None:
        return run.status_of(rows)
    report.throttles_cleared(restored)
    return ExitStatus.FAILED if restored.failed else run.status_of(rows)
