"""`kctl cluster maintenance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.maintenance import MaintenanceRecord, elect_preferred, leaders_of, reorder_replicas
from kctl.admin.maintenance_plan import plan_maintenance, plan_return
from kctl.admin.outcome import Outcome
from kctl.admin.reassignment import list_reassignments
from kctl.admin.reassignment_plan import partition_of
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.reassign.options import DryRun, StateDir
from kctl.commands.reassign.throttle import records_of
from kctl.commands.rows import code_error, known, outcome_error
from kctl.commands.shown import shows
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode
from kctl.integers import INT32_MAX
from kctl.model import NO_LEADER
from kctl.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kctl.admin.reassignment import Ongoing
    from kctl.admin.reassignment_spec import Assignment
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import ClusterMetadata
    from kctl.model import TopicPartition

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("replicas", drop_order=2),
    Column("target", drop_order=1),
    Column("leader_before", numeric=True, drop_order=3),
    Column("leader", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)
_SHOWN = 5


class MaintenanceRow(NamedTuple):
    """A partition whose order of replicas or leader changes."""

    topic: str
    partition: int
    replicas: list[int]
    target: list[int]
    leader_before: int | None
    leader: int | None
    status: str | None
    error: str | None = None
    message: str | None = None


@app.command(
    "maintenance",
    cls=ChangingCommand,
    epilog=examples(
        "kctl cluster maintenance on 3 --dry-run",
        "kctl cluster maintenance on 3 --yes",
        "kctl cluster maintenance off 3 --yes",
    ),
)
@shows(MaintenanceRow)
def maintenance(
    ctx: typer.Context,
    mode: Annotated[Literal["on", "off"], typer.Argument(help="Move the leaders of the broker away, or back to it.")],
    broker: Annotated[int, typer.Argument(help="The id of the broker.", min=0, max=INT32_MAX)],
    *,
    allow_unavailable: Annotated[
        bool,
        typer.Option(
            "--allow-unavailable",
            help="Continue although partitions have no other in-sync replica; these are not moved.",
        ),
    ] = False,
    state_dir: StateDir = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Move the leaders of a broker away before it is serviced, and back afterwards.

    'on' makes the broker the last replica of each partition that it leads or that prefers it, and elects the next
    in-sync replica; no data is copied.  The broker continues to follow, and does not become leader again while another
    in-sync replica is alive, not even by automatic elections of preferred leaders.  The previous order is saved in
    --state-dir; 'off' restores it and elects.

    'on' refuses if a partition has no other in-sync replica than the one on the broker.  'off' exits with status 1 if
    the broker is not in sync for all partitions yet, and can be repeated.  Requires Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj
    metadata, ongoing = run.on_brokers(_look)
    record = MaintenanceRecord(records_of(state_dir, metadata.cluster_id).folder, broker)
    saved = record.load()
    work = _Work(run, metadata, dry_run=dry_run)
    if mode == "off":
        plan_off = plan_return(metadata, broker, saved)
        for tp in plan_off.changed:
            run.console.note(f"{tp} has other replicas than before, or does not exist; their order stays")
        late = {
            tp: Outcome(str(tp), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {broker} is not in sync: try later")
            for tp in plan_off.waiting
        }
        _refuse_moving(ongoing, plan_off.targets)
        if not saved:
            run.console.note(f"no maintenance of broker {broker} is recorded in {record.path}")
        elif not dry_run:
            run.consent(f"Restore the leaders of {counted(len(plan_off.targets), 'partition')}?")
        rows = work.do(plan_off.targets, list(plan_off.targets), late)
        if not dry_run:
            failed = {(row.topic, row.partition) for row in rows if row.error}
            record.save({tp: replicas for tp, replicas in saved.items() if tp in failed})
    else:
        plan_on = plan_maintenance(metadata, broker)
        if plan_on.unavailable and not allow_unavailable:
            shown = ", ".join(map(str, plan_on.unavailable[:_SHOWN]))
            more = f" and {len(plan_on.unavailable) - _SHOWN} more" if len(plan_on.unavailable) > _SHOWN else ""
            raise Refused(
                f"the only in-sync replica is on broker {broker}: {shown}{more}; repeat with --allow-unavailable to go "
                "on without them"
            )
        _refuse_moving(ongoing, plan_on.targets)
        tps = [one.tp for one in plan_on.handovers]
        if tps and not dry_run:
            run.consent(f"Move {counted(len(tps), 'partition')} to other leaders than broker {broker}?")
            # Saved first.  An earlier record of the same replicas stays: it has the order before any maintenance.
            same = {tp: order for tp, order in saved.items() if _has_replicas(metadata, tp, order)}
            record.save({**plan_on.origins, **same})
        try:
            rows = work.do(plan_on.targets, tps, {})
        finally:
            if tps and not dry_run:
                run.console.note(f"to undo: kctl cluster maintenance off {broker}{run.cluster_options()}")
    run.console.show(COLUMNS, rows)
    if not rows:
        run.console.note("nothing to change")
    return run.status_of(rows)


class _Work:
    """Changes orders and leaders, and reports them as rows."""

    def __init__(self, run: Invocation, metadata: ClusterMetadata, *, dry_run: bool) -> None:
        self._run = run
        self._metadata = metadata
        self._dry_run = dry_run

    def do(
        self, targets: Assignment, partitions: Sequence[TopicPartition], late: Mapping[TopicPartition, Outcome]
    ) -> list[MaintenanceRow]:
        """Gives `targets` their new order, then elects the preferred leaders of all `partitions`."""
        everything = sorted({*partitions, *late})
        if self._dry_run or not everything:
            leaders = {tp: targets.get(tp, self._replicas(tp))[0] for tp in partitions}
            return [self._row(tp, targets, leaders.get(tp), late.get(tp), "would change") for tp in everything]

        async def work(client: ClusterClient) -> tuple[dict[TopicPartition, Outcome], dict[TopicPartition, int]]:
            outcomes = await reorder_replicas(client, targets)
            refused = {tp: outcome for tp, outcome in outcomes.items() if not outcome.is_done}
            elections = await elect_preferred(client, [tp for tp in partitions if tp not in refused], self._metadata)
            leaders = {one.tp: one.leader for one in elections}
            leaders |= await leaders_of(client, set(everything) - leaders.keys())
            return {one.tp: one.outcome for one in elections} | refused, leaders

        outcomes, leaders = self._run.on_cluster_concurrently(work)
        outcomes |= late
        return [self._row(tp, targets, leaders[tp], outcomes.get(tp), "changed") for tp in everything]

    def _row(
        self, tp: TopicPartition, targets: Assignment, leader: int | None, outcome: Outcome | None, status: str
    ) -> MaintenanceRow:
        partition = partition_of(self._metadata, tp)
        replicas = self._replicas(tp)
        failed = outcome is not None and not outcome.is_done
        return MaintenanceRow(
            topic=tp.topic,
            partition=tp.partition,
            replicas=list(replicas),
            target=list(targets.get(tp, replicas)),
            leader_before=known(NO_LEADER if partition is None else partition.leader),
            leader=None if leader is None else known(leader),
            status=None if failed else status,
            **(outcome_error(outcome) if outcome else code_error(ErrorCode.NONE)),
        )

    def _replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        partition = partition_of(self._metadata, tp)
        return () if partition is None else partition.replicas


async def _look(client: ClusterClient) -> tuple[ClusterMetadata, Mapping[TopicPartition, Ongoing]]:
    """Raises ApiError(CLUSTER_AUTHORIZATION_FAILED): topics may be hidden then, and nothing would seem to change."""
    return await client.metadata(), await list_reassignments(client)


def _refuse_moving(ongoing: Mapping[TopicPartition, Ongoing], targets: Assignment) -> None:
    """Raises Refused if a reassignment is in progress: a change of the order would replace it."""
    moving = [tp for tp in targets if tp in ongoing]
    if moving:
        raise Refused(
            f"{len(moving)} of the partitions are being moved ({moving[0]}, ...): wait, or cancel their moves"
        )


def _has_replicas(metadata: ClusterMetadata, tp: TopicPartition, replicas: tuple[int, ...]) -> bool:
    partition = partition_of(metadata, tp)
    return partition is not None and sorted(partition.replicas) == sorted(replicas)
