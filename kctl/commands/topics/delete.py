"""`kctl topics delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from kctl.admin.topic_changes import delete_topics
from kctl.admin.topic_dependents import Dependent
from kctl.admin.topic_dependents_reading import find_dependents
from kctl.admin.topics import describe_topics
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.topics.options import DRY_RUN, Expect, TopicRegex
from kctl.commands.topics.rows import CHANGE_COLUMNS, TopicChangeRow, change_row, topic_row
from kctl.commands.topics.selection import selected_names
from kctl.console import Column
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.topic_dependents_reading import Dependents
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic

app = typer.Typer(add_completion=False)


class DeletionPreviewRow(NamedTuple):
    """A topic that would be deleted."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    internal: bool
    dependents: list[Dependent]
    unchecked: list[str]
    """The parts that could not be checked, with the reason."""
    error: str | None
    message: str | None
    status: str | None


class FlatPreviewRow(NamedTuple):
    """A topic in the table of those that would be deleted."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    status: str | None
    dependents: list[str]
    error: str | None
    message: str | None


PREVIEW_COLUMNS = (*CHANGE_COLUMNS[:4], Column("dependents", wraps=True), *CHANGE_COLUMNS[4:])
DeletionRow = TypeVar("DeletionRow", TopicChangeRow, DeletionPreviewRow)


@app.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples("kctl topics delete orders --dry-run", "kctl topics delete orders payments --yes"),
)
@shows(TopicChangeRow, DeletionPreviewRow)
def delete(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Topics to delete.", metavar="TOPIC")] = None,
    *,
    topic_regex: TopicRegex = None,
    expect: Expect = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Delete topics with all their records.

    Names are literal; with --topic-regex, the confirmation prompt lists the topics.  --dry-run and the prompt on a
    terminal show what depends on the topics: groups with members or committed offsets, open transactions,
    reassignments, applications of Kafka Streams, and ACLs that name a topic.  Elsewhere --yes is required (exit status
    5).
    """
    run: Invocation = ctx.obj

    def forgive(row: DeletionRow) -> DeletionRow:
        if if_exists and row.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            return row._replace(status="does not exist", error=None, message=None)
        return row

    selected = selected_names(run, names, topic_regex, expect, PREVIEW_COLUMNS if dry_run else CHANGE_COLUMNS)
    if selected is None:
        return ExitStatus.UNMET
    if dry_run:
        topics, dependents = run.on_brokers(lambda client: _look(client, selected))
        previews = [forgive(_preview(topic, dependents)) for topic in topics]
        for text in dependents.unchecked:
            run.console.warn(f"not checked: {text}")
        run.console.show(PREVIEW_COLUMNS, previews, rows=[_flat(row) for row in previews])
        return run.status_of(previews)
    if run.console.can_ask and not run.has_consent:
        _state_dependents(run, selected)
    run.consent(f"Delete {', '.join(sorted(selected))} with all records?")
    outcomes = run.on_cluster(lambda client: delete_topics(client, set(selected)))
    rows = [forgive(change_row(outcome, "deleted")) for outcome in outcomes]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


async def _look(client: ClusterClient, names: list[str]) -> tuple[list[Topic], Dependents]:
    topics = await describe_topics(client, names)
    return topics, await find_dependents(client, [topic for topic in topics if topic.error is ErrorCode.NONE])


def _state_dependents(run: Invocation, names: list[str]) -> None:
    """Writes what depends on the topics before the confirmation prompt."""
    _, dependents = run.on_brokers(lambda client: _look(client, names))
    for topic, found in dependents.found.items():
        for one in found:
            run.console.warn(f"{topic} is in use: {_text(one)}")
    for text in dependents.unchecked:
        run.console.warn(f"not checked: {text}")
    run.restart_timeout()


def _preview(topic: Topic, dependents: Dependents) -> DeletionPreviewRow:
    row = topic_row(topic)
    return DeletionPreviewRow(
        topic=row.topic,
        partitions=row.partitions,
        replication_factor=row.replication_factor,
        internal=row.internal,
        dependents=dependents.found.get(row.topic, []),
        unchecked=dependents.unchecked,
        error=row.error,
        message=row.message,
        status=None if row.error else "would be deleted",
    )


def _flat(row: DeletionPreviewRow) -> FlatPreviewRow:
    texts = [_text(one) for one in row.dependents]
    return FlatPreviewRow(row.topic, row.partitions, row.replication_factor, row.status, texts, row.error, row.message)


def _text(dependent: Dependent) -> str:
    return f"{dependent.kind} {dependent.name} ({dependent.detail})"
