"""Moves of partitions as rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.placement.documents import (
    ANY_LOG_DIR,
    LogDirTargets,
    is_inline,
    parse_inline,
    parse_log_dirs,
    parse_reassignment,
)
from kctl.admin.placement.execution import move_duration_ms
from kctl.admin.placement.plan import MoveState, bytes_by_broker, bytes_moved, replica_state
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import ErrorFields, code_error, known, outcome_error
from kctl.errors import ErrorCode, UsageError
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.quantities import counted, parse_integer
from kctl.system.user_files import STANDARD_INPUT, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kctl.admin.placement.documents import Assignment
    from kctl.admin.placement.execution import Situation
    from kctl.admin.placement.plan import Move
    from kctl.admin.placement.reassignment import Ongoing
    from kctl.admin.placement.throttling import Restored
    from kctl.client.outcome import Outcome
    from kctl.model import TopicPartition
    from kctl.output.console import TypedRow


WOULD_MOVE = "would move"
STARTED = "started"
NOTHING_TO_DO = "nothing to do"
NOT_STARTED = "not started"


class PlanRow(NamedTuple):
    """A partition that `execute` moves."""

    topic: str
    partition: int
    replicas: Annotated[list[int], Column(drop_order=6)]
    target: list[int]
    log_dirs: Annotated[list[str], Column(drop_order=1, after="status")]
    adding: Annotated[list[int], Column(drop_order=4)]
    removing: Annotated[list[int], Column(drop_order=5)]
    leader: Annotated[int | None, Column(drop_order=2)]
    leader_after: Annotated[int | None, Column(drop_order=3)]
    bytes_to_move: int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


class StateRow(NamedTuple):
    """A partition that is moving or has moved."""

    topic: str
    partition: int
    status: str
    replicas: list[int]
    target: list[int]
    log_dirs: Annotated[list[str], Column(drop_order=1, after="bytes_to_move")]
    bytes_moved: int | None
    bytes_to_move: int | None
    error: ErrorName = None
    message: ErrorText = None


class OngoingRow(NamedTuple):
    """A partition that the controller is moving."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class CancelRow(NamedTuple):
    """A partition whose move is cancelled."""

    topic: str
    partition: int
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


def plan_row(move: Move, status: str, outcome: Outcome | None = None) -> PlanRow:
    """Return one move of `execute`; `outcome` is the result of starting it."""
    failure = move.problem or (outcome if outcome is not None and not outcome.is_done else None)
    return PlanRow(
        topic=move.tp.topic,
        partition=move.tp.partition,
        replicas=list(move.current),
        target=list(move.target),
        log_dirs=_log_dirs(move),
        adding=[] if move.problem else list(move.adding),
        removing=[] if move.problem else list(move.removing),
        leader=known(move.leader),
        leader_after=None if move.problem else move.leader_after,
        bytes_to_move=None if move.problem else move.bytes_to_move,
        status=None if failure else status if move.is_change else NOTHING_TO_DO,
        **(outcome_error(failure) if failure else code_error(ErrorCode.NONE)),
    )


def state_row(move: Move, situation: Situation) -> StateRow:
    """Return one move of `status` and `verify`."""
    state = situation.state_of(move)
    in_progress = state is MoveState.IN_PROGRESS
    return StateRow(
        topic=move.tp.topic,
        partition=move.tp.partition,
        status=state.value,
        replicas=list(situation.replicas_of(move)),
        target=list(move.target),
        log_dirs=_log_dirs(move),
        bytes_moved=bytes_moved(move, situation.sizes) if in_progress else None,
        bytes_to_move=move.bytes_to_move if in_progress else None,
        **end_error(move, situation),
    )


def end_error(move: Move, situation: Situation) -> ErrorFields:
    """Return the error of a partition that is neither at its target nor moving there."""
    match situation.state_of(move):
        case MoveState.DIFFERENT:
            misplaced = _misplaced(move, situation)
            if misplaced is not None:
                return misplaced
            now, requested = (",".join(map(str, ids)) for ids in (situation.replicas_of(move), move.target))
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            return {"error": code.name, "message": f"nothing moves it, and its replicas are {now} and not {requested}"}
        case MoveState.UNKNOWN:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return {"error": code.name, "message": f"there is no partition {move.tp}"}
        case MoveState.IN_PROGRESS | MoveState.COMPLETE:
            return code_error(ErrorCode.NONE)


def _log_dirs(move: Move) -> list[str]:
    """Return the requested log directories, one per replica of the target."""
    by_broker = dict(move.log_dirs)
    return [by_broker.get(broker, ANY_LOG_DIR) for broker in move.target]


def _misplaced(move: Move, situation: Situation) -> ErrorFields | None:
    """Return the error of a replica on the right broker that is in another log directory and not moving."""
    if situation.replicas_of(move) != move.target:
        return None
    for broker, path in move.log_dirs:
        if replica_state(move.tp, broker, path, situation.sizes) is MoveState.DIFFERENT:
            place = situation.sizes.places.get((broker, move.tp), "no log directory that is online")
            text = f"nothing moves its replica on broker {broker}, which is in {place}, to {path}"
            return {"error": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.name, "message": text}
    return None


def list_row(tp: TopicPartition, ongoing: Ongoing) -> OngoingRow:
    """Return one partition of `list`."""
    return OngoingRow(tp.topic, tp.partition, list(ongoing.replicas), list(ongoing.adding), list(ongoing.removing))


