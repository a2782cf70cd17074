"""How moves of partitions look as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.admin.reassignment_plan import MoveState, bytes_moved
from kctl.commands.rows import NO_ERROR, known, outcome_error
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
    Column("replicas"),
    Column("target"),
    Column("adding"),
    Column("removing"),
    Column("leader", numeric=True),
    Column("leader_after", numeric=True),
    Column("bytes_to_move", numeric=True),
    Column("status"),
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


def plan_row(move: Move, status: str, outcome: Outcome | None = None) -> dict[str, Any]:
    """One move of `execute`, before, while and after it happens; `outcome` is what became of it otherwise."""
    failure = move.problem or (outcome if outcome is not None and not outcome.is_done else None)
    return {
        "topic": move.tp.topic,
        "partition": move.tp.partition,
        "replicas": list(move.current),
        "target": list(move.target),
        "adding": [] if move.problem else list(move.adding),
        "removing": [] if move.problem else list(move.removing),
        "leader": known(move.leader),
        "leader_after": None if move.problem else move.leader_after,
        "bytes_to_move": None if move.problem else move.bytes_to_move,
        "status": None if failure else status if move.is_change else NOTHING_TO_DO,
        **(outcome_error(failure) if failure else NO_ERROR),
    }


def state_row(move: Move, situation: Situation) -> dict[str, Any]:
    """One move of `status` and `verify`."""
    state = situation.state_of(move)
    in_progress = state is MoveState.IN_PROGRESS
    return {
        "topic": move.tp.topic,
        "partition": move.tp.partition,
        "status": state.value,
        "replicas": list(situation.replicas_of(move)),
        "target": list(move.target),
        "bytes_moved": bytes_moved(move, situation.sizes) if in_progress else None,
        "bytes_to_move": move.bytes_to_move if in_progress else None,
        **end_error(move, situation),
    }


def end_error(move: Move, situation: Situation) -> dict[str, str | None]:
    """Why the partition neither is where it should be nor on its way there."""
    match situation.state_of(move):
        case MoveState.DIFFERENT:
            now, wanted = (",".join(map(str, ids)) for ids in (situation.replicas_of(move), move.target))
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            return {"error": code.name, "message": f"nothing moves it, and its replicas are {now} and not {wanted}"}
        case MoveState.UNKNOWN:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return {"error": code.name, "message": f"there is no partition {move.tp}"}
        case MoveState.IN_PROGRESS | MoveState.COMPLETE:
            return dict(NO_ERROR)


def list_row(tp: TopicPartition, ongoing: Ongoing) -> dict[str, Any]:
    """One partition of `list`."""
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": list(ongoing.replicas),
        "adding": list(ongoing.adding),
        "removing": list(ongoing.removing),
    }


def cancel_row(tp: TopicPartition, status: str, outcome: Outcome | None = None) -> dict[str, Any]:
    """One partition of `cancel`."""
    failed = outcome is not None and not outcome.is_done
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "status": None if failed else status,
        **(outcome_error(outcome) if outcome else NO_ERROR),
    }
