"""`kctl groups tasks` and `kctl groups topology`: what the members of streams groups run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.groups.streams_groups import describe_streams_groups
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.output.console import ErrorName, ErrorText
from kctl.output.table import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kctl.admin.groups.streams_groups import StreamsDescription

verbs = typer.Typer(add_completion=False)
Applications = Annotated[
    list[str], typer.Argument(help="The application.id, which is also the name of its group.", metavar="APPLICATION")
]


class TaskRow(NamedTuple):
    """A task of a member."""

    group: str | None
    subtopology: str | None
    partition: int | None
    role: Annotated[str | None, "active, standby or warm-up."]
    status: Annotated[str | None, "assigned, to revoke, or to come with the next steps of the rebalance."]
    member_id: str | None
    member_epoch: Annotated[int | None, Column(drop_order=3)]
    client_id: Annotated[str | None, Column(drop_order=2)]
    host: Annotated[str | None, Column(drop_order=1)]
    process_id: Annotated[str | None, Column(drop_order=4), "The same for all threads of an instance."]
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "tasks",
    cls=QueryCommand,
    epilog=examples("kctl groups tasks word-count", "kctl groups tasks a b --format json"),
)
@shows(TaskRow)
def tasks(ctx: typer.Context, applications: Applications) -> ExitStatus:
    """List the tasks of applications of Kafka Streams, and who runs them.

    For groups of type streams (group.protocol=streams), which brokers describe from Kafka 4.1 on.  A task without a row
    has no owner.
    """
    run: Invocation = ctx.obj
    groups = run.on_brokers(lambda client: describe_streams_groups(client, applications))
    rows = [row for group in groups for row in _task_rows(group)]
    run.console.show(TaskRow, rows)
    return run.status_of(rows)


def _task_rows(group: StreamsDescription) -> Iterator[TaskRow]:
    name = group.outcome.name
    if not group.outcome.is_done:
        yield TaskRow(name, *[None] * 9, **outcome_error(group.outcome))
    for task in group.tasks:
        member = task.member
        status = "assigned" if task.is_assigned and task.is_target else "to revoke" if task.is_assigned else "to come"
        yield TaskRow(
            group=name,
            subtopology=task.subtopology,
            partition=task.partition,
            role=task.role,
            status=status,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            host=member.client_host.removeprefix("/"),
            process_id=member.process_id,
        )


class TopologyRow(NamedTuple):
    """A topic of a subtopology."""

    group: str | None
    subtopology: str | None
    role: Annotated[str | None, "source, repartition source, changelog or repartition sink."]
    topic: str | None
    partitions: Annotated[int | None, "Of internal topics, when it is decided."]
    configs: Annotated[str | None, Column(wraps=True, drop_order=1), "Properties of an internal topic."]
    topology_epoch: Annotated[int | None, Column(drop_order=2)]
    error: ErrorName = None
    message: ErrorText = None


@verbs.command("topology", cls=QueryCommand, epilog=examples("kctl groups topology word-count"))
@shows(TopologyRow)
def topology(ctx: typer.Context, applications: Applications) -> ExitStatus:
    """List the subtopologies of applications of Kafka Streams and the topics that they read and write.

    For groups of type streams, as 'kctl groups tasks'.
    """
    run: Invocation = ctx.obj
    groups = run.on_brokers(lambda client: describe_streams_groups(client, applications))
    rows = [row for group in groups for row in _topology_rows(group)]
    run.console.show(TopologyRow, rows)
    return run.status_of(rows)


def _topology_rows(group: StreamsDescription) -> Iterator[TopologyRow]:
    name = group.outcome.name
    if not group.outcome.is_done:
        yield TopologyRow(name, *[None] * 6, **outcome_error(group.outcome))
    for topic in group.topics:
        yield TopologyRow(
            group=name,
            subtopology=topic.subtopology,
            role=topic.role,
            topic=topic.topic,
            partitions=topic.partitions,
            configs=",".join(f"{key}={value}" for key, value in topic.configs) or None,
            topology_epoch=group.topology_epoch,
        )
