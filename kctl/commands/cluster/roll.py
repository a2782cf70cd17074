"""`kctl cluster roll`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.health import min_insync_replicas
from kctl.admin.rolling import NotHealthy, RollingRestart
from kctl.admin.rolling_plan import command_for, plan_roll
from kctl.client.asyncio_transport import AsyncioTransport
from kctl.client.cluster import ClusterClient
from kctl.client.settings import parse_servers
from kctl.commands.cluster.dev_cluster import DataDir, dev_cluster_in, started_layout
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.log_format import log_format_of
from kctl.commands.shown import shows
from kctl.commands.times import parse_duration_ms
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode, KctlError, UsageError
from kctl.integers import parse_integer
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.rolling_plan import RollStep
    from kctl.client.metadata import ClusterMetadata
    from kctl.client.settings import ClientSettings

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("broker", numeric=True),
    Column("address"),
    Column("rack"),
    Column("controller"),
    Column("leaders", numeric=True),
    Column("replicas", numeric=True),
    Column("status"),
    Column("seconds", numeric=True),
    *ERROR_COLUMNS,
)
_OUTPUT_BYTES_MAX = 4096
"""The end of a program's output that is shown when it fails."""
_OUTPUT_WAIT_S = 1.0
_SHOWN = 5


class RollRow(NamedTuple):
    """The restart of one broker; status is planned, restarted, failed or not started."""

    broker: int
    address: str
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    status: str
    seconds: float | None = None
    error: str | None = None
    message: str | None = None


@app.command(
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
        str | None, typer.Option("--brokers", metavar="ID[,ID...]", help="Only these brokers.  Default: all.")
    ] = None,
    broker_timeout: Annotated[
        str,
        typer.Option(
            "--broker-timeout", metavar="DURATION", help="Time for each broker, until all its replicas are in sync."
        ),
    ] = "10m",
    allow_unavailable: Annotated[
        bool,
        typer.Option(
            "--allow-unavailable", help="Restart brokers although partitions cannot be read or written meanwhile."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the order and the effects only.")] = False,
) -> ExitStatus:
    """Restart the brokers of a cluster one by one, without interrupting clients.

    Before each restart the cluster has to be healthy, as for 'kctl cluster health'.  A broker transfers its leaders
    when it is stopped; when it is back, its replicas have to be in sync on every broker, and it becomes the leader of
    the partitions that prefer it.  The controller is the last.  The command stops at the first problem: no other broker
    is restarted then.

    The exit status is 3 if the cluster was not healthy before the first restart, and 1 if a restart has failed.
    """
    run: Invocation = ctx.obj
    timeout_s = parse_duration_ms(broker_timeout) / 1000
    chosen = [parse_integer(each, "the id of a broker", low=0) for each in brokers.split(",")] if brokers else None
    if restart_command is not None and data_dir is not None:
        raise UsageError("--restart-command and --data-dir contradict each other: give one of them")
    restarter = _Cluster(run, data_dir) if restart_command is None else _Command(run, restart_command)
    settings = restarter.settings()
    metadata, minimums = asyncio.run(_look(settings))
    steps = plan_roll(metadata, minimums, chosen)
    for step in steps:
        restarter.check(step)
    rows = [_row(step, "planned") for step in steps]
    if dry_run:
        run.console.show(COLUMNS, rows)
        _warn_of(run, steps)
        return ExitStatus.DONE
    if not allow_unavailable and not all(step.is_harmless for step in steps):
        if not run.console.format.is_document:  # Where the one document describes the error.
            run.console.show(COLUMNS, rows)
        _warn_of(run, steps)
        raise Refused("clients could not use these partitions meanwhile: repeat with --allow-unavailable")
    run.consent(f"Restart {counted(len(steps), 'broker')} of {len(metadata.brokers)}, one by one?")
    roller = RollingRestart(settings, metadata.brokers)
    rows, status = asyncio.run(_roll(run, roller, steps, restarter, timeout_s))
    run.console.show(COLUMNS, rows)
    return status


class _Command:
    """Restarts a broker by a program of the user."""

    def __init__(self, run: Invocation, template: str) -> None:
        self._run = run
        self._template = template

    def settings(self) -> ClientSettings:
        """How to reach the cluster."""
        return self._run.client_settings()

    def check(self, step: RollStep) -> None:
        """Raises UsageError if there is no command for the broker."""
        self._words(step)

    async def restart(self, step: RollStep) -> None:
        """Raises KctlError with the end of the program's output if it fails."""
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
        """How to reach the cluster: by all its brokers."""
        addresses = [f"127.0.0.1:{port}" for port in self._layout.ports]
        return self._run.client_settings()._replace(bootstrap=parse_servers(",".join(addresses)))

    def check(self, step: RollStep) -> None:
        """Raises KctlError if the broker is not one of the cluster."""
        if step.broker.port not in self._layout.ports:
            raise KctlError(f"broker {step.broker.node_id} at {step.broker.address} is not in {self._cluster.path}")

    async def restart(self, step: RollStep) -> None:
        """Stops and starts the broker.  Raises KctlError."""
        number = self._layout.ports.index(step.broker.port)
        await asyncio.to_thread(
            self._cluster.restart, self._layout, number, log_format_of(None), on_warning=self._run.console.warn
        )


async def _look(settings: ClientSettings) -> tuple[ClusterMetadata, dict[str, int]]:
    async with ClusterClient(settings, AsyncioTransport()) as client:
        with client.one_deadline():
            metadata = await client.metadata()
            return metadata, await min_insync_replicas(client, metadata.topics)


async def _roll(
    run: Invocation, roller: RollingRestart, steps: list[RollStep], restarter: _Command | _Cluster, timeout_s: float
) -> tuple[list[RollRow], ExitStatus]:
    """Restarts the brokers in order, until the first problem."""
    now = asyncio.get_running_loop().time
    rows = [_row(step, "not started") for step in steps]
    for number, step in enumerate(steps):
        start_s = now()
        name = f"broker {step.broker.node_id} ({number + 1} of {len(steps)})"
        try:
            await roller.restart(
                step.broker.node_id,
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
