"""`kctl cluster`: start, status, stop."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.security import client_security
from kctl.client.settings import ClientSettings, parse_servers
from kctl.commands.broker.start import StopWith, running_process
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.log_format import LogFormatOption, log_format_of
from kctl.commands.frame.options.option_types import Pair
from kctl.commands.frame.options.parameters import DEFAULT_BOOTSTRAP_SERVER
from kctl.commands.frame.output.shown import shows
from kctl.config.properties import parse_properties
from kctl.errors import ErrorCode, KctlError
from kctl.output.console import ErrorName, ErrorText
from kctl.output.quantities import INT32_MAX, PORT_MAX
from kctl.server.process.dev_cluster import DevCluster, settle

if TYPE_CHECKING:
    from kctl.client.connections.transport import Security
    from kctl.server.process.dev_cluster import Layout, Member
    from kctl.server.process.secure_setup import SecureSetup


# The development cluster of a data folder, and the rows about its brokers.


class MemberRow(NamedTuple):
    """A process of the cluster: a broker or the coordination service."""

    name: str
    state: str
    address: str | None
    pid: int | None
    data_dir: str | None
    error: ErrorName
    message: ErrorText


DataDir = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the cluster.  Default: kctl/cluster under XDG_DATA_HOME, which is ~/.local/share.",
    ),
]


def dev_cluster_in(data_dir: str | None) -> DevCluster:
    """Return the cluster in this folder, or in the default one; it may not have been started yet."""
    if data_dir:
        return DevCluster(Path(data_dir).expanduser().absolute())
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return DevCluster(Path(home).expanduser() / "kctl" / "cluster")


def started_layout(cluster: DevCluster) -> Layout:
    """Return the processes of the cluster.  Raises KctlError if it has never been started."""
    layout = cluster.layout()
    if layout is None:
        raise KctlError(f"there is no cluster in {cluster.path}; 'kctl cluster start' creates one")
    return layout


def show_members(run: Invocation, members: list[Member]) -> list[MemberRow]:
    """Print a row for each process of the cluster, and return the rows."""
    rows = [
        MemberRow(
            name=member.name,
            state=member.state,
            address=member.address,
            pid=member.pid,
            data_dir=str(member.data_dir) if member.data_dir else None,
            error=ErrorCode.BROKER_NOT_AVAILABLE.name if member.problem else None,
            message=member.problem,
        )
        for member in members
    ]
    run.console.show(MemberRow, rows)
    return rows


# `kctl cluster start`.


verbs = typer.Typer(add_completion=False)


POLL_MS = 500
TOGETHER_TIMEOUT_MS = 30_000


@verbs.command(
    "start",
    cls=LocalCommand,
    epilog=examples(
        "kctl cluster start",
        "kctl cluster start --brokers 5 --data-dir /tmp/cluster --port 19092 -o num.partitions=3",
        "kctl cluster start --secure --data-dir /tmp/secured",
        "kctl cluster start --data-dir /tmp/cluster --zookeeper zk1:2181,zk2:2181/kafka",
    ),
)
@shows(MemberRow)
def start(
    ctx: typer.Context,
    *,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            metavar="N",
            help="Number of brokers.  Default: the brokers that the folder has, or 3.",
            min=1,
            max=INT32_MAX,
        ),
    ] = None,
    data_dir: DataDir = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            help="Port of broker 0 on 127.0.0.1; the others follow.  0 picks free ports.  Default: 9092.",
            max=PORT_MAX,
            min=0,
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="HOST:PORT[,...][/CHROOT]", help="Ensemble to use.  Default: an embedded service."
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="Use TLS and SCRAM, with certificates and a user that are made at the first start."
        ),
    ] = False,
    override: Annotated[
        list[Pair] | None,
        typer.Option(
            "-o",
            "--override",
            parser=Pair,
            help="Set a property of all brokers.  Default: those of the previous start.",
        ),
    ] = None,
    stop_with: StopWith = None,
    log_format: LogFormatOption = None,
) -> ExitStatus:
    """Start a cluster for development: brokers and a coordination service, each as a process in the background.

    Processes that are running are not restarted, so that the command can be repeated, also to add brokers.  With three
    brokers or more, the default replication factor is 3.  Returns when all brokers are in the metadata of each broker.

    --secure creates a certificate authority, a certificate and a user `admin` in DATA_DIR/security, and writes client
    properties there.  Clients and brokers then use TLS and SCRAM.  Other users can do nothing until there are ACLs.

    With --stop-with the processes that this command starts stop when that process has ended, whatever has ended it.
    """
    run: Invocation = ctx.obj
    cluster = dev_cluster_in(data_dir)
    overrides = dict(override) if override else None
    layout = settle(
        cluster.layout(), brokers=brokers, port=port, zookeeper=zookeeper, overrides=overrides, is_secure=secure
    )
    members = cluster.start(
        layout, log_format_of(log_format), on_warning=run.console.warn, stop_with=running_process(stop_with)
    )
    serving = [member.address for member in members if member.name != "zookeeper" and member.is_well and member.address]
    setup = cluster.secure_setup(layout)
    if not any(member.problem for member in members):
        _wait_together(serving, None if setup is None else _security(setup))
    rows = show_members(run, members)
    if serving:
        where = "" if serving[0] == DEFAULT_BOOTSTRAP_SERVER else f" --bootstrap-server {serving[0]}"
        if setup is not None:
            where = f" --command-config {shlex.quote(str(setup.client_properties))}"
            run.console.note(f"client properties: {setup.client_properties}, for PKCS12: {setup.java_properties}")
        for line in ("try:", f"  kctl cluster health{where}", f"  kctl topics create hello --partitions 6{where}"):
            run.console.note(line)
    return run.status_of(rows)


def _security(setup: SecureSetup) -> Security | None:
    return client_security(parse_properties(setup.client_properties.read_text(encoding="utf-8")))


def _wait_together(addresses: list[str], security: Security | None) -> None:
    """Wait until all brokers and the controller are in the metadata of each broker."""

    async def wait(address: str) -> None:
        async with ClusterClient(
            ClientSettings(parse_servers(address), security=security), BlockingTransport()
        ) as client:
            end_ms = client.transport.monotonic_ms() + TOGETHER_TIMEOUT_MS
            while True:
                metadata = await client.metadata([])
                if len(metadata.brokers) >= len(addresses) and metadata.controller_id in metadata.brokers:
                    return
                if client.transport.monotonic_ms() >= end_ms:
                    raise TimeoutError(
                        f"the metadata of the broker at {address} lacks other brokers; see 'kctl cluster health'"
                    )
                await client.transport.sleep(POLL_MS // 10)

    for address in addresses:
        run_blocking(wait(address))


# `kctl cluster status`.


@verbs.command(
    "status",
    cls=LocalCommand,
    epilog=examples("kctl cluster status", "kctl cluster status --data-dir /tmp/cluster --format json"),
)
@shows(MemberRow)
def status(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Show the processes of a cluster that 'kctl cluster start' has started.

    The exit status is 0 if all of them accept connections, else 3.
    """
    run: Invocation = ctx.obj
    cluster = dev_cluster_in(data_dir)
    members = cluster.members(started_layout(cluster))
    show_members(run, members)
    return ExitStatus.DONE if all(member.is_well for member in members) else ExitStatus.UNMET


# `kctl cluster stop`.


@verbs.command(
    "stop", cls=LocalCommand, epilog=examples("kctl cluster stop", "kctl cluster stop --data-dir /tmp/cluster")
)
@shows(MemberRow)
def stop(ctx: typer.Context, *, data_dir: DataDir = None) -> ExitStatus:
    """Stop the brokers one after another, then the coordination service; the data is kept.

    Each broker transfers the leadership of its partitions first.  Brokers that are not running are ignored.
    """
    run: Invocation = ctx.obj
    cluster = dev_cluster_in(data_dir)
    return run.status_of(show_members(run, cluster.stop(started_layout(cluster))))
