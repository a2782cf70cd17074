"""`kctl reassign execute` and `cancel` with --bootstrap-controller.

A controller starts, lists and cancels moves (KIP-455, KIP-919).  It answers neither Metadata nor requests about log
directories: present replicas, sizes and progress are unknown, and it checks a move when this is requested, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.groups.undo_files import original_order
from kctl.admin.placement.execution import cancel_moves
from kctl.admin.placement.reassignment import alter_reassignments, list_reassignments
from kctl.admin.placement.throttling import finished_keys
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.reassign.performing import refuse_beside_others
from kctl.commands.reassign.rows import STARTED, Cancelled, CancelRow, Report, cancel_row
from kctl.commands.reassign.throttling import records_of
from kctl.errors import ErrorCode, UsageError
from kctl.output.console import ErrorName, ErrorText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.placement.documents import Assignment, LogDirTargets
    from kctl.admin.placement.reassignment import Ongoing
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome
    from kctl.commands.frame.invocation import Invocation
    from kctl.model import TopicPartition


class RequestedRow(NamedTuple):
    """A partition that `execute` moves through a controller."""

    topic: str
    partition: int
    target: list[int]
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


def refuse_what_needs_brokers(log_dirs: LogDirTargets, options: Mapping[str, bool]) -> None:
    """Raise UsageError for the options that were given and need what only brokers tell."""
    given = [option for option, is_given in options.items() if is_given]
    if given:
        raise UsageError(
            f"{given[0]} needs --bootstrap-server: controllers tell neither the present replicas nor their sizes"
        )
    if log_dirs:
        raise UsageError('"log_dirs" need --bootstrap-server: controllers do not move replicas between directories')


def execute_at_controllers(
    run: Invocation, targets: Assignment, report: Report, *, additional: bool, dry_run: bool
) -> ExitStatus:
    """Start the moves; the controller refuses those that are impossible, and starts the others.  Raises Refused."""
    ongoing = run.on_brokers(list_reassignments)
    under_way = {tp for tp, target in targets.items() if tp in ongoing and ongoing[tp].target == target}
    refuse_beside_others(ongoing, under_way, report, additional=additional)
    if dry_run:
        run.console.note("controllers check a move when it is requested; give --bootstrap-server to check it before")
        rows = [
            _requested_row(tp, target, "is moving already" if tp in under_way else "would be requested")
            for tp, target in sorted(targets.items())
        ]
    else:
        outcomes = run.on_brokers(lambda client: alter_reassignments(client, targets))
        report.started([], outcomes)
        rows = [_requested_row(tp, target, STARTED, outcomes[tp]) for tp, target in sorted(targets.items())]
        if any(row.error is None for row in rows):
            run.console.note(
                f"to undo while the partitions move: kctl reassign cancel{run.cluster_options()}; there is no rollback "
                "file, because controllers do not tell the replicas from before the move"
            )
    report.show(run, RequestedRow, rows)
    return run.status_of(rows)


def cancel_at_controllers(
    run: Invocation, targets: Assignment | None, state_dir: str | None, report: Report, *, dry_run: bool
) -> ExitStatus:
    """Cancel the moves to other brokers.  Throttles stay, because controllers cannot restore those of brokers."""

    async def look(client: ClusterClient) -> tuple[str | None, dict[TopicPartition, Ongoing]]:
        return (await client.metadata([])).cluster_id, await list_reassignments(client)

    cluster_id, ongoing = run.on_brokers(look)
    requested = sorted(ongoing if targets is None else targets)
    records = records_of(state_dir, cluster_id)
    outcomes: dict[TopicPartition, Outcome] = {}
    if not dry_run:
        origins = {
            tp: original_order(records.folder, tp, ongoing[tp].origin) if tp in ongoing else None for tp in requested
        }
        outcomes = run.on_brokers(lambda client: cancel_moves(client, origins))
    unmoved = {tp for tp, outcome in outcomes.items() if outcome.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    unmoved |= {tp for tp in requested if dry_run and tp not in ongoing}
    rows: list[CancelRow] = []
    for tp in requested:
        if tp in unmoved:
            rows.append(cancel_row(tp, "does not move"))
        else:
            rows.append(cancel_row(tp, "would be cancelled" if dry_run else "cancelled", outcomes.get(tp)))
    failed = {tp: outcome for tp, outcome in outcomes.items() if tp not in unmoved and not outcome.is_done}
    active = [tp for tp in requested if tp not in unmoved]
    if not dry_run and finished_keys(records, [tp for tp in ongoing if tp not in active or tp in failed]):
        run.console.warn(
            "the throttle of a move that has ended stays, because controllers cannot restore settings of brokers; "
            "'kctl reassign verify --bootstrap-server HOST:PORT' restores them"
        )
    report.show(run, CancelRow, rows)
    report.cancelled(Cancelled(active, {}, failed))
    return run.status_of(rows)


def _requested_row(
    tp: TopicPartition, target: tuple[int, ...], status: str, outcome: Outcome | None = None
) -> RequestedRow:
    if outcome is None or outcome.is_done:
        return RequestedRow(tp.topic, tp.partition, list(target), status)
    return RequestedRow(tp.topic, tp.partition, list(target), None, **outcome_error(outcome))
