"""`kctl cluster`: roll, maintenance."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.cluster.health import min_insync_replicas
from kctl.admin.cluster.maintenance import (
    MaintenanceRecord,
    elect_preferred,
    leaders_of,
    plan_maintenance,
    plan_return,
    reorder_replicas,
)
from kctl.admin.cluster.observation import read_quorum
from kctl.admin.cluster.rolling import NotHealthy, RollingRestart
from kctl.admin.cluster.rolling_plan import command_for, plan_roll
from kctl.admin.placement.plan import partition_of
from kctl.admin.placement.reassignment import list_reassignments
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.outcome import Outcome
from kctl.client.settings import parse_servers
from kctl.commands.cluster.development import DataDir, dev_cluster_in, started_layout
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.log_format import log_format_of
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.output.rows import code_error, known, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.reassign.rows import DryRun, StateDir
from kctl.commands.reassign.throttling import records_of
from kctl.errors import ErrorCode, KctlError, UsageError
from kctl.model import NO_LEADER
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.quantities import INT32_MAX, counted, parse_integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kctl.admin.cluster.quorum import QuorumReading
    from kctl.admin.cluster.rolling_plan import RollStep
    from kctl.admin.placement.documents import Assignment
    from kctl.admin.placement.reassignment import Ongoing
    from kctl.client.metadata import ClusterMetadata
    from kctl.client.settings import ClientSettings
    from kctl.model import TopicPartition


# `kctl cluster roll`.


verbs = typer.Typer(add_completion=False)

_OUTPUT_BYTES_MAX = 4096
"""The end of a program's output that is shown when it fails."""
_OUTPUT_WAIT_S = 1.0
_SHOWN = 5


