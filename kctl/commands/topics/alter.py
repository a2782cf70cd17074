"""`kctl topics alter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.topic_changes import create_partitions
from kctl.admin.topic_configs import alter_topic_configs
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.topics.assignments import parse_assignment
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.topics.rows import CHANGE_COLUMNS, TopicChangeRow, change_row
from kctl.commands.values import parse_pairs
from kctl.errors import UsageError
from kctl.integers import INT32_MAX

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


@app.command(
    "alter",
    cls=ChangingCommand,
    epilog=examples(
        "kctl topics alter orders --partitions 12",
        "kctl topics alter orders --config retention.ms=3600000 --delete-config cleanup.policy",
    ),
)
def alter(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the topic.", metavar="TOPIC")],
    *,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", help="Add partitions until there are N.", min=1, max=INT32_MAX),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment", metavar="B:B,...", help="Broker ids of the replicas of each added partition."
        ),
    ] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="Set a property.")] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Reset a property to its default."),
    ] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Add partitions to a topic, change its properties, or both.

    Adding partitions changes the partition that a key is assigned to.
    """
    run: Invocation = ctx.obj
    set_ = parse_pairs(config, "--config")
    if partitions is None and not set_ and not delete_config:
        raise UsageError("nothing to alter; give --partitions, --config or --delete-config")
    if replica_assignment and partitions is None:
        raise UsageError("--replica-assignment requires --partitions")

    async def query(client: ClusterClient) -> list[TopicChangeRow]:
        rows = []
        if set_ or delete_config:
            outcome = await alter_topic_configs(
                client, name, set_=set_, delete=delete_config or [], validate_only=dry_run
            )
            rows.append(change_row(outcome, "properties would be altered" if dry_run else "properties altered"))
        if partitions is not None:
            assignment = parse_assignment(replica_assignment) if replica_assignment else ()
            outcome = await create_partitions(client, name, partitions, assignment=assignment, validate_only=dry_run)
            status = "partitions would be added" if dry_run else "partitions added"
            rows.append(change_row(outcome, status, partitions=partitions if outcome.is_done else None))
        return rows

    rows = run.on_cluster(query)
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)
