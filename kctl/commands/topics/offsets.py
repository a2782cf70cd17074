"""`kctl offsets`: look up offsets of partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.topics.offsets import partitions_by_topic
from kctl.client.consuming.list_offsets import SPECIAL, IsolationLevel, list_offsets
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Partitions, list_of
from kctl.commands.frame.options.values import format_time, known_time, parse_time_ms
from kctl.commands.frame.output.rows import exception_error, known
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.reading.searches import NamePattern
from kctl.commands.topics.options import TopicRegex
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, ErrorName, ErrorText

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.list_offsets import OffsetAt


# `kctl topics offsets`.


_EPOCH_MS_DIGITS = 13

verbs = typer.Typer(add_completion=False)


class OffsetRow(NamedTuple):
    """An offset of a partition, or the error."""

    topic: str
    partition: int
    offset: int | None = None
    timestamp_ms: Annotated[int | None, JSON_ONLY] = None
    time: str | None = None
    leader_epoch: int | None = None
    error: ErrorName = None
    message: ErrorText = None


class TopicFailureRow(NamedTuple):
    """A topic whose partitions are unknown."""

    topic: str
    error: str | None
    message: str | None


@verbs.command(
    "offsets",
    cls=QueryCommand,
    epilog=examples(
        "kctl topics offsets orders",
        "kctl topics offsets orders payments --time earliest",
        "kctl topics offsets orders --time @2026-11-21T09:30:00Z --partition 0,3-5",
    ),
)
@shows(OffsetRow, TopicFailureRow)
def get(
    ctx: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics whose offsets to show.", metavar="TOPIC")] = None,
    *,
    topic_regex: TopicRegex = None,
    at: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="NAME|@TIME",
            help="Which offset: earliest, latest, max-timestamp (the record with the largest one; Kafka 3.0),"
            " earliest-local and latest-tiered (with remote storage; Kafka 3.4 and 3.8), or Kafka's numbers for these,"
            " -2, -1, -3, -4 and -5.  @TIME is that of the first record at or after the time: RFC 3339 (UTC without a"
            " zone), a date, epoch seconds (10 digits) or milliseconds (13 digits), or a duration back from now: @-1h.",
        ),
    ] = "latest",
    partition: Annotated[
        Partitions | None, typer.Option("--partition", parser=Partitions, help="Only these partitions.  Default: all.")
    ] = None,
    committed: Annotated[
        bool,
        typer.Option(
            "--committed", help="Use the end that readers of committed transactions see (the last stable offset)."
        ),
    ] = False,
) -> ExitStatus:
    """Show the first, last or time-based offset of every partition.

    A time after the last record has no offset.
    """
    run: Invocation = ctx.obj
    timestamp = _timestamp(at)
    requested = list_of(partition)
    if bool(topics) == (topic_regex is not None):
        raise UsageError("give topics or --topic-regex")
    pattern = None if topic_regex is None else NamePattern("--topic-regex", topic_regex)
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    async def query(client: ClusterClient) -> list[OffsetRow | TopicFailureRow]:
        names = sorted(set(topics or ()))
        if pattern is not None:
            present = (await client.metadata()).topics.values()
            names = sorted(pattern.select(topic.name for topic in present if not topic.is_internal))
        found = await partitions_by_topic(client, names)
        if requested is not None:
            for name, of_topic in found.items():
                if not isinstance(of_topic, ApiError):
                    found[name] = [TopicPartition(name, number) for number in requested]
        tps = [tp for tps_of_topic in found.values() if not isinstance(tps_of_topic, ApiError) for tp in tps_of_topic]
        offsets = await list_offsets(client, dict.fromkeys(tps, timestamp), isolation=isolation) if tps else {}
        rows: list[OffsetRow | TopicFailureRow] = []
        for name, tps_of_topic in found.items():
            if isinstance(tps_of_topic, ApiError):
                rows.append(TopicFailureRow(name, **exception_error(tps_of_topic)))
            else:
                rows.extend(_row(tp, offsets[tp]) for tp in sorted(set(tps_of_topic)))
        return rows

    rows = run.on_brokers(query)
    run.console.show(OffsetRow, rows)
    return run.status_of(rows)


def _timestamp(text: str) -> int:

    name = {"start": "earliest", "end": "latest"}.get(text, text)
    if name in SPECIAL:
        return SPECIAL[name]
    if text in {str(number) for number in SPECIAL.values()}:
        return int(text)
    if not text.startswith("@") and not (len(text) == _EPOCH_MS_DIGITS and text.isdecimal()):  # as Kafka's tool takes
        raise UsageError(f"--time takes {', '.join(SPECIAL)}, their numbers or @TIME, not '{text}'")
    return parse_time_ms(text, now_ms=round(time.time() * 1000))


def _row(tp: TopicPartition, outcome: OffsetAt | ApiError) -> OffsetRow:
    if isinstance(outcome, ApiError):
        if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            outcome = ApiError(outcome.code, f"{tp.topic} has no partition {tp.partition}")
        return OffsetRow(tp.topic, tp.partition, **exception_error(outcome))
    return OffsetRow(
        topic=tp.topic,
        partition=tp.partition,
        offset=known(outcome.offset),
        timestamp_ms=known_time(outcome.timestamp_ms),
        time=format_time(outcome.timestamp_ms),
        leader_epoch=known(outcome.leader_epoch),
    )