class RollRow(NamedTuple):
    """The restart of one broker or controller; status is planned, restarted, failed or not started."""

    broker: int
    address: str
    rack: str | None
    controller: bool
    """Whether it is the active controller."""
    role: Annotated[str, Column(drop_order=1), "broker, controller or broker,controller."]
    leaders: int
    replicas: int
    status: str
    seconds: float | None = None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "roll",
    cls=ChangingCommand,
    epilog=examples(
        "kctl cluster roll --dry-run",
        "kctl cluster roll --data-dir /tmp/cluster --yes",
        "kctl cluster roll --restart-command 'ssh {host} sudo systemctl restart kctl-broker'",
        "kctl cluster roll --brokers 2,3 --broker-timeout 20m --restart-command 'restart-broker {id}' --yes",
    ),
)
@shows(RollRow)
def roll(
    ctx: typer.Context,
    *,
    restart_command: Annotated[
        str | None,
        typer.Option(
            "--restart-command",
            metavar="COMMAND",
            help="Program that restarts one broker, with {id}, {host}, {port} and {rack}; no shell is used.  "
            "Default: the cluster of --data-dir is restarted.",
        ),
    ] = None,
    data_dir: DataDir = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID[,ID...]", help="Only these brokers and controllers.  Default: all."),
    ] = None,
    broker_timeout: Annotated[
        Duration,
        typer.Option(
            "--broker-timeout", parser=Duration, help="Time for each broker, until all its replicas are in sync."
        ),
    ] = Duration("10m"),
    allow_unavailable: Annotated[
        bool,
        typer.Option(
            "--allow-unavailable", help="Restart brokers although partitions cannot be read or written meanwhile."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the order and the effects only.")] = False,
) -> ExitStatus:
    """Restart the brokers and dedicated controllers of a cluster one by one, without interrupting clients.

    Before each restart the cluster has to be healthy, as for 'kctl cluster health'.  A broker transfers its leaders
    when it is stopped; when it is back, its replicas have to be in sync on every broker, and it becomes the leader of
    the partitions that prefer it.  A controller of a KRaft cluster is restarted only while the others have a majority,
    and has to follow the metadata quorum again.  Dedicated controllers come after the brokers, and the active
    controller is the last.  The command stops at the first problem: nothing else is restarted then.

    The exit status is 3 if the cluster was not healthy before the first restart, and 1 if a restart has failed.
    """
    run: Invocation = ctx.obj
    timeout_s = broker_timeout / 1000
    chosen = (
        [parse_integer(broker_id, "the id of a broker", low=0) for broker_id in brokers.split(",")] if brokers else None
    )
    if restart_command is not None and data_dir is not None:
        raise UsageError("--restart-command and --data-dir contradict each other: give one of them")
    restarter = _Cluster(run, data_dir) if restart_command is None else _Command(run, restart_command)
    settings = restarter.settings()
    metadata, minimums, reading = asyncio.run(_look(settings))
    if reading.refused is not None:
        raise reading.refused
    if reading.frozen is not None:
        run.console.warn(f"{reading.frozen}: nothing is restarted")
        return ExitStatus.UNMET
    steps = plan_roll(metadata, minimums, chosen, reading.quorum)
    for step in steps:
        restarter.check(step)
        if reading.quorum is not None and [voter.node_id for voter in reading.quorum.voters] == [step.broker.node_id]:
            run.console.warn(
                f"controller {step.broker.node_id} is the only voter: while it restarts, nothing is changed or elected"
            )
    rows = [_row(step, "planned") for step in steps]
    if dry_run:
        run.console.show(RollRow, rows)
        _warn_of(run, steps)
        return ExitStatus.DONE
    if not allow_unavailable and not all(step.is_harmless for step in steps):
        if not run.console.format.is_document:  # Where the one document describes the error.
            run.console.show(RollRow, rows)
        _warn_of(run, steps)
        raise Refused("clients could not use these partitions meanwhile: repeat with --allow-unavailable")
    controllers = sum(not step.is_broker for step in steps)
    more = f" and {counted(controllers, 'controller')}" if controllers else ""
    brokers_text = f"{counted(len(steps) - controllers, 'broker')} of {len(metadata.brokers)}"
    run.consent(f"Restart {brokers_text}{more}, one by one?")
    roller = RollingRestart(settings, metadata.brokers)
    rows, status = asyncio.run(_roll(run, roller, steps, restarter, timeout_s))
    run.console.show(RollRow, rows)
    return status


class _Command:
    """Restarts a broker by a program of the user."""

    def __init__(self, run: Invocation, template: str) -> None:
        self._run = run
        self._template = template

    def settings(self) -> ClientSettings:
        """Return how to reach the cluster."""
        return self._run.client_settings()

    def check(self, step: RollStep) -> None:
        """Raise UsageError if there is no command for the broker."""
        self._words(step)

    async def restart(self, step: RollStep) -> None:
        """Raise KctlError with the end of the program's output if it fails."""
        words = self._words(step)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise KctlError(f"{words[0]} cannot be started: {error.strerror}") from None
        assert process.stdout is not None
        output = bytearray()
        reading = asyncio.create_task(_keep_end(process.stdout, output), name="output")
        try:
            status = await process.wait()
            # What the program has started may keep its output open: only what is there by now is read.
            await asyncio.wait([reading], timeout=_OUTPUT_WAIT_S)
        finally:
            reading.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        if status:
            shown = bytes(output).decode(errors="replace").strip().replace("\n", "; ")
            raise KctlError(
                f"broker {step.broker.node_id}: '{words[0]}' ended with status {status}: {shown or 'no output'}"
            )

    def _words(self, step: RollStep) -> list[str]:
        return command_for(self._template, step.broker)


class _Cluster:
    """Restarts a broker of a cluster that `kctl cluster start` has started."""

    def __init__(self, run: Invocation, data_dir: str | None) -> None:
        self._run = run
        self._cluster = dev_cluster_in(data_dir)
        self._layout = started_layout(self._cluster)

    def settings(self) -> ClientSettings:
        """Return how to reach the cluster: by all its brokers."""
        addresses = [f"127.0.0.1:{port}" for port in self._layout.ports]
        return self._run.client_settings()._replace(bootstrap=parse_servers(",".join(addresses)))

    def check(self, step: RollStep) -> None:
        """Raise KctlError if the broker is not one of the cluster."""
        if step.broker.port not in self._layout.ports:
            raise KctlError(f"broker {step.broker.node_id} at {step.broker.address} is not in {self._cluster.path}")

    async def restart(self, step: RollStep) -> None:
        """Stop and start the broker.  Raises KctlError."""
        number = self._layout.ports.index(step.broker.port)
        await asyncio.to_thread(
            self._cluster.restart, self._layout, number, log_format_of(None), on_warning=self._run.console.warn
        )


async def _look(settings: ClientSettings) -> tuple[ClusterMetadata, dict[str, int], QuorumReading]:
    async with ClusterClient(settings, AsyncioTransport()) as client:
        with client.one_deadline():
            reading = await read_quorum(client)
            metadata = await client.metadata()
            return metadata, await min_insync_replicas(client, metadata.topics), reading


async def _roll(
    run: Invocation, roller: RollingRestart, steps: list[RollStep], restarter: _Command | _Cluster, timeout_s: float
) -> tuple[list[RollRow], ExitStatus]:
    """Restart the brokers in order, until the first problem."""
    now = asyncio.get_running_loop().time
    rows = [_row(step, "not started") for step in steps]
    for number, step in enumerate(steps):
        start_s = now()
        what = "broker" if step.is_broker else "controller"
        name = f"{what} {step.broker.node_id} ({number + 1} of {len(steps)})"
        try:
            await roller.restart(
                step,
                partial(restarter.restart, step),
                timeout_s=timeout_s,
                on_progress=lambda text, name=name: run.console.note(f"{name}: {text}"),  # type: ignore[misc]
            )
        except KctlError as error:
            is_unhealthy = isinstance(error, NotHealthy)
            rows[number] = _row(
                step,
                "not started" if is_unhealthy else "failed",
                seconds=round(now() - start_s, 1),
                error=(ErrorCode.NOT_ENOUGH_REPLICAS if is_unhealthy else ErrorCode.BROKER_NOT_AVAILABLE).name,
                message=str(error),
            )
            run.console.note(f"{name}: {error}; stopping here")
            return rows, ExitStatus.UNMET if is_unhealthy and number == 0 else ExitStatus.FAILED
        except asyncio.CancelledError:
            run.changes = None
            run.console.warn(
                f"interrupted: {number} of {counted(len(steps), 'broker')} restarted; the restart of broker"
                f" {step.broker.node_id} was not completed: look at it before you continue with --brokers"
            )
            raise
        rows[number] = _row(step, "restarted", seconds=round(now() - start_s, 1))
        run.console.note(f"{name}: done")
    return rows, ExitStatus.DONE


async def _keep_end(stream: asyncio.StreamReader, output: bytearray) -> None:
    while piece := await stream.read(_OUTPUT_BYTES_MAX):
        output += piece
        del output[:-_OUTPUT_BYTES_MAX]


def _row(
    step: RollStep, status: str, *, seconds: float | None = None, error: str | None = None, message: str | None = None
) -> RollRow:
    return RollRow(
        broker=step.broker.node_id,
        address=step.broker.address,
        rack=step.broker.rack,
        controller=step.is_controller,
        role=step.role,
        leaders=step.leaders,
        replicas=step.replicas,
        status=status,
        seconds=seconds,
        error=error,
        message=message,
    )


def _warn_of(run: Invocation, steps: list[RollStep]) -> None:
    for step in steps:
        for partitions, what in ((step.unavailable, "unavailable"), (step.under_min_isr, "under min.insync.replicas")):
            if partitions:
                shown = ", ".join(map(str, partitions[:_SHOWN]))
                more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
                run.console.warn(f"while broker {step.broker.node_id} restarts, {what}: {shown}{more}")


# `kctl cluster maintenance`.


class MaintenanceRow(NamedTuple):
    """A partition whose order of replicas or leader changes."""

    topic: str
    partition: int
    replicas: Annotated[list[int], Column(drop_order=2)]
    target: Annotated[list[int], Column(drop_order=1)]
    leader_before: Annotated[int | None, Column(drop_order=3)]
    leader: int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
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
    metadata, ongoing = run.on_brokers(_look_at_leaders)
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
        tps = [handover.tp for handover in plan_on.handovers]
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
    run.console.show(MaintenanceRow, rows)
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
        """Give `targets` their new order, then elect the preferred leaders of all `partitions`."""
        everything = sorted({*partitions, *late})
        if self._dry_run or not everything:
            leaders = {tp: targets.get(tp, self._replicas(tp))[0] for tp in partitions}
            return [self._row(tp, targets, leaders.get(tp), late.get(tp), "would change") for tp in everything]

        async def work(client: ClusterClient) -> tuple[dict[TopicPartition, Outcome], dict[TopicPartition, int]]:
            outcomes = await reorder_replicas(client, targets)
            refused = {tp: outcome for tp, outcome in outcomes.items() if not outcome.is_done}
            elections = await elect_preferred(client, [tp for tp in partitions if tp not in refused], self._metadata)
            leaders = {election.tp: election.leader for election in elections}
            leaders |= await leaders_of(client, set(everything) - leaders.keys())
            return {election.tp: election.outcome for election in elections} | refused, leaders

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


async def _look_at_leaders(client: ClusterClient) -> tuple[ClusterMetadata, Mapping[TopicPartition, Ongoing]]:
    """Read the topics; raise ApiError(CLUSTER_AUTHORIZATION_FAILED): topics may be hidden then, and nothing would
    change.
    """
    return await client.metadata(), await list_reassignments(client)


def _refuse_moving(ongoing: Mapping[TopicPartition, Ongoing], targets: Assignment) -> None:
    """Raise Refused if a reassignment is in progress: a change of the order would replace it."""
    moving = [tp for tp in targets if tp in ongoing]
    if moving:
        raise Refused(
            f"{len(moving)} of the partitions are being moved ({moving[0]}, ...): wait, or cancel their moves"
        )


def _has_replicas(metadata: ClusterMetadata, tp: TopicPartition, replicas: tuple[int, ...]) -> bool:
    partition = partition_of(metadata, tp)
    return partition is not None and sorted(partition.replicas) == sorted(replicas)
