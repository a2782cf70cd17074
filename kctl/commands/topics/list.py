"""`kctl topics list`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.topics import list_topics as query
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.compat import topics as topic_compat
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.topics.rows import TOPIC_COLUMNS, topic_row

app = typer.Typer(add_completion=False)


@app.command(
    "list", cls=ClusterCommand, epilog=examples("kctl topics list", "kctl topics list --internal --format jsonl")
)
def list_topics(
    ctx: typer.Context,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    compat: Compat = None,
) -> ExitStatus:
    """List topics.

    With --compat internal topics are included, as in Kafka's tool.
    """
    run: Invocation = ctx.obj
    topics = run.on_cluster(query)
    if compat:
        run.console.verbatim(topic_compat.listed(topic.name for topic in topics))
        return ExitStatus.DONE
    rows = [topic_row(topic) for topic in topics if internal or not topic.is_internal]
    run.remember_names("topics", (topic.name for topic in topics))
    run.console.show(TOPIC_COLUMNS, rows)
    return run.status_of(rows)
