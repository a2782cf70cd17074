"""`kctl topics delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from kctl.admin.topic_changes import delete_topics
from kctl.admin.topics import describe_topics
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.topics.options import DRY_RUN, YES
from kctl.commands.topics.rows import CHANGE_COLUMNS, TopicChangeRow, change_row, topic_row
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.client.metadata import Topic

app = typer.Typer(add_completion=False)


class DeletionPreviewRow(NamedTuple):
    """A topic that would be deleted."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    internal: bool
    error: str | None
    message: str | None
    status: str | None


DeletionRow = TypeVar("DeletionRow", TopicChangeRow, DeletionPreviewRow)


@app.command(
    "delete",
    cls=ChangingCommand,
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

    def forgive(row: DeletionRow) -> DeletionRow:
        if if_exists and row.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            return row._replace(status="does not exist", error=None, message=None)
        return row

    rows: Sequence[TopicChangeRow | DeletionPreviewRow]
    if dry_run:
        topics = run.on_cluster(lambda client: describe_topics(client, names))
        rows = [forgive(_preview(topic)) for topic in topics]
    else:
        run.consent(f"Delete {', '.join(sorted(set(names)))} with all records?", yes=yes)
        outcomes = run.on_cluster(lambda client: delete_topics(client, set(names)))
        rows = [forgive(change_row(outcome, "deleted")) for outcome in outcomes]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


def _preview(topic: Topic) -> DeletionPreviewRow:
    row = topic_row(topic)
    return DeletionPreviewRow(**row._asdict(), status=None if row.error else "would be deleted")
