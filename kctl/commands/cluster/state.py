"""`kctl cluster`: describe, health, log-dirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.cluster.health import DISK_ERROR_SHARE, DISK_WARNING_SHARE, disk_text, fuller_than, health_reasons
from kctl.admin.cluster.observation import describe_cluster, observe
from kctl.admin.placement.log_dirs import FileSystem, LogDir, describe_log_dirs, file_systems_of
from kctl.client.outcome import Outcome, absent_broker
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.parameters import BootstrapController
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.rows import code_error, known, outcome_error
from kctl.commands.frame.output.shown import shows, shows_one
from kctl.commands.frame.query import QueryCommand
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import Column, ErrorName, ErrorText, Format, is_present
from kctl.output.quantities import INT32_MAX

if TYPE_CHECKING:
    from kctl.admin.cluster.health import Observation, Reason
    from kctl.admin.cluster.quorum import QuorumReplica
    from kctl.client.cluster import ClusterClient


# `kctl cluster describe`.


verbs = typer.Typer(add_completion=False)


class BrokerRow(NamedTuple):
    """A broker, or with --bootstrap-controller a controller."""

    broker: int
    host: str
    port: int
    rack: str | None
    controller: bool
    state: str
    """alive, fenced, draining or no response."""


class ControllerRow(NamedTuple):
    """A member of the metadata quorum of a KRaft cluster."""

    node: int
    role: str
    """Leader, Follower (a voter) or Observer."""
    lag: int | None
    last_fetch: Annotated[str | None, Column(drop_order=1)]
    endpoints: Annotated[list[str], Column(wraps=True, is_rare=True)]


class ClusterOverview(NamedTuple):
    """The cluster above the table of its brokers."""

    cluster_id: str | None
    controller: int | None


class ClusterItem(NamedTuple):
    """The cluster as a JSON object."""

    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerRow]
    frozen: str | None
    """That the metadata quorum has no leader, and since when metadata is frozen; null otherwise."""
    quorum: list[ControllerRow]
    """Empty without KRaft, and if it is unknown."""


@verbs.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl cluster describe",
        "kctl cluster describe --format json",
        "kctl cluster describe --bootstrap-controller controller1:9093",
    ),
)
@shows_one(ClusterItem)
def describe(ctx: typer.Context, *, bootstrap_controller: BootstrapController = None) -> ExitStatus:
    """Describe the cluster: its id, its active controller, its brokers, and the quorum of a KRaft cluster.

    One row per broker; with json, jsonl and yaml one object.  States of a broker: alive; fenced (registered, and not
    alive for the controller; Kafka 4.1); draining (alive, and in sync for none of its replicas: it is being shut down,
    or has just started); no response (it does not respond, and without a quorum leader it stays in the list).

    In a table the members of the metadata quorum follow, with their lag in offsets of the metadata log.  With
    --bootstrap-controller the rows are controllers.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    found = run.on_brokers(describe_cluster)
    if found.quorum.frozen is not None:
        run.console.warn(found.quorum.frozen)
    if found.quorum.refused is not None:
        run.console.warn("the active controller and the quorum are not shown: this needs Describe on the cluster")
    controller = found.quorum.leader_id if found.quorum.is_kraft else known(found.metadata.controller_id)
    listed = {**found.metadata.brokers, **found.fenced}
    brokers = [
        BrokerRow(broker.node_id, broker.host, broker.port, broker.rack, node_id == controller, found.state_of(node_id))
        for node_id, broker in sorted(listed.items())
    ]
    quorum = [] if found.quorum.quorum is None else [_controller_row(node) for node in found.quorum.quorum.replicas]
    overview = ClusterOverview(found.metadata.cluster_id, controller)
    if run.console.is_machine_readable:
        run.console.show_one(ClusterItem(*overview, brokers, found.quorum.frozen, quorum))
        run.console.listed = len(brokers)
        return ExitStatus.DONE
    if run.console.format is Format.TABLE:
        run.console.show_one(overview)
        run.console.text("")
    run.console.show(BrokerRow, brokers)
    if run.console.format is Format.TABLE and quorum:
        run.console.text("")
        run.console.show(ControllerRow, quorum)
    run.console.listed = len(brokers)
    return ExitStatus.DONE


def _controller_row(node: QuorumReplica) -> ControllerRow:
    return ControllerRow(
        node=node.node_id,
        role=node.role,
        lag=node.lag,
        last_fetch=None if node.last_fetch_ms is None else format_time(node.last_fetch_ms),
        endpoints=list(node.endpoints),
    )


# `kctl cluster health`.


POLL_MS = 500


