"""`kctl topics`: create, alter, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from kctl.admin.groups.dependents import Dependent
from kctl.admin.groups.dependents_reading import find_dependents
from kctl.admin.topics.overrides import alter_topic_configs
from kctl.admin.topics.topics import (
    BROKER_DEFAULT,
    CreatedTopic,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    require_live_replicas,
)
from kctl.client.cluster import ClusterClient
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Property
from kctl.commands.frame.options.parameters import NOT_AN_OPTION, with_groups
from kctl.commands.frame.output.rows import known
from kctl.commands.frame.output.shown import shows
from kctl.commands.topics.list import selected_names
from kctl.commands.topics.options import (
    DRY_RUN,
    Expect,
    TopicChangeRow,
    TopicRegex,
    change_row,
    topic_row,
)
from kctl.errors import ErrorCode, UsageError
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText
from kctl.output.quantities import INT16_MAX, INT32_MAX, parse_integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kctl.admin.groups.dependents_reading import Dependents
    from kctl.client.metadata import Topic


# The value of --replica-assignment.


def parse_assignment(text: str) -> list[list[int]]:
    """Read `1:2,2:3`: the replicas of each partition.  Raises UsageError."""
    what = f"a broker in '{text}', which is to be like 1:2,2:3,"
    return [[parse_integer(replica, what) for replica in part.split(":")] for part in text.split(",")]


# `kctl topics create`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "create",
    cls=ChangingCommand,
    epilog=examples(
        "kctl topics create orders --partitions 6 --replication-factor 3 --set retention.ms=86400000",
        "kctl topics create orders --replica-assignment 0:1,1:2,2:0",
    ),
)
@shows(TopicChangeRow)
@with_groups
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
    config: Annotated[
        list[Property] | None, typer.Option("--set", parser=Property, help="Set a property, such as retention.ms=7d.")
    ] = None,
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
    observe: Annotated[Callable[[list[CreatedTopic]], object] | None, NOT_AN_OPTION] = None,
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
        dict(config or ()),
    )
    topics = [NewTopic(name, *settings) for name in dict.fromkeys(names)]

    async def create_all(client: ClusterClient) -> list[CreatedTopic]:
        if assignment:
            require_live_replicas(assignment, (await client.metadata([])).brokers)
        return await create_topics(client, topics, validate_only=dry_run)

    created = run.on_cluster(create_all)
    if observe is not None:
        observe(created)
    rows = []
    for topic in created:
        row = change_row(
            topic.outcome,
            "would be created" if dry_run else "created",
            partitions=known(topic.partitions),
            replication_factor=known(topic.replication_factor),
        )
        if if_not_exists and topic.outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            row = row._replace(status="exists", error=None, message=None)
        rows.append(row)
    run.console.show(TopicChangeRow, rows)
    return run.status_of(rows)


# `kctl topics alter`.


@verbs.command(
    "alter",
    cls=ChangingCommand,
    epilog=examples(
        "kctl topics alter orders --partitions 12",
        "kctl topics alter orders --set retention.ms=3600000 --delete-config cleanup.policy",
    ),
)
@shows(TopicChangeRow)
def alter(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Names of topics.", metavar="TOPIC")] = None,
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
    config: Annotated[
        list[Property] | None, typer.Option("--set", parser=Property, help="Set a property, such as retention.ms=7d.")
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Reset a property to its default."),
    ] = None,
    topic_regex: TopicRegex = None,
    expect: Expect = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Add partitions to topics, change their properties, or both.

    Adding partitions changes the partition that a key is assigned to.
    """
    run: Invocation = ctx.obj
    set_ = dict(config or ())
    if partitions is None and not set_ and not delete_config:
        raise UsageError("nothing to alter; give --partitions, --set or --delete-config")
    if replica_assignment and partitions is None:
        raise UsageError("--replica-assignment requires --partitions")
    selected = selected_names(run, names, topic_regex, expect)
    if selected is None:
        return ExitStatus.UNMET
    if replica_assignment and len(selected) > 1:
        raise UsageError("--replica-assignment is for one topic")

    async def change(client: ClusterClient, name: str) -> list[TopicChangeRow]:
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

    async def query(client: ClusterClient) -> list[TopicChangeRow]:
        return [row for name in selected for row in await change(client, name)]

    rows = run.on_cluster(query)
    run.console.show(TopicChangeRow, rows)
    return run.status_of(rows)


# `kctl topics delete`.


def _dependent_texts(dependents: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_text(Dependent(**fields)) for fields in dependents]


class DeletionPreviewRow(NamedTuple):
    """A topic that would be deleted."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    internal: Annotated[bool, JSON_ONLY]
    dependents: Annotated[list[Dependent], Column(wraps=True, shown=_dependent_texts)]
    unchecked: Annotated[list[str], JSON_ONLY, "The parts that could not be checked, with the reason."]
    error: ErrorName
    message: ErrorText
    status: Annotated[str | None, Column(after="replication_factor")]


DeletionRow = TypeVar("DeletionRow", TopicChangeRow, DeletionPreviewRow)


@verbs.command(
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

    selected = selected_names(run, names, topic_regex, expect, DeletionPreviewRow if dry_run else TopicChangeRow)
    if selected is None:
        return ExitStatus.UNMET
    if dry_run:
        topics, dependents = run.on_brokers(lambda client: _look(client, selected))
        previews = [forgive(_preview(topic, dependents)) for topic in topics]
        for text in dependents.unchecked:
            run.console.warn(f"not checked: {text}")
        run.console.show(DeletionPreviewRow, previews)
        return run.status_of(previews)
    if run.console.can_ask and not run.has_consent:
        _state_dependents(run, selected)
    run.consent(f"Delete {', '.join(sorted(selected))} with all records?")
    outcomes = run.on_cluster(lambda client: delete_topics(client, set(selected)))
    rows = [forgive(change_row(outcome, "deleted")) for outcome in outcomes]
    run.console.show(TopicChangeRow, rows)
    return run.status_of(rows)


async def _look(client: ClusterClient, names: list[str]) -> tuple[list[Topic], Dependents]:
    topics = await describe_topics(client, names)
    return topics, await find_dependents(client, [topic for topic in topics if topic.error is ErrorCode.NONE])


def _state_dependents(run: Invocation, names: list[str]) -> None:
    """Write what depends on the topics before the confirmation prompt."""
    _, dependents = run.on_brokers(lambda client: _look(client, names))
    for topic, found in dependents.found.items():
        for dependent in found:
            run.console.warn(f"{topic} is in use: {_text(dependent)}")
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


def _text(dependent: Dependent) -> str:
    return f"{dependent.kind} {dependent.name} ({dependent.detail})"
