"""`kctl reassign plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.outcome import absent_broker, topic_error
from kctl.admin.placement_goals import plan_add, plan_drain, plan_rebalance, plan_replication_factor
from kctl.admin.placement_reading import read_placement
from kctl.admin.placement_summary import broker_changes, bytes_across_racks, phases_of_at_most, phases_of_equal_size
from kctl.admin.reassignment_plan import plan_moves
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.reassign.cost import cost_text, duration_text, least_duration_ms, throttle_rate
from kctl.commands.reassign.options import PlanOutput, broker_ids
from kctl.commands.reassign.plan_files import PlanFiles, note_files
from kctl.commands.reassign.plan_rows import PlanReport, broker_columns, broker_row, planned_move
from kctl.commands.shown import shows_one
from kctl.errors import ErrorCode, UsageError
from kctl.integers import INT32_MAX, parse_integer
from kctl.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.placement_reading import PlacementReading
    from kctl.admin.reassignment_plan import Move
    from kctl.admin.reassignment_spec import Assignment
    from kctl.model import TopicPartition

app = typer.Typer(add_completion=False)

REPLICATION_FACTOR_MAX = 32_767
"""The type in CreateTopics is int16."""
Goal = Literal["drain", "add", "replication-factor", "rebalance"]


@app.command(
    "plan",
    cls=ClusterCommand,
    epilog=examples(
        "kctl reassign plan drain 3 --throttle 50m --output drain.json",
        "kctl reassign plan add 4,5 --phases 3 --output add.json",
        "kctl reassign plan replication-factor 3 --topic orders --output orders.json",
        "kctl reassign plan rebalance --leaders-only --output leaders.json",
    ),
)
@shows_one(PlanReport)
def plan(
    ctx: typer.Context,
    goal: Annotated[Goal, typer.Argument(help="What the plan achieves.")],
    value: Annotated[
        str | None,
        typer.Argument(help="The brokers to drain or to add, such as 3 or 4,5; or the replication factor."),
    ] = None,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Change only partitions of these topics.  Default: all."),
    ] = None,
    to_brokers: Annotated[
        str | None,
        typer.Option("--to-brokers", metavar="ID[,ID...]", help="Only these brokers receive replicas."),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            "--exclude",
            metavar="ID[,ID...]",
            help="These brokers receive no replicas; 'add' and 'rebalance' also move none away from them.",
        ),
    ] = None,
    leaders_only: Annotated[
        bool,
        typer.Option("--leaders-only", help="Rebalance preferred leaders by the order of replicas; copies nothing."),
    ] = False,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="BYTES_PER_S", help="Show the minimum duration with this throttle."),
    ] = None,
    phases: Annotated[
        int | None,
        typer.Option(
            "--phases", metavar="N", help="Split the plan into N files of similar size.", min=1, max=INT32_MAX
        ),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            "--max-moves", metavar="N", help="Split the plan into files of at most N partitions.", min=1, max=INT32_MAX
        ),
    ] = None,
    output: PlanOutput = None,
) -> ExitStatus:
    """Plan a reassignment that empties brokers, uses new ones, sets a replication factor or balances the load.

    'drain' moves all replicas of the brokers elsewhere, also of dead brokers.  'add' moves replicas to new brokers
    until they hold their share.  'rebalance' balances bytes and preferred leaders.  'replication-factor' adds or
    removes replicas; the leader stays.

    Nothing is changed: 'kctl reassign execute' executes the plan.  The same cluster gives the same plan, and after its
    execution nothing is left to plan, unless sizes have changed.  Only what the goal requires is copied.  Replicas of a
    partition are in as many racks as possible, and no broker receives more than it has free, where brokers report that
    (Kafka 3.3).

    One row per broker; with --format json also the moves.  Existing files are not overwritten.
    """
    run: Invocation = ctx.obj
    _check_options(goal, value, leaders_only=leaders_only, phases=phases, max_moves=max_moves)
    rate = throttle_rate(throttle)
    files = PlanFiles(output)
    reading = run.on_brokers(read_placement)
    if reading.ongoing:
        first = next(iter(reading.ongoing))
        raise Refused(
            f"{counted(len(reading.ongoing), 'partition is', 'partitions are')} being moved ({first}, ...): wait, or"
            " cancel the moves"
        )
    _warn_of_unknown_sizes(run, reading)
    targets = _targets(
        reading, goal, value, topic, broker_ids(to_brokers), broker_ids(exclude), leaders_only=leaders_only
    )
    moves = plan_moves(targets, reading.metadata, reading.ongoing, reading.sizes)
    parts = phases_of_at_most(moves, max_moves) if max_moves else phases_of_equal_size(moves, phases or 1)
    changes = [broker_row(change) for change in broker_changes(reading.state, targets)]
    status = run.status_of(changes)
    written = files.write(parts, is_split=bool(phases or max_moves)) if status is ExitStatus.DONE and moves else None
    durations_ms = [least_duration_ms(part, rate) for part in parts] if rate else None
    has_sizes = reading.state.has_sizes
    report = PlanReport(
        partitions=len(moves),
        replicas_to_copy=sum(len(move.adding) for move in moves),
        bytes_to_move=sum(move.bytes_to_move or 0 for move in moves) if has_sizes else None,
        bytes_across_racks=bytes_across_racks(reading.state, moves) if has_sizes else None,
        duration_ms=None if durations_ms is None else sum(durations_ms),
        brokers=changes,
        moves=[planned_move(move, number) for number, part in enumerate(parts, 1) for move in part],
        files=[str(path) for path in written[0]] if written else [],
        rollback_file=str(written[1]) if written else None,
    )
    if run.console.is_machine_readable:
        run.console.show_one(report)
    else:
        run.console.show(broker_columns(leaders_only=leaders_only), changes)
    _note(run, report, moves, parts, rate)
    if moves:
        note_files(run, report.files, report.rollback_file, throttle)
    if status is not ExitStatus.DONE and moves and output:
        run.console.warn("the plan is not written, because a broker has too little space")
    return status


def _check_options(
    goal: Goal, value: str | None, *, leaders_only: bool, phases: int | None, max_moves: int | None
) -> None:
    if goal == "rebalance" and value is not None:
        raise UsageError(f"'rebalance' takes no value, not '{value}'; --to-brokers limits the brokers")
    if goal != "rebalance" and value is None:
        what = "a number, such as 3" if goal == "replication-factor" else "broker ids, such as 4,5"
        raise UsageError(f"'{goal}' requires {what}")
    if leaders_only and goal != "rebalance":
        raise UsageError("--leaders-only applies only to 'rebalance'")
    if phases and max_moves:
        raise UsageError("give --phases or --max-moves, not both")


def _targets(
    reading: PlacementReading,
    goal: Goal,
    value: str | None,
    topics: list[str] | None,
    to_brokers: list[int] | None,
    exclude: list[int] | None,
    *,
    leaders_only: bool,
) -> Assignment:
    """The new replicas of the partitions that change.  Raises KctlError, also if the goal is impossible."""
    state = reading.state
    movable = _movable(reading, topics)
    _check_alive(reading, to_brokers or [])
    brokers = sorted(state.racks.keys() - set(exclude or []))
    receivers = [broker for broker in brokers if to_brokers is None or broker in to_brokers]
    if not receivers:
        raise UsageError("no live broker is left that may receive replicas")
    match goal:
        case "drain":
            drained = broker_ids(value) or []
            holding = {broker for replicas in state.replicas.values() for broker in replicas}
            _check_alive(reading, [broker for broker in drained if broker not in holding])
            return plan_drain(state, drained, movable, receivers)
        case "add":
            added = broker_ids(value) or []
            _check_alive(reading, added)
            refused = [broker for broker in added if broker not in receivers]
            if refused:
                raise UsageError(f"broker {refused[0]} is to be added, but --to-brokers or --exclude omits it")
            return plan_add(state, added, movable, brokers)
        case "replication-factor":
            factor = parse_integer(value or "", "the replication factor", low=1, high=REPLICATION_FACTOR_MAX)
            return plan_replication_factor(state, factor, movable, receivers)
        case "rebalance":
            return plan_rebalance(state, movable, receivers, brokers, leaders_only=leaders_only)


def _movable(reading: PlacementReading, topics: list[str] | None) -> list[TopicPartition]:
    """The partitions of the topics.  Raises ApiError for an unknown topic."""
    for name in topics or []:
        if name not in reading.metadata.topics:
            raise topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [tp for tp in sorted(reading.state.replicas) if topics is None or tp.topic in topics]


def _check_alive(reading: PlacementReading, brokers: list[int]) -> None:
    for broker in brokers:
        if broker not in reading.state.racks:
            raise absent_broker(broker, reading.state.racks)


def _warn_of_unknown_sizes(run: Invocation, reading: PlacementReading) -> None:
    for failed in reading.sizes.failed:
        run.console.warn(f"broker {failed.name} did not return the sizes of its replicas: {failed.message}")
    state = reading.state
    if not state.has_sizes and state.replicas:
        run.console.note("all partitions are empty or of unknown size: the plan counts replicas instead of bytes")
    elif state.unknown_sizes:
        run.console.note(f"{counted(state.unknown_sizes, 'unknown partition size')} replaced by the mean of the others")


def _note(
    run: Invocation, report: PlanReport, moves: Sequence[Move], parts: Sequence[Sequence[Move]], rate: int | None
) -> None:
    if not moves:
        run.console.note("nothing to move")
        return
    text = f"{counted(len(moves), 'partition')} to change, {cost_text(moves, None)}"
    if report.bytes_across_racks:
        text += f", {report.bytes_across_racks:,} of them across racks"
    if len(parts) > 1:
        text += f", in {counted(len(parts), 'phase')}"
    if rate and report.duration_ms:
        text += f"; about {duration_text(report.duration_ms)} with a throttle of {rate:,} bytes/s"
    run.console.note(text)