class ReasonRow(NamedTuple):
    """A reason why the cluster is not healthy."""

    problem: str
    broker: int | None
    topic: str | None
    partition: int | None
    message: str


class HealthOverview(NamedTuple):
    """The result of the check and the sizes of the cluster."""

    healthy: bool
    cluster_id: str | None
    controller: int | None
    brokers: int
    topics: int
    partitions: int


class HealthItem(NamedTuple):
    """The health of the cluster as a JSON object."""

    healthy: bool
    cluster_id: str | None
    controller: int | None
    brokers: int
    topics: int
    partitions: int
    reasons: list[ReasonRow]


@verbs.command(
    "health",
    cls=QueryCommand,
    epilog=examples(
        "kctl cluster health", "kctl cluster health --wait 60s --quiet", "kctl cluster health --format json"
    ),
)
@shows_one(HealthItem)
def health(
    ctx: typer.Context,
    *,
    wait: Annotated[
        Duration | None,
        typer.Option(
            "--wait", parser=Duration, help="Wait up to this long for the cluster to become healthy, such as 30s."
        ),
    ] = None,
) -> ExitStatus:
    """Check whether the cluster is healthy, and list every reason why it is not.

    A cluster is healthy if it has a controller (KRaft: a leader of the metadata quorum), all its brokers respond, act
    as leaders and can change what is in ZooKeeper, each partition has a leader, at least min.insync.replicas in-sync
    replicas, and no replica that is out of sync, and no disk with log directories is more than 90 % full, where brokers
    report that (Kafka 3.3); from 80 % on there is a warning.  The exit status is 0 if it is healthy, else 3.

    One row per reason; with json, jsonl and yaml one object.
    """
    run: Invocation = ctx.obj
    seen = run.on_cluster_concurrently(lambda client: _observe(client, wait or 0))
    if seen.is_restricted:
        run.console.warn(
            "the user has no permission to describe the cluster: the quorum, reassignments and topics that it may not "
            "describe are not checked"
        )
    for text in seen.unseen:
        run.console.warn(f"not checked: {text}")
    for file_system in fuller_than(DISK_WARNING_SHARE, seen.file_systems):
        if (file_system.used_share or 0) < DISK_ERROR_SHARE:
            run.console.warn(f"broker {file_system.broker_id}: {disk_text(file_system)}")
    reasons = health_reasons(seen)
    rows = [_reason_row(reason) for reason in reasons]
    overview = HealthOverview(
        healthy=not reasons,
        cluster_id=seen.metadata.cluster_id,
        controller=known(seen.metadata.controller_id) if seen.quorum is None else seen.quorum.leader_id,
        brokers=len(seen.responding if seen.quorum is not None and seen.quorum.lost else seen.metadata.brokers),
        topics=len(seen.metadata.topics),
        partitions=sum(len(topic.partitions) for topic in seen.metadata.topics.values()),
    )
    if run.console.is_machine_readable:
        run.console.show_one(HealthItem(*overview, rows))
    else:
        if run.console.format is Format.TABLE:
            run.console.show_one(overview)
            run.console.text("")
        if rows or run.console.format is not Format.TABLE:
            run.console.show(ReasonRow, rows)
    run.console.listed = len(rows)
    return ExitStatus.UNMET if reasons else ExitStatus.DONE


async def _observe(client: ClusterClient, wait_ms: int) -> Observation:
    """Return the first healthy state of the cluster, or the last state within that time.  Raises ClusterUnreachable."""
    end_ms = client.transport.monotonic_ms() + wait_ms
    while True:
        seen = None
        try:
            with client.one_deadline():
                seen = await observe(client)
        except ClusterUnreachable:
            if client.transport.monotonic_ms() >= end_ms:
                raise
        if seen is not None and (not health_reasons(seen) or client.transport.monotonic_ms() >= end_ms):
            return seen
        await client.transport.sleep(POLL_MS)


def _reason_row(reason: Reason) -> ReasonRow:
    return ReasonRow(
        problem=reason.problem.value,
        broker=reason.broker_id,
        topic=reason.tp.topic if reason.tp else None,
        partition=reason.tp.partition if reason.tp else None,
        message=reason.message,
    )


# `kctl cluster log-dirs`: the log directories of the brokers as rows.


Total = Literal["broker", "topic"]


def is_full_percent(text: str) -> bool:
    """Return whether a cell of USED % is at least that of an unhealthy cluster."""
    try:
        return is_present(text) and float(text) >= 100 * DISK_ERROR_SHARE
    except ValueError:  # what a broker has returned in place of a number
        return False


