"""`kctl cluster`: describe a cluster, judge its health, run one for development."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.options import DEFAULT_BOOTSTRAP_SERVER
from kctl.commands.rows import known
from kctl.console import ERROR_COLUMNS, Column, Format
from kctl.errors import ClusterUnreachable, ErrorCode, KctlError
from kctl.integers import PORT_MAX

if TYPE_CHECKING:
    from kctl.admin.health import Observation, Reason
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import ClusterMetadata
    from kctl.server.dev_cluster import DevCluster, Layout, Member

app = Group("cluster", "Describe a cluster, judge its health, run one for development.")

BROKER_COLUMNS = (
    Column("broker", numeric=True),
    Column("host"),
    Column("port", numeric=True),
    Column("rack"),
    Column("controller"),
)
REASON_COLUMNS = (
    Column("problem"),
    Column("broker", numeric=True),
    Column("topic"),
    Column("partition", numeric=True),
    Column("message"),
)
MEMBER_COLUMNS = (
    Column("name"),
    Column("state"),
    Column("address"),
    Column("pid", numeric=True),
    Column("data_dir"),
    *ERROR_COLUMNS,
)
POLL_MS = 500
TOGETHER_TIMEOUT_MS = 30_000

DataDir = Annotated[
    str | None,
    Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the cluster.  Default: kctl/cluster under XDG_DATA_HOME, which is ~/.local/share.",
        complete="directory",
    ),
]


@app.command("describe", cluster=True, examples=("kctl cluster describe", "kctl cluster describe --format json"))
def describe(run: Invocation) -> ExitStatus:
    """Describe the cluster: its id, its controller and the brokers that are alive.

    One row per broker; under json and jsonl one object.
    """

    async def ask(client: ClusterClient) -> ClusterMetadata:
        return await client.metadata([])

    metadata = run.on_cluster(ask)
    brokers: list[dict[str, Any]] = [
        {
            "broker": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.node_id == metadata.controller_id,
        }
        for broker in metadata.brokers.values()
    ]
    overview = {"cluster_id": metadata.cluster_id, "controller": known(metadata.controller_id)}
    if run.console.is_machine_readable:
        run.console.show_one({**overview, "brokers": brokers})
        return ExitStatus.DONE
    if run.console.format is Format.TABLE:
        run.console.show_one(overview)
        run.console.text("")
    run.console.show(BROKER_COLUMNS, brokers)
    return ExitStatus.DONE


@app.command(
    "log-dirs",
    cluster=True,
    examples=(
        "kctl cluster log-dirs",
        "kctl cluster log-dirs --broker 1 --broker 2",
        "kctl cluster log-dirs --topic orders --format json",
    ),
)
def log_dirs(
    run: Invocation,
    *,
    broker: Annotated[list[int] | None, Option("--broker", metavar="ID", help="Only these brokers.")] = None,
    topic: Annotated[
        list[str] | None,
        Option("--topic", metavar="TOPIC", help="Show the replicas of these topics.", complete="topic"),
    ] = None,
    replicas: Annotated[bool, Option("--replicas", help="Show the replicas of all topics.")] = False,
) -> ExitStatus:
    """Show the log directories of the brokers, and what lies in them.

    One row per directory, or with --topic or --replicas one per replica.  A replica with moving=true is a copy on its
    way to the directory, its lag in records behind the one that it replaces.  Exit status 1 when a directory is
    offline or a broker does not answer.  'kctl reassign execute' moves replicas between directories.
    """
    from kctl.commands.log_dir_rows import show_log_dirs  # noqa: PLC0415 - help needs no client

    return show_log_dirs(run, brokers=broker, topics=topic, every_replica=replicas)


@app.command(
    "health",
    cluster=True,
    examples=("kctl cluster health", "kctl cluster health --wait 60s --quiet", "kctl cluster health --format json"),
)
def health(
    run: Invocation,
    *,
    wait: Annotated[
        str | None,
        Option("--wait", metavar="DURATION", help="Wait that long for the cluster to become healthy, such as 30s."),
    ] = None,
) -> ExitStatus:
    """Say whether the cluster is healthy, and every reason why it is not.

    Exit status 0 when it is and 3 when it is not.  Looked at: the controller, brokers that do not answer or are missing
    from the cluster, and partitions without a leader, under min.insync.replicas or with replicas that are not in sync.

    One row per reason; under json and jsonl one object.
    """
    from kctl.admin.health import judge  # noqa: PLC0415 - help needs no client
    from kctl.commands.times import parse_duration_ms  # noqa: PLC0415 - same

    wait_ms = parse_duration_ms(wait) if wait else 0
    seen = run.on_cluster_concurrently(lambda client: _observe(client, wait_ms))
    reasons = judge(seen)
    rows = [_reason_row(reason) for reason in reasons]
    overview = {
        "healthy": not reasons,
        "cluster_id": seen.metadata.cluster_id,
        "controller": known(seen.metadata.controller_id),
        "brokers": len(seen.metadata.brokers),
        "topics": len(seen.metadata.topics),
        "partitions": sum(len(topic.partitions) for topic in seen.metadata.topics.values()),
    }
    if run.console.is_machine_readable:
        run.console.show_one({**overview, "reasons": rows})
    else:
        if run.console.format is Format.TABLE:
            run.console.show_one(overview)
            run.console.text("")
        if rows or run.console.format is not Format.TABLE:
            run.console.show(REASON_COLUMNS, rows)
    return ExitStatus.UNMET if reasons else ExitStatus.DONE


@app.command(
    "start",
    examples=(
        "kctl cluster start",
        "kctl cluster start --brokers 5 --data-dir /tmp/cluster --port 19092 -o num.partitions=3",
        "kctl cluster start --data-dir /tmp/cluster --zookeeper zk1:2181,zk2:2181/kafka",
    ),
)
def start(
    run: Invocation,
    *,
    brokers: Annotated[
        int | None, Option("--brokers", metavar="N", help="How many.  Default: as many as there were, or 3.", minimum=1)
    ] = None,
    data_dir: DataDir = None,
    port: Annotated[
        int | None,
        Option(
            "--port",
            metavar="N",
            help="Port of broker 0 on 127.0.0.1; the others follow.  0 takes free ones.  Default: 9092.",
            maximum=PORT_MAX,
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        Option(
            "--zookeeper",
            metavar="HOST:PORT[,...][/CHROOT]",
            help="Ensemble to use.  Default: a service of its own.",
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        Option("-o", "--override", metavar="NAME=VALUE", help="A property of all its brokers.  Default: as before."),
    ] = None,
) -> ExitStatus:
    """Start brokers and a coordination service for development, each as a process in the background.

    What runs already stays as it is, so starting twice does no harm, and more brokers can be added.  Topics are
    replicated three times where there are three brokers.  Returns when all brokers know each other.
    """
    from kctl.commands.values import parse_pairs  # noqa: PLC0415 - help needs it not
    from kctl.server.dev_cluster import settle  # noqa: PLC0415 - same

    cluster = _dev_cluster(data_dir)
    overrides = parse_pairs(override, "-o") if override else None
    layout = settle(cluster.layout(), brokers=brokers, port=port, zookeeper=zookeeper, overrides=overrides)
    members = cluster.start(layout, on_warning=run.console.warn)
    serving = [member.address for member in members if member.name != "zookeeper" and member.is_well and member.address]
    if not any(member.problem for member in members):
        _wait_together(serving)
    rows = _show_members(run, members)
    if serving:
        where = "" if serving[0] == DEFAULT_BOOTSTRAP_SERVER else f" --bootstrap-server {serving[0]}"
        for line in ("try:", f"  kctl cluster health{where}", f"  kctl topics create hello --partitions 6{where}"):
            run.console.note(line)
    return run.status_of(rows)


@app.command("status", examples=("kctl cluster status", "kctl cluster status --data-dir /tmp/cluster --format json"))
def status(run: Invocation, *, data_dir: DataDir = None) -> ExitStatus:
    """Show the processes of a cluster that 'kctl cluster start' has started.

    Exit status 0 when all of them serve, 3 when they do not.
    """
    cluster = _dev_cluster(data_dir)
    members = cluster.members(_started_layout(cluster))
    _show_members(run, members)
    return ExitStatus.DONE if all(member.is_well for member in members) else ExitStatus.UNMET


@app.command("stop", examples=("kctl cluster stop", "kctl cluster stop --data-dir /tmp/cluster"))
def stop(run: Invocation, *, data_dir: DataDir = None) -> ExitStatus:
    """Stop the brokers one after the other, then their coordination service; the data stays.

    Each broker hands over what it leads first.  What does not run is left as it is, which is no failure.
    """
    cluster = _dev_cluster(data_dir)
    return run.status_of(_show_members(run, cluster.stop(_started_layout(cluster))))


def _dev_cluster(data_dir: str | None) -> DevCluster:
    from kctl.server.dev_cluster import DevCluster  # noqa: PLC0415 - other verbs do without

    if data_dir:
        return DevCluster(Path(data_dir).expanduser().absolute())
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return DevCluster(Path(home).expanduser() / "kctl" / "cluster")


def _started_layout(cluster: DevCluster) -> Layout:
    layout = cluster.layout()
    if layout is None:
        raise KctlError(f"there is no cluster in {cluster.path}; 'kctl cluster start' makes one")
    return layout


def _show_members(run: Invocation, members: list[Member]) -> list[dict[str, Any]]:
    rows = [
        {
            "name": member.name,
            "state": member.state,
            "address": member.address,
            "pid": member.pid,
            "data_dir": str(member.data_dir) if member.data_dir else None,
            "error": ErrorCode.BROKER_NOT_AVAILABLE.name if member.problem else None,
            "message": member.problem,
        }
        for member in members
    ]
    run.console.show(MEMBER_COLUMNS, rows)
    return rows


def _wait_together(addresses: list[str]) -> None:
    """Until each broker knows all of them and the controller, so that the next command finds a whole cluster."""
    from kctl.client.blocking_transport import BlockingTransport, run_blocking  # noqa: PLC0415 - other verbs do without
    from kctl.client.cluster import ClusterClient  # noqa: PLC0415 - same
    from kctl.client.settings import ClientSettings, parse_servers  # noqa: PLC0415 - same

    async def wait(address: str) -> None:
        async with ClusterClient(ClientSettings(parse_servers(address)), BlockingTransport()) as client:
            end_ms = client.transport.monotonic_ms() + TOGETHER_TIMEOUT_MS
            while True:
                metadata = await client.metadata([])
                if len(metadata.brokers) >= len(addresses) and metadata.controller_id in metadata.brokers:
                    return
                if client.transport.monotonic_ms() >= end_ms:
                    raise TimeoutError(f"the broker at {address} does not know the others; see 'kctl cluster health'")
                await client.transport.sleep(POLL_MS // 10)

    for address in addresses:
        run_blocking(wait(address))


async def _observe(client: ClusterClient, wait_ms: int) -> Observation:
    """The first healthy look at the cluster, or the last one in that time.  Raises ClusterUnreachable."""
    from kctl.admin.health import judge, observe  # noqa: PLC0415 - help needs no client

    end_ms = client.transport.monotonic_ms() + wait_ms
    while True:
        seen = None
        try:
            with client.one_deadline():
                seen = await observe(client)
        except ClusterUnreachable:
            if client.transport.monotonic_ms() >= end_ms:
                raise
        if seen is not None and (not judge(seen) or client.transport.monotonic_ms() >= end_ms):
            return seen
        await client.transport.sleep(POLL_MS)


def _reason_row(reason: Reason) -> dict[str, Any]:
    return {
        "problem": reason.problem.value,
        "broker": reason.broker_id,
        "topic": reason.tp.topic if reason.tp else None,
        "partition": reason.tp.partition if reason.tp else None,
        "message": reason.message,
    }
