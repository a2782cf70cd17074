"""`kctl topics list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.topics import list_topics as all_topics
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.commands.topics.filters import Selected, select_topics, topic_filters
from kctl.commands.topics.options import AtMinIsr, Id, Overrides, TopicRegex, Unavailable, UnderMinIsr, UnderReplicated
from kctl.commands.topics.rows import TOPIC_COLUMNS, TopicRow, topic_row

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


@app.command(
    "list", cls=QueryCommand, epilog=examples("kctl topics list", "kctl topics list --internal --format jsonl")
)
@shows(TopicRow)
def list_topics(
    ctx: typer.Context,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    under_replicated: UnderReplicated = False,
    unavailable: Unavailable = False,
    under_min_isr: UnderMinIsr = False,
    at_min_isr: AtMinIsr = False,
    overrides: Overrides = False,
    topic_regex: TopicRegex = None,
    id_: Id = None,
) -> ExitStatus:
    """List topics.

    With filters, topics that match all of them; of several filters of partitions, a topic has a partition that matches
    at least one, and the exit status is 3 if there are such topics.
    """
    run: Invocation = ctx.obj
    filters = topic_filters(
        under_replicated=under_replicated,
        unavailable=unavailable,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
        overrides=overrides,
        topic_regex=topic_regex,
        id_=id_,
    )

    async def query(client: ClusterClient) -> Selected:
        topics = [topic for topic in await all_topics(client) if internal or not topic.is_internal]
        return await select_topics(client, topics, filters, with_configs=False)

    selected = run.on_cluster(query)
    rows = [topic_row(topic) for topic in selected.topics]
    run.console.show(TOPIC_COLUMNS, rows)
    status = run.status_of(rows)
    return ExitStatus.UNMET if selected.partitions and status is ExitStatus.DONE else status