def cancel_row(tp: TopicPartition, status: str, outcome: Outcome | None = None) -> CancelRow:
    """Return one partition of `cancel`."""
    failed = outcome is not None and not outcome.is_done
    return CancelRow(
        topic=tp.topic,
        partition=tp.partition,
        status=None if failed else status,
        **(outcome_error(outcome) if outcome else code_error(ErrorCode.NONE)),
    )


# Options that several verbs of `kctl reassign` take.


JsonFile = Annotated[
    str | None,
    typer.Option("--reassignment-json-file", metavar="FILE", help="Kafka's JSON: partitions and their replicas."),
]
StateDir = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Folder that records the throttles that were set.  Default: kctl/reassign under XDG_STATE_HOME, which is"
        " ~/.local/state.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]
PlanOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="File for the plan, as Kafka's JSON; beside plan.json, plan-rollback.json contains the reverse plan.",
    ),
]


def broker_ids(text: str | None) -> list[int] | None:
    """Return the broker ids of a list such as `1,2`, each once; None stays None.  Raises UsageError."""
    return (
        None
        if text is None
        else sorted({parse_integer(broker_id, "the id of a broker", low=0) for broker_id in text.split(",")})
    )


# Shows how far reassignments are.


class Cancelled(NamedTuple):
    """What `cancel` has done."""

    active: list[TopicPartition]
    """The partitions that were being moved to other brokers."""
    copies: LogDirTargets
    """The replicas that were being moved to another log directory, and the one in which they stay."""
    failed: dict[TopicPartition, Outcome]


class Report:
    """What `execute`, `verify` and `cancel` write: their rows at the end.  A subclass may write the steps instead."""

    def refused(self) -> None:
        """Report that other partitions are being moved, and nothing was started."""

    def starting(self, phase: Sequence[Move]) -> None:
        """Report that these moves are about to be started."""

    def throttle_set(self, rate: int) -> None:
        """Report that the throttle in bytes/s was set."""

    def started(self, phase: Sequence[Move], outcomes: Mapping[TopicPartition, Outcome]) -> None:
        """Report which of these moves were started, and which refused."""

    def unknown(self, outcomes: Iterable[Outcome]) -> None:
        """Report that these partitions do not exist and are not cancelled."""

    def cancelled(self, cancelled: Cancelled) -> None:
        """Report that moves were cancelled."""

    def throttles_cleared(self, restored: Restored) -> None:
        """Report that throttles were removed."""

    def show(self, run: Invocation, row: type[TypedRow], rows: Sequence[TypedRow]) -> None:
        """Show the rows about what was done."""
        run.console.show(row, rows)

    def show_states(self, run: Invocation, situation: Situation) -> None:
        """Show how far the moves are."""
        run.console.show(StateRow, [state_row(move, situation) for move in situation.moves])


ROWS = Report()


def status_of_moves(run: Invocation, situation: Situation) -> ExitStatus:
    """Return FAILED if a partition is neither at its target nor moving there, else UNMET while any is in progress."""
    if run.status_of(state_row(move, situation) for move in situation.moves) is not ExitStatus.DONE:
        return ExitStatus.FAILED
    is_moving = any(situation.state_of(move) is MoveState.IN_PROGRESS for move in situation.moves)
    return ExitStatus.UNMET if is_moving else ExitStatus.DONE


# Reads the targets of a reassignment from options and files.


def plan_file(texts: list[str] | None, path: str | None) -> tuple[list[str] | None, str | None]:
    """Return the partitions and the file: a single argument that is not a partition may name the file."""
    if (
        texts
        and len(texts) == 1
        and path is None
        and not is_inline(texts[0])
        and (texts[0] == STANDARD_INPUT or Path(texts[0]).exists())
    ):
        return None, texts[0]
    return texts, path


def read_targets(texts: list[str] | None, path: str | None, *, with_replicas: bool = True) -> Assignment | None:
    """Return the reassignment in a file or in arguments; None if neither is given."""
    if texts and path:
        raise UsageError("give --reassignment-json-file or partitions, not both")
    if texts:
        try:
            return parse_inline(texts, with_replicas=with_replicas)
        except UsageError:
            file = next((text for text in texts if Path(text).is_file()), None)
            if file is None:
                raise
            raise UsageError(f"'{file}' is a file; give it as --reassignment-json-file {file}") from None
    if path is None:
        return None
    document = _document(path)
    try:
        return parse_reassignment(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read_log_dirs(path: str | None) -> LogDirTargets:
    """Return the log directories in the file, which `read_targets` has accepted."""
    return parse_log_dirs(_document(path)) if path else {}


@functools.cache
def _document(path: str) -> str:
    """Return the text of the file, read once, because a pipe cannot be read twice."""
    return read_text(path)


# Describes the cost of moves: replicas and bytes to copy, and the least duration.


def least_duration_ms(moves: Sequence[Move], rate: int) -> int:
    """Return the least duration: that of the broker that sends or receives most."""
    incoming, outgoing = bytes_by_broker(moves)
    return move_duration_ms(max([*incoming.values(), *outgoing.values(), 0]), rate)


def cost_text(moves: Sequence[Move], rate: int | None) -> str:
    """Return the number of replicas and bytes to copy, and the least duration with a throttle."""
    possible = [move for move in moves if not move.problem]
    total = sum(move.bytes_to_move or 0 for move in possible)
    replicas = sum(len(move.adding) + len(move.relocating) for move in possible)
    text = f"{counted(replicas, 'replica')} to copy, {counted(total, 'byte')}"
    if rate is not None and (duration_ms := least_duration_ms(moves, rate)):
        text += f", about {duration_text(duration_ms)} with this throttle"
    return text


def duration_text(duration_ms: int) -> str:
    """Return a length of time, rounded up to seconds."""
    seconds = -(-duration_ms // 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"
