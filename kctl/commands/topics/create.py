"""`kctl topics create`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.topic_changes import BROKER_DEFAULT, CreatedTopic, NewTopic, create_topics, require_live_replicas
from kctl.client.cluster import ClusterClient
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.compat import topics as topic_compat
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import known
from kctl.commands.shown import shows
from kctl.commands.topics.assignments import parse_assignment
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.topics.rows import CHANGE_COLUMNS, TopicChangeRow, change_row
from kctl.commands.values import parse_pairs
from kctl.errors import ErrorCode, UsageError
from kctl.integers import INT16_MAX, INT32_MAX

app = typer.Typer(add_completion=False)


@app.command(
    "create",
    cls=ChangingCommand,
    epilog=examples(
        "kctl topics create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000",
        "kctl topics create orders --replica-assignment 0:1,1:2,2:0",
    ),
)
@shows(TopicChangeRow)
def create(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names of the topics.", metavar="TOPIC")],
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            help="Number of partitions.  Default: the broker's num.partitions.",
            min=1,
            max=INT32_MAX,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            metavar="N",
            help="Number of replicas.  Default: the broker's default.replication.factor.",
            min=1,
            max=INT16_MAX,
        ),
    ] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="Set a property.")] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="B:B,...",
            help="Broker ids of each partition's replicas, the preferred leader first; determines both numbers.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic already exists.")
    ] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
    compat: Compat = None,
) -> ExitStatus:
    """Create topics, all with the same settings.

    Waits up to 5 s until every live broker has the topic in its metadata, so that the next command finds it on any
    broker.
    """
    run: Invocation = ctx.obj
    if replica_assignment and (partitions is not None or replication_factor is not None):
        raise UsageError("--replica-assignment cannot be combined with --partitions or --replication-factor")
    assignment = parse_assignment(replica_assignment) if replica_assignment else ()
    settings = (
        BROKER_DEFAULT if partitions is None else partitions,
        BROKER_DEFAULT if replication_factor is None else replication_factor,
        assignment,
        parse_pairs(config, "--config"),
    )
    topics = [NewTopic(name, *settings) for name in dict.fromkeys(names)]

    async def create_all(client: ClusterClient) -> list[CreatedTopic]:
        if assignment:
            require_live_replicas(assignment, (await client.metadata([])).brokers)
        return await create_topics(client, topics, validate_only=dry_run)

    created = run.on_cluster(create_all)
    rows = []
    for one in created:
        row = change_row(
            one.outcome,
            "would be created" if dry_run else "created",
            partitions=known(one.partitions),
            replication_factor=known(one.replication_factor),
        )
        if if_not_exists and one.outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            row = row._replace(status="exists", error=None, message=None)
        rows.append(row)
    if compat and not dry_run:
        for one, row in zip(created, rows, strict=True):
            if one.outcome.is_done:
                run.console.verbatim(topic_compat.created(one.outcome.name))
            elif row.error:
                run.console.verbatim(topic_compat.failed(one.outcome.message))
                run.console.warn(f"topic '{one.outcome.name}': {row.error}: {row.message}")
        return run.status_of(rows)
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)
