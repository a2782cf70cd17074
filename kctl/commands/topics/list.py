"""`kctl topics list`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.topics import list_topics as all_topics
from kctl.commands.command import examples
from kctl.commands.compat import topics as topic_compat
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.omissions import note_omissions
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.commands.topics.options import (
    NO_FILTERS,
    AtMinIsr,
    FilterOptions,
    Id,
    Overrides,
    TopicRegex,
    Unavailable,
    UnderMinIsr,
    UnderReplicated,
)
from kctl.commands.topics.rows import TOPIC_COLUMNS, TopicRow, topic_row

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
    compat: Compat = None,
) -> ExitStatus:
    """List topics.

    Only topics that match all filters are listed.  Of the filters for partitions, a partition of the topic has to match
    one; if any does, the exit status is 3.

    With --compat internal topics are included, as in Kafka's tool.
    """
    run: Invocation = ctx.obj
    options = FilterOptions(under_replicated, unavailable, under_min_isr, at_min_isr, overrides, topic_regex, id_)
    internal = internal or compat is not None
    has_problems = False
    if options == NO_FILTERS:
        found = run.on_cluster(all_topics)
        run.store_names("topics", (topic.name for topic in found))
        topics = [topic for topic in found if internal or not topic.is_internal]
    else:
        from kctl.commands.topics.filters import filtered_topics  # noqa: PLC0415 - without filters it starts faster

        selected = filtered_topics(run, options, internal=internal)
        topics, has_problems = selected.topics, bool(selected.partitions)
    if compat:
        run.console.verbatim(topic_compat.listed(topic.name for topic in topics))
        return ExitStatus.UNMET if has_problems else ExitStatus.DONE
    rows = [topic_row(topic) for topic in topics]
    run.console.show(TOPIC_COLUMNS, rows)
    if options == NO_FILTERS:
        note_omissions(run, rows, "topics")
    status = run.status_of(rows)
    return ExitStatus.UNMET if has_problems and status is ExitStatus.DONE else status
