"""`kctl records`: delete records of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.records.deletion import (
    TO_END,
    Deletion,
    delete_records,
    offsets_of_time,
    parse_deletions,
    plan_deletions,
)
from kctl.admin.topics.offsets import partitions_of
from kctl.client.outcome import Outcome
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.option_types import Time
from kctl.commands.frame.options.values import parse_partitions
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.errors import ApiError, UsageError
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText
from kctl.output.quantities import INT64_MAX, counted
from kctl.system.user_files import read_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.client.cluster import ClusterClient


app = typer.Typer(
    cls=verb_group(__name__, ["delete"]),
    help="Delete the oldest records of partitions.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# `kctl records delete`.


verbs = typer.Typer(add_completion=False)


class DeletionRow(NamedTuple):
    """A partition whose records are deleted; the log start and end offsets are those before the deletion."""

    topic: str
    partition: int
    log_start_offset: Annotated[int | None, Column(drop_order=2)]
    log_end_offset: Annotated[int | None, Column(drop_order=1)]
    before_offset: int | None
    offsets: int | None
    low_watermark: Annotated[int | None, JSON_ONLY]
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples(
        "kctl records delete orders --before-offset 1200 --dry-run",
        "kctl records delete orders:0,3-5 payments --before-time -7d --yes",
        "kctl records delete orders --to-end --yes",
        "kctl records delete --offset-json-file offsets.json --dry-run",
    ),
)
@shows(DeletionRow)
def delete(
    ctx: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Topics, or some of their partitions.", metavar="TOPIC[:N,N-N]"),
    ] = None,
    *,
    before_offset: Annotated[
        int | None,
        typer.Option(
            "--before-offset", metavar="N", help="Delete the records before this offset.", min=0, max=INT64_MAX
        ),
    ] = None,
    before_time: Annotated[
        Time | None,
        typer.Option(
            "--before-time",
            parser=Time,
            help="Delete the records before the first one at or after that time: RFC 3339 (UTC without a zone), a date,"
            " 10 digits of epoch seconds or 13 of milliseconds, or a duration back from now such as -7d.",
        ),
    ] = None,
    to_end: Annotated[bool, typer.Option("--to-end", help="Delete all records.")] = False,
    offset_json_file: Annotated[
        str | None,
        typer.Option(
            "--offset-json-file",
            metavar="FILE",
            help="Kafka's JSON: partitions and the offsets before which records are deleted, -1 for the end.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")] = False,
) -> ExitStatus:
    """Delete the oldest records of partitions.  Deleted records cannot be restored.

    Exactly one of --before-offset, --before-time, --to-end and --offset-json-file selects the records.  If a partition
    does not exist or an offset is after its end, nothing is deleted.  OFFSETS is the number of deleted offsets, and
    JSON also has the low watermark after the deletion.  The broker refuses topics without 'delete' in cleanup.policy.
    Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    if [before_offset is not None, before_time is not None, to_end, offset_json_file is not None].count(True) != 1:
        raise UsageError("give exactly one of --before-offset, --before-time, --to-end and --offset-json-file")
    if bool(topics) is (offset_json_file is not None):
        raise UsageError("name topics, unless --offset-json-file lists the partitions")
    in_file = None if offset_json_file is None else _read(offset_json_file)
    scope = _parse(topics or [])

    async def plan(client: ClusterClient) -> list[Deletion]:
        if in_file is not None:
            return await plan_deletions(client, in_file)
        partitions = await _partitions(client, scope)
        if before_time is not None:
            return await plan_deletions(client, await offsets_of_time(client, partitions, before_time))
        offset = TO_END if before_offset is None else before_offset
        return await plan_deletions(client, dict.fromkeys(partitions, offset))

    deletions = run.on_brokers(plan)
    if dry_run or not all(deletion.outcome.is_done for deletion in deletions):
        rows = [_row(deletion, "would be deleted", deletion.outcome) for deletion in deletions]
        run.console.show(DeletionRow, rows)
        return run.status_of(rows)
    requested = {
        deletion.tp: deletion.offset for deletion in deletions if deletion.offset is not None and deletion.count
    }
    total = sum(deletion.count or 0 for deletion in deletions)
    if requested:
        run.consent(f"Delete {counted(total, 'offset')} of {counted(len(requested), 'partition')}?")
    results = run.on_brokers(lambda client: delete_records(client, requested)) if requested else {}
    rows = []
    for deletion in deletions:
        result = results.get(deletion.tp)
        if isinstance(result, ApiError):
            rows.append(_row(deletion, "deleted", Outcome(str(deletion.tp), result.code, str(result))))
        else:
            rows.append(_row(deletion, "deleted", deletion.outcome, low_watermark=result))
    run.console.show(DeletionRow, rows)
    return run.status_of(rows)


def _row(deletion: Deletion, status: str, outcome: Outcome, *, low_watermark: int | None = None) -> DeletionRow:
    shown = status if deletion.count else "nothing to delete"
    return DeletionRow(
        topic=deletion.tp.topic,
        partition=deletion.tp.partition,
        log_start_offset=deletion.held.start if deletion.held else None,
        log_end_offset=deletion.held.end if deletion.held else None,
        before_offset=deletion.offset,
        offsets=deletion.count if outcome.is_done else None,
        low_watermark=low_watermark,
        status=shown if outcome.is_done else None,
        **outcome_error(outcome),
    )


def _read(path: str) -> dict[TopicPartition, int]:
    try:
        return parse_deletions(read_input(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None


def _parse(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Return the partitions by topic, None for all."""
    scope: dict[str, list[int] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not name or name in scope:
            raise UsageError(f"'{text}' names no topic" if not name else f"topic '{name}' is named twice")
        scope[name] = parse_partitions(numbers) if colon else None
    return scope


async def _partitions(client: ClusterClient, scope: dict[str, list[int] | None]) -> list[TopicPartition]:
    """Return the selected partitions, which need not exist if they are numbered.

    Raises ApiError for unknown topics.
    """
    present = await partitions_of(client, scope)
    numbered = [TopicPartition(name, number) for name, numbers in scope.items() for number in numbers or ()]
    return sorted([*numbered, *(tp for tp in present if scope[tp.topic] is None)])
