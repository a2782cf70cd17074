"""`kctl cluster health`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.health import health_reasons, observe
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.rows import known
from kctl.commands.shown import shows_one
from kctl.commands.times import parse_duration_ms
from kctl.console import Column, Format
from kctl.errors import ClusterUnreachable

if TYPE_CHECKING:
    from kctl.admin.health import Observation, Reason
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


REASON_COLUMNS = (
    Column("problem"),
    Column("broker", numeric=True),
    Column("topic"),
    Column("partition", numeric=True),
    Column("message"),
)
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


@app.command(
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
        str | None,
        typer.Option(
            "--wait", metavar="DURATION", help="Wait up to this long for the cluster to become healthy, such as 30s."
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
    wait_ms = parse_duration_ms(wait) if wait else 0
    seen = run.on_cluster_concurrently(lambda client: _observe(client, wait_ms))
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
            run.console.show(REASON_COLUMNS, rows)
    run.console.listed = len(rows)
    return ExitStatus.UNMET if reasons else ExitStatus.DONE


async def _observe(client: ClusterClient, wait_ms: int) -> Observation:
    """The first healthy state of the cluster, or the last state within that time.  Raises ClusterUnreachable."""
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
