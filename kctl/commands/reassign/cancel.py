"""`kctl reassign cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.log_dirs import move_replicas
from kctl.admin.reassigning import cancel_moves, find_copies, look
from kctl.admin.rollback_files import original_order
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.compat import reassign as reassign_compat
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.reassign.options import DryRun, JsonFile, StateDir
from kctl.commands.reassign.rows import CANCEL_COLUMNS, CancelRow, cancel_row
from kctl.commands.reassign.states import show_cleared_throttles
from kctl.commands.reassign.targets import plan_file, read_log_dirs, read_targets
from kctl.commands.reassign.throttle import records_of, restore_finished
from kctl.commands.shown import shows
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command(
    "cancel",
    cls=ChangingCommand,
    epilog=examples(
        "kctl reassign cancel --reassignment-json-file moves.json", "kctl reassign cancel orders:0 orders:1"
    ),
)
@shows(CancelRow)
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
    compat: Compat = None,
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
    for outcome in outcomes.values() if compat else ():
        run.console.warn(outcome.message)
    if not dry_run:
        outcomes |= run.on_brokers(lambda client: cancel_moves(client, origins))
    if not dry_run and copies:
        stayed = run.on_brokers(lambda client: move_replicas(client, copies))
        outcomes |= {tp: outcome for (_, tp), outcome in stayed.items() if not outcome.is_done}
    done = "would be cancelled" if dry_run else "cancelled"
    moves = {*active, *copied}
    rows = [cancel_row(tp, done if tp in moves else "does not move", outcomes.get(tp)) for tp in requested]
    failed = {tp: outcome.message for tp, outcome in outcomes.items() if tp in moves and not outcome.is_done}
    restored = None
    if not dry_run:
        moving = [tp for tp in situation.ongoing if tp not in active or tp in failed]
        restored = restore_finished(run, records, moving)
    if not compat:
        run.console.show(CANCEL_COLUMNS, rows)
    elif failed:
        run.console.verbatim(reassign_compat.cancel_refused(failed.items()))
    else:
        run.console.verbatim(reassign_compat.cancelled(compat, active, copies))
    return (
        run.status_of(rows) if restored is None or show_cleared_throttles(run, restored, compat) else ExitStatus.FAILED
    )
