"""`kctl reassign plan`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.groups.undo_files import write_new
from kctl.admin.placement.documents import format_reassignment
from kctl.admin.placement.goals import plan_add, plan_drain, plan_rebalance, plan_replication_factor, read_placement
from kctl.admin.placement.plan import plan_moves, requested_log_dirs, rollback, rollback_log_dirs
from kctl.admin.placement.state import broker_changes, bytes_across_racks, phases_of_at_most, phases_of_equal_size
from kctl.client.outcome import absent_broker, topic_error
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Rate
from kctl.commands.frame.output.rows import code_error
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.reassign.rows import (
    PlanOutput,
    broker_ids,
    cost_text,
    duration_text,
    least_duration_ms,
)
from kctl.errors import ErrorCode, KctlError, UsageError
from kctl.output.console import Column, ErrorName, ErrorText, columns_of
from kctl.output.quantities import INT32_MAX, counted, parse_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.placement.documents import Assignment
    from kctl.admin.placement.goals import PlacementReading
    from kctl.admin.placement.plan import Move
    from kctl.admin.placement.state import BrokerChange
    from kctl.model import TopicPartition


# Planned reassignments as rows.


class BrokerRow(NamedTuple):
    """A broker before and after the reassignment; leaders are partitions that prefer it."""

    broker: int
    rack: Annotated[str | None, Column(is_rare=True)]
    bytes_before: int | None
    bytes_after: int | None
    bytes_received: int | None
    replicas_before: Annotated[int, Column(drop_order=4)]
    replicas_after: Annotated[int, Column(drop_order=5)]
    leaders_before: Annotated[int, Column(drop_order=2)]
    leaders_after: Annotated[int, Column(drop_order=2)]
    free_bytes: Annotated[int | None, Column(drop_order=1, is_rare=True)]
    free_bytes_after: Annotated[int | None, Column(is_rare=True)]
    error: ErrorName = None
    message: ErrorText = None


def broker_columns(*, leaders_only: bool) -> Sequence[Column]:
    """Return the columns of brokers: a narrow terminal shows leaders of a plan that moves only these, else bytes."""
    columns = columns_of(BrokerRow)
    if not leaders_only:
        return columns
    orders = {"bytes_before": 1, "bytes_after": 1, "bytes_received": 1, "free_bytes_after": 1}
    orders |= {"leaders_before": 0, "leaders_after": 0}
    return [column.with_drop_order(orders.get(column.name, column.drop_order)) for column in columns]


class PlannedMove(NamedTuple):
    """The move of one partition."""

    topic: str
    partition: int
    replicas: list[int]
    target: list[int]
    bytes_to_move: int | None
    phase: int


class PlanReport(NamedTuple):
    """The JSON object of a plan."""

    partitions: int
    replicas_to_copy: int
    bytes_to_move: Annotated[int | None, "Null if no size is known."]
    bytes_across_racks: int | None
    duration_ms: Annotated[int | None, "The least duration with --throttle, of all phases one after the other."]
    brokers: list[BrokerRow]
    moves: list[PlannedMove]
    files: Annotated[list[str], "One per phase."]
    rollback_file: str | None


def broker_row(change: BrokerChange) -> BrokerRow:
    """Return one broker; with an error if its free space is too small."""
    error = code_error(ErrorCode.NONE)
    if change.lacks_space:
        received, free = (counted(size or 0, "byte") for size in (change.bytes_received, change.free_bytes))
        text = f"receives {received} and has {free} free"
        error = {"error": ErrorCode.KAFKA_STORAGE_ERROR.name, "message": text}
    return BrokerRow(
        broker=change.broker,
        rack=change.rack,
        bytes_before=change.bytes_before,
        bytes_after=change.bytes_after,
        bytes_received=change.bytes_received,
        replicas_before=change.replicas_before,
        replicas_after=change.replicas_after,
        leaders_before=change.leaders_before,
        leaders_after=change.leaders_after,
        free_bytes=change.free_bytes,
        free_bytes_after=change.free_bytes_after,
        **error,
    )


def planned_move(move: Move, phase: int) -> PlannedMove:
    """Return one move; phases are counted from 1."""
    return PlannedMove(
        move.tp.topic, move.tp.partition, list(move.current), list(move.target), move.bytes_to_move, phase
    )


# The files of a plan, in the format of Kafka's tools.


class PlanFiles:
    """The files of a plan: one per phase, and one for the way back."""

    def __init__(self, output: str | None) -> None:
        """Choose the files; raise Refused if one of them exists already."""
        self._path = None if output is None else Path(output)
        if self._path is not None:
            self._refuse_existing([self._path, self._rollback(self._path)])

    def write(self, parts: Sequence[Sequence[Move]], *, is_split: bool) -> tuple[list[Path], Path] | None:
        """Write all of them or none, and return their paths; None without --output.  Raises Refused."""
        if self._path is None:
            return None
        path, back = self._path, self._rollback(self._path)
        paths = [path]
        if is_split:
            paths = [path.with_stem(f"{path.stem}-{number}") for number in range(1, len(parts) + 1)]
        self._refuse_existing(paths)
        moves = [move for part in parts for move in part]
        texts = [
            format_reassignment({move.tp: move.target for move in part}, requested_log_dirs(part)) for part in parts
        ]
        undo = format_reassignment(rollback(moves), rollback_log_dirs(moves))
        done: list[Path] = []
        try:
            for target, text in [(back, undo), *zip(paths, texts, strict=True)]:
                done.append(target)
                write_new(target, text + "\n")
        except OSError as error:
            # A file that another process has created meanwhile is not removed.
            for written in done[:-1] if isinstance(error, FileExistsError) else done:
                written.unlink(missing_ok=True)
            raise KctlError(f"{done[-1]} cannot be written: {error.strerror}") from None
        return paths, back

    @staticmethod
    def _rollback(path: Path) -> Path:
        return path.with_stem(f"{path.stem}-rollback")

    @staticmethod
    def _refuse_existing(paths: Sequence[Path]) -> None:
        for path in paths:
            if path.exists():
                raise Refused(f"{path} exists and is not overwritten: give another --output")


def note_files(run: Invocation, files: Sequence[str], rollback_file: str | None, throttle: Rate | None) -> None:
    """Show the command lines that execute and undo the plan in the files, with the throttle of its estimates."""
    options = f"--wait{f' --throttle {shlex.quote(throttle.text)}' if throttle else ''}{run.cluster_options()}"
    for name in files:
        run.console.note(f"to execute: kctl reassign execute {shlex.quote(name)} {options}")
    if rollback_file:
        run.console.note(f"to undo: kctl reassign execute {shlex.quote(rollback_file)} {options}")
    else:
        run.console.note("give --output FILE to write the plan")


verbs = typer.Typer(add_completion=False)

REPLICATION_FACTOR_MAX = 32_767
"""The type in CreateTopics is int16."""
Goal = Literal["drain", "add", "replication-factor", "rebalance"]


@verbs.command(
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
        Rate | None,
        typer.Option("--throttle", parser=Rate.within("1"), help="Show the minimum duration with this throttle."),
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
    rate = throttle
    files = PlanFiles(output)
    reading = run.on_brokers(read_placement)
    if reading.ongoing:
        first = next(iter(reading.ongoing))
        raise Refused(
            f"{counted(len(reading.ongoing), 'partition is', 'partitions are')} being moved ({first}, ...): wait, or"
            " cancel the moves"
        )
    warn_of_unknown_sizes(run, reading)
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
    """Return the new replicas of the partitions that change.  Raises KctlError, also if the goal is impossible."""
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
    """Return the partitions of the topics.  Raises ApiError for an unknown topic."""
    for name in topics or []:
        if name not in reading.metadata.topics:
            raise topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [tp for tp in sorted(reading.state.replicas) if topics is None or tp.topic in topics]


def _check_alive(reading: PlacementReading, brokers: list[int]) -> None:
    for broker in brokers:
        if broker not in reading.state.racks:
            raise absent_broker(broker, reading.state.racks)


def warn_of_unknown_sizes(run: Invocation, reading: PlacementReading) -> None:
    """Warn of brokers without an answer, and note how partitions of unknown size are weighed."""
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
