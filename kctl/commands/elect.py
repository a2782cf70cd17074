"""`kctl elect`: elect leaders of partitions now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.placement.documents import parse_partitions
from kctl.admin.placement.election import ElectionType, elect_leaders, predict_elections
from kctl.client.outcome import topic_error
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import code_error, known, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.errors import ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import ErrorName, ErrorText
from kctl.output.quantities import INT32_MAX
from kctl.system.user_files import read_text

if TYPE_CHECKING:
    from kctl.admin.placement.election import Election
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import ClusterMetadata


# `kctl elect`.


app = typer.Typer(add_completion=False)


class ElectionRow(NamedTuple):
    """The election of a partition's leader."""

    topic: str
    partition: int
    leader_before: int | None
    leader: int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@app.command(
    "elect",
    cls=ChangingCommand,
    epilog=examples(
        "kctl elect --preferred --dry-run",
        "kctl elect --preferred --topic orders",
        "kctl elect --unclean --topic orders --partition 3 --yes",
    ),
)
@shows(ElectionRow)
def elect(
    ctx: typer.Context,
    *,
    preferred: Annotated[
        bool, typer.Option("--preferred", help="Elect the preferred leader, which is the first replica.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect a replica that is not in sync if no in-sync replica is alive; records may be lost."
        ),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.  Default: all partitions of all topics."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="N", help="Only this partition of --topic.", min=0, max=INT32_MAX),
    ] = None,
    path_to_json_file: Annotated[
        str | None,
        typer.Option(
            "--path-to-json-file",
            metavar="FILE",
            help='Only the partitions in this file: {"partitions":[{"topic":"orders","partition":1}]}.',
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new leaders without electing them.")] = False,
) -> ExitStatus:
    """Elect leaders of partitions.

    One row per partition; without --topic or --path-to-json-file, only for partitions that needed an election.  It is
    not an error if a partition needs none.
    """
    run: Invocation = ctx.obj
    if preferred is unclean:
        raise UsageError("give either --preferred or --unclean")
    kind = ElectionType.PREFERRED if preferred else ElectionType.UNCLEAN
    selected = _selected(topic, partition, path_to_json_file)

    async def look(client: ClusterClient) -> ClusterMetadata:
        return await client.metadata({tp.topic for tp in selected} if selected else [topic] if topic else None)

    before = run.on_cluster(look)
    partitions = _partitions_of(before, topic) if topic and partition is None else selected
    if dry_run:
        elections = predict_elections(kind, before, partitions)
    else:
        if unclean:
            run.consent("Elect replicas that are not in sync, which loses the records that they lack?")
        elections = run.on_cluster(lambda client: elect_leaders(client, kind, partitions, before))
    rows = [_row(election, dry_run=dry_run) for election in elections]
    run.console.show(ElectionRow, rows)
    if not rows:
        run.console.note("no partition needs an election")
    return run.status_of(rows)


def _selected(topic: str | None, partition: int | None, path: str | None) -> list[TopicPartition] | None:
    """Return the partitions of --partition or the file; None without either."""
    if path is not None and topic is not None:
        raise UsageError("give --path-to-json-file or --topic, not both")
    if partition is not None and topic is None:
        raise UsageError("--partition requires --topic")
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    if path is None:
        return None
    text = read_text(path)
    try:
        return parse_partitions(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _partitions_of(metadata: ClusterMetadata, topic: str) -> list[TopicPartition]:
    """Return all partitions of the topic.  Raises ApiError when there is no such topic."""
    found = metadata.topics[topic]
    if not found.partitions:
        raise topic_error(topic, found.error)
    return [TopicPartition(topic, partition.partition) for partition in found.partitions]


def _row(election: Election, *, dry_run: bool) -> ElectionRow:
    status = None
    if not election.is_needed:
        status = "not needed"
    elif election.is_elected:
        status = "would be elected" if dry_run else "elected"
    return ElectionRow(
        topic=election.tp.topic,
        partition=election.tp.partition,
        leader_before=known(election.leader_before),
        leader=known(election.leader),
        status=status,
        **(outcome_error(election.outcome) if election.is_needed else code_error(ErrorCode.NONE)),
    )