class DirectoryRow(NamedTuple):
    """A log directory, or a broker that did not respond."""

    broker: int
    log_dir: str | None
    replicas: int | None = None
    bytes: int | None = None
    moving_here: int | None = None
    file_system: Annotated[
        str | None,
        Column(is_rare=True, drop_order=1),
        "Directories of a broker with the same one share their free space, as far as sizes and free space show it.",
    ] = None
    total_bytes: Annotated[int | None, Column(title="SIZE", is_rare=True), "Of the file system (Kafka 3.3)."] = None
    free_bytes: Annotated[int | None, Column(title="FREE", is_rare=True)] = None
    used_percent: Annotated[float | None, Column(title="USED %", is_rare=True, trouble=is_full_percent)] = None
    full_ms: Annotated[
        int | None, Column(title="FULL-IN", is_rare=True), "With --growth: the time until the file system is full."
    ] = None
    error: ErrorName = None
    message: ErrorText = None


class ReplicaRow(NamedTuple):
    """A replica in a log directory, or a directory or broker whose replicas are unknown."""

    broker: int
    log_dir: str | None
    topic: str | None = None
    partition: int | None = None
    bytes: int | None = None
    lag: int | None = None
    moving: bool | None = None
    error: ErrorName = None
    message: ErrorText = None


class TotalRow(NamedTuple):
    """The replicas of a broker or of a topic, without copies that are being made; or a broker that failed."""

    broker: Annotated[int | None, Column(is_rare=True)]
    topic: Annotated[str | None, Column(is_rare=True)]
    replicas: int | None = None
    bytes: int | None = None
    error: ErrorName = None
    message: ErrorText = None


def show_log_dirs(
    run: Invocation,
    *,
    brokers: list[int] | None,
    topics: list[str] | None,
    every_replica: bool,
    by: Total | None = None,
    growth_ms: int | None = None,
) -> ExitStatus:
    """Query the brokers, or all brokers, and show a row per directory, per total, or per replica if topics or all
    replicas are requested.

    Raises ApiError for a broker that is not alive, and for a topic that does not exist.
    """

    async def query(client: ClusterClient) -> tuple[list[LogDir], list[Outcome], list[LogDir]]:
        metadata = await client.metadata(topics or [])
        requested = set(metadata.brokers if brokers is None else brokers)
        unknown = sorted(requested - metadata.brokers.keys())
        if unknown:
            raise absent_broker(unknown[0], metadata.brokers)
        partitions: Collection[TopicPartition] | None = None
        if topics:
            for topic in metadata.topics.values():
                if topic.error is not ErrorCode.NONE:
                    raise ApiError(topic.error, f"topic '{topic.name}': {topic.error.description}")
            partitions = [
                TopicPartition(topic.name, partition.partition)
                for topic in metadata.topics.values()
                for partition in topic.partitions
            ]
        before: list[LogDir] = []
        if growth_ms is not None:
            before, _ = await describe_log_dirs(client, requested, partitions)
            await client.transport.sleep(growth_ms)
        return *await describe_log_dirs(client, requested, partitions), before

    if growth_ms is None:
        found, failed, before = run.on_brokers(query)
    else:
        found, failed, before = run.on_cluster_concurrently(query)
    volumes = _volumes(found, before, growth_ms)
    if by is not None:
        totals = total_rows(found, failed, by)
        run.console.show(TotalRow, totals)
        return run.status_of(totals)
    is_by_replica = every_replica or topics is not None
    columns = ReplicaRow if is_by_replica else DirectoryRow
    failure_row = ReplicaRow if is_by_replica else DirectoryRow
    rows: list[DirectoryRow | ReplicaRow] = [
        failure_row(int(outcome.name), None, **outcome_error(outcome)) for outcome in failed
    ]
    for log_dir in found:
        if log_dir.error:
            rows.append(failure_row(log_dir.broker_id, log_dir.path or None, **code_error(log_dir.error)))
        elif is_by_replica:
            rows += _replica_rows(log_dir)
        else:
            rows.append(_directory_row(log_dir, volumes.get((log_dir.broker_id, log_dir.path))))
    run.console.show(columns, rows)
    return run.status_of(rows)


def total_rows(found: Sequence[LogDir], failed: Iterable[Outcome], by: Total) -> list[TotalRow]:
    """Return the totals, the largest first, after the brokers and directories that failed."""
    counts: Counter[int | str] = Counter()
    sizes: Counter[int | str] = Counter()
    for log_dir in found:
        for replica in log_dir.replicas:
            key: int | str = log_dir.broker_id if by == "broker" else replica.tp.topic
            counts[key] += not replica.is_future
            sizes[key] += 0 if replica.is_future else replica.size_bytes
    if by == "broker":
        for log_dir in found:
            counts[log_dir.broker_id] += 0
    ordered = sorted(counts, key=lambda key: (-sizes[key], key))
    rows = [TotalRow(int(outcome.name), None, **outcome_error(outcome)) for outcome in failed]
    rows += [
        TotalRow(directory.broker_id, None, **code_error(directory.error)) for directory in found if directory.error
    ]
    rows += [
        TotalRow(key if isinstance(key, int) else None, key if isinstance(key, str) else None, counts[key], sizes[key])
        for key in ordered
    ]
    return rows


