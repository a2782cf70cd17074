"""What the verbs of `kctl reassign` print with --compat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.admin.placement.plan import rollback
from kctl.admin.placement.reassignment import list_reassignments
from kctl.commands.compat.texts import reassign as texts
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.reassign.rows import Cancelled, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kctl.admin.placement.execution import Situation
    from kctl.admin.placement.plan import Move
    from kctl.admin.placement.throttling import Restored
    from kctl.client.outcome import Outcome
    from kctl.commands.compat.registration import Call
    from kctl.commands.frame.invocation import Invocation
    from kctl.model import TopicPartition
    from kctl.output.console import TypedRow


def list_moves(call: Call, bootstrap_controller: str | None, **_: Any) -> ExitStatus:
    """`kctl reassign list`."""
    call.run.at_controllers(bootstrap_controller)
    call.run.console.verbatim(texts.listed(call.run.on_brokers(list_reassignments)))
    return ExitStatus.DONE


def execute_moves(call: Call, **_: Any) -> Any:
    """`kctl reassign execute`; a dry run shows rows."""
    return call.carry_out(report=_KafkaReport(call))


def verify_moves(call: Call, **_: Any) -> Any:
    """`kctl reassign verify`."""
    return call.carry_out(report=_KafkaReport(call))


def cancel_moves(call: Call, **_: Any) -> Any:
    """`kctl reassign cancel`, also with --dry-run."""
    return call.carry_out(report=_KafkaReport(call))


class _KafkaReport(Report):
    """Writes each step as Kafka's tool does, and no rows."""

    def __init__(self, call: Call) -> None:
        self._version = call.version
        self._write = call.run.console.verbatim
        self._warn = call.run.console.warn

    def refused(self) -> None:
        self._write(texts.EXISTING)

    def starting(self, phase: Sequence[Move]) -> None:
        self._write(texts.current_assignment(rollback(phase)))

    def throttle_set(self, rate: int) -> None:
        self._write(texts.throttle_set(rate))

    def started(self, phase: Sequence[Move], outcomes: Mapping[TopicPartition, Outcome]) -> None:
        refused = {tp: outcome.message for tp, outcome in outcomes.items() if not outcome.is_done}
        self._write(texts.start_refused(refused.items()) if refused else texts.started(outcomes))
        sent = {(broker, move.tp): path for move in phase for broker, path in move.log_dirs if move.tp not in refused}
        self._write(texts.log_dir_moves_started(self._version, sent))

    def unknown(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._warn(outcome.message)

    def cancelled(self, cancelled: Cancelled) -> None:
        if cancelled.failed:
            self._write(texts.cancel_refused((tp, outcome.message) for tp, outcome in cancelled.failed.items()))
        else:
            self._write(texts.cancelled(self._version, cancelled.active, cancelled.copies))

    def throttles_cleared(self, restored: Restored) -> None:
        self._write(texts.throttles_cleared(restored.brokers, restored.topics))

    def show(self, run: Invocation, row: type[TypedRow], rows: Sequence[TypedRow]) -> None:
        """Show nothing: the steps were written."""

    def show_states(self, run: Invocation, situation: Situation) -> None:
        states = [
            (move.tp, situation.partition_state_of(move), situation.replicas_of(move), move.target)
            for move in situation.moves
        ]
        replicas = {(broker, move.tp): path for move in situation.moves for broker, path in move.log_dirs}
        self._write(texts.states(self._version, states, replicas, situation.sizes))
