"""`kctl cluster`: describe, health, log-dirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.cluster.health import health_reasons, observe
from kctl.admin.placement.log_dirs import LogDir, describe_log_dirs
from kctl.client.outcome import Outcome, absent_broker
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.output.rows import code_error, known, outcome_error
from kctl.commands.frame.output.shown import shows, shows_one
from kctl.commands.frame.query import QueryCommand
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import Column, ErrorName, ErrorText, Format
from kctl.output.quantities import INT32_MAX

if TYPE_CHECKING:
    from kctl.admin.cluster.health import Observation, Reason
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import ClusterMetadata


# `kctl cluster describe`.


verbs = typer.Typer(add_completion=False)


class BrokerRow(NamedTuple):
    """A live broker."""

    broker: int
    host: str
    port: int
    rack: str | None
    controller: bool


class ClusterOverview(NamedTuple):
    """The cluster above the table of its brokers."""

    cluster_id: str | None
    controller: int | None


class ClusterItem(NamedTuple):
    """The cluster as a JSON object."""

    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerRow]


@verbs.command(
    "describe", cls=QueryCommand, epilog=examples("kctl cluster describe", "kctl cluster describe --format json")
)
@shows_one(ClusterItem)
def describe(ctx: typer.Context) -> ExitStatus:
    """Describe the cluster: its id, its controller and its live brokers.

    One row per broker; with json, jsonl and yaml one object.  Brokers of a KRaft cluster name any one of themselves as
    the controller; 'kctl cluster quorum' shows the leader of the controllers.
    """
    run: Invocation = ctx.obj

    async def query(client: ClusterClient) -> ClusterMetadata:
        return await client.metadata([])

    metadata = run.on_cluster(query)
    brokers = [
        BrokerRow(broker.node_id, broker.host, broker.port, broker.rack, broker.node_id == metadata.controller_id)
        for broker in metadata.brokers.values()
    ]
    overview = ClusterOverview(metadata.cluster_id, known(metadata.controller_id))
    if run.console.is_machine_readable:
        run.console.show_one(ClusterItem(*overview, brokers))
        run.console.listed = len(brokers)
        return ExitStatus.DONE
    if run.console.format is Format.TABLE:
        run.console.show_one(overview)
        run.console.text("")
    run.console.show(BrokerRow, brokers)
    return ExitStatus.DONE


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

    A cluster is healthy if it has a controller, all its brokers respond, act as leaders and can change what is in
    ZooKeeper, and each partition has a leader, at least min.insync.replicas in-sync replicas, and no replica that is
    out of sync.  The exit status is 0 if it is healthy, else 3.

    One row per reason; with json, jsonl and yaml one object.
    """
    run: Invocation = ctx.obj
    seen = run.on_cluster_concurrently(lambda client: _observe(client, wait or 0))
    if seen.is_restricted:
        run.console.warn(
            "the user has no permission to describe the cluster: topics that it may not describe are not checked"
        )
    reasons = health_reasons(seen)
    rows = [_reason_row(reason) for reason in reasons]
    overview = HealthOverview(
        healthy=not reasons,
        cluster_id=seen.metadata.cluster_id,
        controller=known(seen.metadata.controller_id),
        brokers=len(seen.metadata.brokers),
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


class DirectoryRow(NamedTuple):
    """A log directory, or a broker that did not respond."""

    broker: int
    log_dir: str | None
    replicas: int | None = None
    bytes: int | None = None
    moving_here: int | None = None
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
) -> ExitStatus:
    """Query the brokers, or all brokers, and show a row per directory, per total, or per replica if topics or all
    replicas are requested.

    Raises ApiError for a broker that is not alive, and for a topic that does not exist.
    """

    async def query(client: ClusterClient) -> tuple[list[LogDir], list[Outcome]]:
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
        return await describe_log_dirs(client, requested, partitions)

    found, failed = run.on_brokers(query)
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
            rows.append(_directory_row(log_dir))
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


def _directory_row(log_dir: LogDir) -> DirectoryRow:
    return DirectoryRow(
        broker=log_dir.broker_id,
        log_dir=log_dir.path,
        replicas=sum(not replica.is_future for replica in log_dir.replicas),
        bytes=sum(replica.size_bytes for replica in log_dir.replicas),
        moving_here=sum(replica.is_future for replica in log_dir.replicas),
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
) -> ExitStatus:
    """Show the log directories of the brokers and their contents.

    One row per directory, with --by one per broker or topic, or with --topic or --replicas one per replica.  A replica
    with moving=true is being copied to the directory; its lag is the number of records that it is behind the replica
    that it replaces.  The exit status is 1 if a directory is offline or a broker does not respond.

    'kctl reassign execute' moves replicas between directories.
    """
    run: Invocation = ctx.obj
    if by is not None and replicas:
        raise UsageError("--by shows totals, and --replicas each replica: give one of them")
    return show_log_dirs(run, brokers=broker, topics=topic, every_replica=replicas, by=by)