class _Volume(NamedTuple):
    """A file system as the rows of its directories show it."""

    name: str
    file_system: FileSystem
    full_ms: int | None


def _volumes(
    log_dirs: Collection[LogDir], before: Collection[LogDir], span_ms: int | None
) -> dict[tuple[int, str], _Volume]:
    """Return the file system of each directory, named after its first directory; with two samples the time to full."""
    free_before = {(log_dir.broker_id, log_dir.path): log_dir.usable_bytes for log_dir in before}
    found = {}
    for file_system in file_systems_of(log_dirs):
        place = file_system.broker_id, file_system.paths[0]
        full_ms, earlier = None, free_before.get(place)
        if earlier is not None and span_ms and earlier > file_system.usable_bytes:
            full_ms = round(file_system.usable_bytes * span_ms / (earlier - file_system.usable_bytes))
        for path in file_system.paths:
            found[file_system.broker_id, path] = _Volume(file_system.paths[0], file_system, full_ms)
    return found


def _directory_row(log_dir: LogDir, volume: _Volume | None) -> DirectoryRow:
    share = None if volume is None else volume.file_system.used_share
    return DirectoryRow(
        broker=log_dir.broker_id,
        log_dir=log_dir.path,
        replicas=sum(not replica.is_future for replica in log_dir.replicas),
        bytes=sum(replica.size_bytes for replica in log_dir.replicas),
        moving_here=sum(replica.is_future for replica in log_dir.replicas),
        file_system=None if volume is None else volume.name,
        total_bytes=log_dir.total_bytes,
        free_bytes=log_dir.usable_bytes,
        used_percent=None if share is None else round(100 * share, 1),
        full_ms=None if volume is None else volume.full_ms,
    )


def _replica_rows(log_dir: LogDir) -> list[ReplicaRow]:
    return [
        ReplicaRow(
            broker=log_dir.broker_id,
            log_dir=log_dir.path,
            topic=replica.tp.topic,
            partition=replica.tp.partition,
            bytes=replica.size_bytes,
            lag=replica.offset_lag,
            moving=replica.is_future,
        )
        for replica in sorted(log_dir.replicas, key=lambda replica: replica.tp)
    ]


# `kctl cluster log-dirs`.


@verbs.command(
    "log-dirs",
    cls=QueryCommand,
    epilog=examples(
        "kctl cluster log-dirs",
        "kctl cluster log-dirs --broker 1 --broker 2",
        "kctl cluster log-dirs --topic orders --format json",
        "kctl cluster log-dirs --by topic --human",
        "kctl cluster log-dirs --growth 30s --human",
    ),
)
@shows(DirectoryRow, ReplicaRow, TotalRow)
def log_dirs(
    ctx: typer.Context,
    *,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", metavar="ID", help="Only these brokers.", min=0, max=INT32_MAX)
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Show the replicas of these topics."),
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="Show the replicas of all topics.")] = False,
    by: Annotated[
        Total | None, typer.Option("--by", help="Show totals per broker or topic, the largest first.")
    ] = None,
    growth: Annotated[
        Duration | None,
        typer.Option(
            "--growth",
            parser=Duration.within("100ms"),
            help="Take two samples this far apart, and show when the file systems are full at the growth in between.",
        ),
    ] = None,
) -> ExitStatus:
    """Show the log directories of the brokers and their contents.

    One row per directory, with --by one per broker or topic, or with --topic or --replicas one per replica.  A replica
    with moving=true is being copied to the directory; its lag is the number of records that it is behind the replica
    that it replaces.  The exit status is 1 if a directory is offline or a broker does not respond.

    Brokers report the size and the free space of the file system of each directory since Kafka 3.3.  Directories of a
    broker on the same FILE-SYSTEM share its free space; no broker names its file systems, and those with equal size and
    free space are taken for one.  FULL-IN needs two samples: --growth 30s.

    'kctl reassign execute' moves replicas between directories.
    """
    run: Invocation = ctx.obj
    if by is not None and replicas:
        raise UsageError("--by shows totals, and --replicas each replica: give one of them")
    return show_log_dirs(run, brokers=broker, topics=topic, every_replica=replicas, by=by, growth_ms=growth)
