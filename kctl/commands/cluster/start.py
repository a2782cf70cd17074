"""`kctl cluster start`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.client.blocking_transport import BlockingTransport, run_blocking
from kctl.client.cluster import ClusterClient
from kctl.client.security import client_security
from kctl.client.settings import ClientSettings, parse_servers
from kctl.commands.broker.processes import StopWith, running_process
from kctl.commands.cluster.dev_cluster import DataDir, MemberRow, dev_cluster_in, show_members
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.log_format import LogFormatOption, log_format_of
from kctl.commands.options import DEFAULT_BOOTSTRAP_SERVER
from kctl.commands.shown import shows
from kctl.commands.values import parse_pairs
from kctl.config.properties import parse_properties
from kctl.integers import INT32_MAX, PORT_MAX
from kctl.server.dev_cluster import settle

if TYPE_CHECKING:
    from kctl.client.transport import Security
    from kctl.server.secure_setup import SecureSetup

app = typer.Typer(add_completion=False)


POLL_MS = 500
TOGETHER_TIMEOUT_MS = 30_000


@app.command(
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
        list[str] | None,
        typer.Option(
            "-o",
            "--override",
            metavar="NAME=VALUE",
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
    overrides = parse_pairs(override, "-o") if override else None
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
    """Waits until all brokers and the controller are in the metadata of each broker."""

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
