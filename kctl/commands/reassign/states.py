"""Shows how far reassignments are and which throttles were removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.admin.reassignment_plan import MoveState
from kctl.commands.compat import reassign as reassign_compat
from kctl.commands.compat.reassign import throttles_cleared
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.reassign.rows import STATE_COLUMNS, state_row

if TYPE_CHECKING:
    from kctl.admin.reassigning import Situation
    from kctl.admin.throttling import Restored


def show_states(run: Invocation, situation: Situation, compat: str | None) -> ExitStatus:
    """Shows a row per move, or the text of Kafka's tool of version `compat`; UNMET while any move is in progress."""
    rows = [state_row(move, situation) for move in situation.moves]
    states = {move: situation.state_of(move) for move in situation.moves}
    if compat:
        found = [
            (move.tp, situation.partition_state_of(move), situation.replicas_of(move), move.target) for move in states
        ]
        replicas = {(broker, move.tp): path for move in situation.moves for broker, path in move.log_dirs}
        run.console.verbatim(reassign_compat.states(compat, found, replicas, situation.sizes))
    else:
        run.console.show(STATE_COLUMNS, rows)
    if run.status_of(rows) is not ExitStatus.DONE:
        return ExitStatus.FAILED
    return ExitStatus.UNMET if MoveState.IN_PROGRESS in states.values() else ExitStatus.DONE


def show_cleared_throttles(run: Invocation, restored: Restored, compat: str | None) -> bool:
    """Shows in `compat` which throttles were removed; False if the removal of one failed."""
    if compat:
        run.console.verbatim(throttles_cleared(restored.brokers, restored.topics))
    return not restored.failed
