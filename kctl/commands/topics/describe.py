"""`kctl topics describe`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.admin.health import partitions_with_problems
from kctl.admin.partition_health import PartitionProblem
from kctl.admin.topic_configs import topic_overrides
from kctl.admin.topics import describe_topics, list_topics
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import code_error, known, outcome_error
from kctl.commands.topics.rows import TOPIC_COLUMNS, topic_row
from kctl.console import ERROR_COLUMNS, Column, Format
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic

app = typer.Typer(add_completion=False)


OVERVIEW_COLUMNS = (*TOPIC_COLUMNS[:3], Column("topic_id"), Column("configs", wraps=True), *ERROR_COLUMNS)
PARTITION_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("leader", numeric=True),
    Column("leader_epoch", numeric=True),
    Column("replicas", wraps=True),
    Column("isr", wraps=True),
    Column("offline", wraps=True),
    *ERROR_COLUMNS,
)


@app.command(
    "describe",
    cls=ClusterCommand,
    epilog=examples(
        "kctl topics describe orders",
        "kctl topics describe --format json",
        "kctl topics describe --unavailable --under-min-isr",
    ),
)
def describe(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Topics.  Default: all; internal topics only with a filter.", metavar="TOPIC"),
    ] = None,
    *,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with replicas that are not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only partitions without a live leader.")] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option("--under-min-isr", help="Only partitions with fewer in-sync replicas than min.insync.replicas."),
    ] = False,
) -> ExitStatus:
    """Describe topics: their partitions, leaders, replicas and overridden properties.

    One row per partition; json and jsonl have one object per topic.  With several filters, partitions that match any of
    them are shown; the exit status is 3 if there are any.
    """
    run: Invocation = ctx.obj
    flags = {
        PartitionProblem.UNDER_REPLICATED: under_replicated,
        PartitionProblem.UNAVAILABLE: unavailable,
        PartitionProblem.UNDER_MIN_ISR: under_min_isr,
    }
    problems = {problem for problem, wanted in flags.items() if wanted}

    async def ask(client: ClusterClient) -> tuple[list[Topic], dict[str, Any], dict[str, list[int]]]:
        if names:
            topics = await describe_topics(client, names)
        else:
            topics = [topic for topic in await list_topics(client) if problems or not topic.is_internal]
        filtered: dict[str, list[int]] = {}
        if problems:
            filtered = await partitions_with_problems(client, topics, problems)
            topics = [topic for topic in topics if topic.name in filtered or not topic.partitions]
        found = [topic.name for topic in topics if topic.error is ErrorCode.NONE]
        return topics, await topic_overrides(client, found) if found else {}, filtered

    topics, overrides, filtered = run.on_cluster(ask)
    items = [_topic_item(topic, overrides.get(topic.name)) for topic in topics]
    for item in items if problems else []:
        shown = filtered.get(item["topic"], [])
        item["partitions"] = [partition for partition in item["partitions"] if partition["partition"] in shown]
    if run.console.format is Format.TABLE and items and not problems:
        run.console.show(OVERVIEW_COLUMNS, [{**item, "partitions": item["partition_count"]} for item in items])
        run.console.text("")
    run.console.show(PARTITION_COLUMNS, items, rows=[row for item in items for row in _partition_rows(item)])
    status = run.status_of(items)
    return ExitStatus.UNMET if filtered and status is ExitStatus.DONE else status


def _topic_item(topic: Topic, overrides: dict[str, str | None] | Outcome | None) -> dict[str, Any]:
    """A topic as JSON tells it."""
    row = topic_row(topic)
    configs = overrides if isinstance(overrides, dict) else None
    if overrides is not None and configs is None:
        row |= outcome_error(overrides)  # type: ignore[arg-type]  # what is not a dict is an outcome
    return {
        "topic": topic.name,
        "topic_id": _topic_id(topic),
        "internal": topic.is_internal,
        "partition_count": row["partitions"],
        "replication_factor": row["replication_factor"],
        "configs": configs,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": known(partition.leader),
                "leader_epoch": known(partition.leader_epoch),
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": list(partition.offline_replicas),
                **code_error(partition.error),
            }
            for partition in topic.partitions
        ],
        "error": row["error"],
        "message": row["message"],
    }


def _partition_rows(item: dict[str, Any]) -> list[dict[str, Any]]:
    if not item["partitions"]:
        return [{"topic": item["topic"], "error": item["error"], "message": item["message"]}]
    return [{"topic": item["topic"], **partition} for partition in item["partitions"]]


def _topic_id(topic: Topic) -> str | None:
    """As Kafka's tools write it: base64 without padding."""
    if not topic.topic_id.int:
        return None
    return base64.urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
