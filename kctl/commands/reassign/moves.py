"""`kctl reassign`: list, status, verify, cancel, throttle."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.groups.undo_files import original_order
from kctl.admin.placement.execution import cancel_moves, find_copies, look, look_settled
from kctl.admin.placement.log_dirs import move_replicas
from kctl.admin.placement.reassignment import list_reassignments
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
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import NOT_AN_OPTION, BootstrapController, with_groups
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
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
from kctl.errors import KctlError, UsageError
from kctl.system.operating_system import signals_wait

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kctl.admin.placement.plan import Move
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition


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


# Sets and restores the throttle of a reassignment, and shows what was done.


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
    dry_run: DryRun = False,
    report: Annotated[Report, NOT_AN_OPTION] = ROWS,
) -> ExitStatus:
    """Cancel moves in progress, and remove their throttles.

    New replicas are deleted, and replicas that were to be removed stay.  Their order is that before the move if 'kctl
    reassign execute' has saved it in --state-dir.  A replica that is moving to another log directory stays in its
    present one; with a file, only moves to the log directories in the file are cancelled.  A partition that is not
    moving is left unchanged, which is not an error; one that does not exist is.
    """
    run: Invocation = ctx.obj
    partitions, reassignment_json_file = plan_file(partitions, reassignment_json_file)
    targets = read_targets(partitions, reassignment_json_file, with_replicas=False)
    if (targets is None) is not all_:
        raise UsageError("give --reassignment-json-file, partitions such as orders:0, or --all")
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
