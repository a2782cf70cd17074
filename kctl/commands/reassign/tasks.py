"""Whole tasks of several reassignments as one command: it waits, and continues when it is executed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.placement.execution import Situation
from kctl.admin.placement.goals import PlacementReading, read_placement
from kctl.admin.placement.plan import plan_moves
from kctl.admin.placement.reassignment import Ongoing, list_reassignments
from kctl.admin.placement.tasks import task_targets
from kctl.admin.placement.throttling import finished_keys
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.option_types import Rate
from kctl.commands.reassign.performing import Choices, perform
from kctl.commands.reassign.plan import warn_of_unknown_sizes
from kctl.commands.reassign.rows import WOULD_MOVE, DryRun, PlanRow, StateDir, cost_text, plan_row
from kctl.commands.reassign.throttling import records_of, restore_finished
from kctl.errors import UsageError
from kctl.output.quantities import INT32_MAX, counted

if TYPE_CHECKING:
    from kctl.admin.placement.documents import Assignment
    from kctl.admin.placement.state import PlacementState
    from kctl.commands.frame.invocation import Invocation
    from kctl.model import TopicPartition


class TaskOptions(NamedTuple):
    """How the partitions of a task are moved."""

    throttle: Annotated[
        Rate | None,
        typer.Option(
            "--throttle",
            parser=Rate.within("1"),
            help="Limit on the replication traffic of each broker, such as 50m; removed when the moves have ended.",
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        typer.Option(
            "--max-moves",
            metavar="N",
            help="Move at most N partitions at once; the next ones start when these have moved.",
            min=1,
            max=INT32_MAX,
        ),
    ] = None
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Start the moves, and do not wait until they have ended."),
    ] = False
    additional: Annotated[
        bool, typer.Option("--additional", help="Start even if other partitions are being moved.")
    ] = False
    state_dir: StateDir = None
    dry_run: DryRun = False


def carry_out(
    run: Invocation,
    options: TaskOptions,
    plan: Callable[[PlacementReading, PlacementState], Assignment],
    belongs: Callable[[TopicPartition, Ongoing], bool],
) -> ExitStatus:
    """Plan from the present state, show the moves, and execute them with --yes.

    `plan` gets the state after the moves in progress; those that belong to the task are awaited like its own.
    Throttles of moves that have ended are removed, also those of an earlier run that was killed.
    """
    if options.no_wait and options.max_moves is not None:
        raise UsageError("--max-moves cannot be combined with --no-wait: the next moves start when these have ended")
    reading = run.on_brokers(read_placement)
    warn_of_unknown_sizes(run, reading)
    targets = task_targets(reading.state, reading.ongoing, lambda state: plan(reading, state), belongs)
    moves = plan_moves(targets, reading.metadata, reading.ongoing, reading.sizes)
    under_way = sum(move.is_under_way for move in moves)
    if moves:
        continued = f", {counted(under_way, 'partition')} moving already" if under_way else ""
        run.console.note(
            f"{counted(len(moves), 'partition')} to change, {cost_text(moves, options.throttle)}{continued}"
        )
    else:
        run.console.note("no partition has to move")
    executes = run.has_consent and not options.dry_run
    if not executes or not moves or any(move.problem for move in moves):
        rows = [plan_row(move, WOULD_MOVE) for move in moves]
        run.console.show(PlanRow, rows)
        status = run.status_of(rows)
    else:
        choices = Choices(
            options.throttle, not options.no_wait, options.max_moves, options.additional, None, options.state_dir
        )
        status = perform(run, Situation(reading.metadata, reading.ongoing, moves, reading.sizes), choices)
    if executes:
        return _without_throttles(run, options, reading.metadata.cluster_id, status)
    if moves:
        run.console.note("nothing was changed: repeat with --yes")
    return status


def _without_throttles(run: Invocation, options: TaskOptions, cluster_id: str | None, status: ExitStatus) -> ExitStatus:
    """Remove the throttles that earlier runs have left, of moves that have ended."""
    records = records_of(options.state_dir, cluster_id)
    if not records.all():
        return status
    ongoing = run.on_brokers(list_reassignments).keys()
    if not finished_keys(records, ongoing):
        return status
    return ExitStatus.FAILED if restore_finished(run, records, ongoing).failed else status
