"""Moves of partitions as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.reassignment_plan import MoveState, bytes_moved, replica_state
from kctl.admin.reassignment_spec import ANY_LOG_DIR
from kctl.commands.rows import ErrorFields, code_error, known, outcome_error
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.admin.reassigning import Situation
    from kctl.admin.reassignment import Ongoing
    from kctl.admin.reassignment_plan import Move
    from kctl.model import TopicPartition

PLAN_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("replicas", drop_order=6),
    Column("target"),
    Column("adding", drop_order=4),
    Column("removing", drop_order=5),
    Column("leader", numeric=True, drop_order=2),
    Column("leader_after", numeric=True, drop_order=3),
    Column("bytes_to_move", numeric=True),
    Column("status"),
    Column("log_dirs", drop_order=1),
    *ERROR_COLUMNS,
)
STATE_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("status"),
    Column("replicas"),
    Column("target"),
    Column("bytes_moved", numeric=True),
    Column("bytes_to_move", numeric=True),
    Column("log_dirs", drop_order=1),
    *ERROR_COLUMNS,
)
LIST_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("replicas"),
    Column("adding"),
    Column("removing"),
)
CANCEL_COLUMNS = (Column("topic"), Column("partition", numeric=True), Column("status"), *ERROR_COLUMNS)

WOULD_MOVE = "would move"
STARTED = "started"
NOTHING_TO_DO = "nothing to do"
NOT_STARTED = "not started"


class PlanRow(NamedTuple):
    """A partition that `execute` moves."""

    topic: str
    partition: int
    replicas: list[int]
    target: list[int]
    log_dirs: list[str]
    adding: list[int]
    removing: list[int]
    leader: int | None
    leader_after: int | None
    bytes_to_move: int | None
    status: str | None
    error: str | None = None
    message: str | None = None


class StateRow(NamedTuple):
    """A partition that is moving or has moved."""

    topic: str
    partition: int
    status: str
    replicas: list[int]
    target: list[int]
    log_dirs: list[str]
    bytes_moved: int | None
    bytes_to_move: int | None
    error: str | None = None
    message: str | None = None


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
    error: str | None = None
    message: str | None = None


def plan_row(move: Move, status: str, outcome: Outcome | None = None) -> PlanRow:
    """One move of `execute`; `outcome` is the result of starting it."""
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
    """One move of `status` and `verify`."""
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
    """The error of a partition that is neither at its target nor moving there."""
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
    """The requested log directories, one per replica of the target."""
    by_broker = dict(move.log_dirs)
    return [by_broker.get(broker, ANY_LOG_DIR) for broker in move.target]


def _misplaced(move: Move, situation: Situation) -> ErrorFields | None:
    """The error of a replica on the right broker that is in another log directory and not moving."""
    if situation.replicas_of(move) != move.target:
        return None
    for broker, path in move.log_dirs:
        if replica_state(move.tp, broker, path, situation.sizes) is MoveState.DIFFERENT:
            place = situation.sizes.places.get((broker, move.tp), "no log directory that is online")
            text = f"nothing moves its replica on broker {broker}, which is in {place}, to {path}"
            return {"error": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.name, "message": text}
    return None


def list_row(tp: TopicPartition, ongoing: Ongoing) -> OngoingRow:
    """One partition of `list`."""
    return OngoingRow(tp.topic, tp.partition, list(ongoing.replicas), list(ongoing.adding), list(ongoing.removing))


def cancel_row(tp: TopicPartition, status: str, outcome: Outcome | None = None) -> CancelRow:
    """One partition of `cancel`."""
    failed = outcome is not None and not outcome.is_done
    return CancelRow(
        topic=tp.topic,
        partition=tp.partition,
        status=None if failed else status,
        **(outcome_error(outcome) if outcome else code_error(ErrorCode.NONE)),
    )
