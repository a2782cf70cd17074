"""`kctl topics list`."""

from __future__ import annotations

from typing import Annotated

from kctl.admin.topics import list_topics as ask
from kctl.commands.declaration import Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.topics import app
from kctl.commands.topics.rows import TOPIC_COLUMNS, topic_row


@app.command("list", cluster=True, examples=("kctl topics list", "kctl topics list --internal --format jsonl"))
def list_topics(
    run: Invocation,
    *,
    internal: Annotated[bool, Option("--internal", help="Also topics that the brokers keep for themselves.")] = False,
) -> ExitStatus:
    """List topics."""
    topics = run.on_cluster(ask)
    rows = [topic_row(topic) for topic in topics if internal or not topic.is_internal]
    run.console.show(TOPIC_COLUMNS, rows)
    return run.status_of(rows)
