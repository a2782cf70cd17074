"""`kctl topics delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kctl.admin.topic_changes import delete_topics
from kctl.admin.topics import describe_topics
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.topics.options import DRY_RUN, YES
from kctl.commands.topics.rows import CHANGE_COLUMNS, change_row, topic_row
from kctl.errors import ErrorCode

app = typer.Typer(add_completion=False)


@app.command(
    "delete",
    cls=ClusterCommand,
    epilog=examples("kctl topics delete orders --dry-run", "kctl topics delete orders payments --yes"),
)
def delete(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Topics to delete.", metavar="TOPIC")],
    *,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")] = False,
    yes: Annotated[bool, YES] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Delete topics with all their records.

    Names are not patterns.  Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj

    def forgive(row: dict[str, Any]) -> dict[str, Any]:
        if if_exists and row["error"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            return row | {"status": "does not exist", "error": None, "message": None}
        return row

    if dry_run:
        topics = run.on_cluster(lambda client: describe_topics(client, names))
        rows = [topic_row(topic) for topic in topics]
        rows = [forgive({**row, "status": None if row["error"] else "would be deleted"}) for row in rows]
    else:
        run.consent(f"Delete {', '.join(sorted(set(names)))} with all records?", yes=yes)
        outcomes = run.on_cluster(lambda client: delete_topics(client, set(names)))
        rows = [forgive(change_row(outcome, "deleted")) for outcome in outcomes]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)
