"""`kctl consume`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.offset_spec import Anchor
from kctl.admin.offsets import find_offset_ranges, partitions_of, resolve
from kctl.client.consumer import Consumer
from kctl.client.list_offsets import IsolationLevel
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.compat.formatters import classic_text, key_and_value
from kctl.commands.consume.group_reading import group_reading, read_in_group
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.records import RECORD_COLUMNS, record_item, record_row
from kctl.commands.rows import known
from kctl.commands.values import format_time, parse_offset, parse_partitions
from kctl.console import Format
from kctl.errors import ApiError, ErrorCode, MalformedRequest, UsageError
from kctl.integers import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.admin.offset_spec import OffsetSpec
    from kctl.admin.offsets import OffsetRange
    from kctl.client.cluster import ClusterClient
    from kctl.console import RowStream
    from kctl.model import TopicPartition
    from kctl.records.header import Record

    Write = Callable[[TopicPartition, Record], bool]

app = typer.Typer(add_completion=False)


Formatter = Literal["offsets", "group-metadata", "transactions"]
CompatVersion = Literal["kafka-2.8", "kafka-4"]
IsolationLevelName = Literal["read_committed", "read_uncommitted"]


class DecodedRecordItem(NamedTuple):
    """A record of an internal topic; key and value are JSON objects."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: object
    value: object


@app.command(
    "consume",
    cls=ClusterCommand,
    epilog=examples(
        "kctl consume orders",
        "kctl consume orders --from -10 --partition 0",
        "kctl consume orders --from @2026-11-21T09:00:00Z --until @2026-11-21T10:00:00Z --format jsonl",
        "kctl consume orders --from end --follow",
        "kctl consume orders --group audit --follow --format jsonl",
        "kctl consume orders --group audit --follow --assignor cooperative-sticky",
        "kctl consume __consumer_offsets --formatter offsets",
    ),
)
def consume(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to read.", metavar="TOPIC")],
    *,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="OFFSET",
            help="Where to start: start, end, N, +N after the start, -N before the end, @TIME.",
        ),
    ] = "start",
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="OFFSET", help="Where to stop, exclusive.  Default: the end, unless --follow is given."
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("-n", "--max-records", metavar="N", help="Stop after N records.", max=INT64_MAX, min=0)
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="N,N-N", help="Only these partitions.  Default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more records at the end.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Read as a member of this consumer group, and commit offsets."),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(
            "--assignor",
            metavar="NAME[,NAME]",
            help="With --group: assignors: range, roundrobin, sticky, cooperative-sticky.  "
            "Default: range,cooperative-sticky.",
        ),
    ] = None,
    isolation: Annotated[
        IsolationLevelName,
        typer.Option("--isolation", help="Whether records of open and aborted transactions are read."),
    ] = "read_committed",
    formatter: Annotated[
        Formatter | None,
        typer.Option(
            "--formatter",
            help="Decode the records of __consumer_offsets or __transaction_state, and skip those of other kinds.",
        ),
    ] = None,
    compat: Annotated[
        CompatVersion | None,
        typer.Option("--compat", help="With --formatter: print what the formatter of that version of Kafka prints."),
    ] = None,
) -> ExitStatus:
    """Read records of a topic.

    Records are shown in order within each partition.  It stops where the partitions ended when it began, unless
    --follow is given.  Without --group it joins no group and commits nothing.

    With --group the group shares the partitions among its members, whatever client they are; --from counts where the
    group has committed nothing.  Records that were shown are committed every 5 s (auto.commit.interval.ms), before a
    rebalance, and at the end, also after SIGINT and SIGTERM; after SIGKILL those since the last commit are shown
    again.  group.instance.id, session.timeout.ms, heartbeat.interval.ms and max.poll.interval.ms count in
    --command-config.

    --assignor, or partition.assignment.strategy in --command-config, says by which assignors the member can share; all
    members of a group must have one in common.  Only one whose assignors are cooperative-sticky and nothing else keeps
    reading while the group shares anew; any other gives up its partitions first.

    TIME is RFC 3339 (UTC without a zone), a date (2026-11-21 or 20261121), 10 digits of epoch seconds or 13 of
    milliseconds, now, or a duration back from now: @-1h.  Times before 1970 are refused.

    Under json and jsonl nothing is lost: keys, values and header values that are not UTF-8 come as base64, which
    "key_encoding", "value_encoding" and "encoding" tell, and `kctl produce --input jsonl` reads them back.  Under json
    everything is held in memory until the end; jsonl and plain stream.

    With --formatter each record is a line of JSON, unless --format json makes all of them one document: key and value
    are objects, and the value of a tombstone is null.  Records that do not decode are skipped with a warning.
    """
    run: Invocation = ctx.obj
    if compat and not formatter:
        raise UsageError("--compat requires --formatter")
    if assignor is not None and group is None:
        raise UsageError("--assignor requires --group")
    if group is not None:
        if partition is not None or until is not None:
            raise UsageError(
                "--group assigns the partitions and knows where they end; leave out --partition and --until"
            )
        if run.console.format is Format.JSON:
            raise UsageError("--format json shows everything at the end, so nothing could be committed; use jsonl")
    if formatter and run.console.format is not Format.JSON:
        run.console.format = Format.JSONL
    now_ms = round(time.time() * 1000)
    lower = parse_offset(from_, now_ms=now_ms)
    upper = parse_offset(until, now_ms=now_ms) if until else None
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED

    async def read(client: ClusterClient) -> ExitStatus:
        with client.one_deadline(follows_elections=True):
            tps = _select(await partitions_of(client, [topic]), partition)
            held = await _reachable(run, client, tps, level)
            bounds = {} if group else await _bounds(run, client, held, lower, upper, follow=follow)

        async def copy(write: Write, flush: Callable[[], None]) -> None:
            if group is not None:
                reading = group_reading(
                    group,
                    topic,
                    run.client_properties(),
                    assignor=assignor,
                    lower=lower,
                    isolation=level,
                    ends=None if follow else {tp: range_.end for tp, range_ in held.items()},
                    records_max=max_records,
                )
                await read_in_group(client, run.console, reading, write, flush)
                return
            consumer = Consumer(client, {tp: start for tp, (start, _) in bounds.items()}, isolation=level)
            ends = {tp: end for tp, (_, end) in bounds.items() if end is not None}
            await _copy(consumer, write, ends, max_records, flush=flush if follow else None)

        if formatter and compat:
            await copy(_classic_writer(run, formatter, compat), run.console.flush)
            return ExitStatus.DONE if len(held) == len(tps) else ExitStatus.FAILED
        with run.console.stream(RECORD_COLUMNS) as stream:
            await copy(_decoding_writer(run, stream, formatter) if formatter else _writer(run, stream), stream.flush)
        return ExitStatus.DONE if len(held) == len(tps) else ExitStatus.FAILED

    return run.on_cluster_concurrently(read)


async def _reachable(
    run: Invocation, client: ClusterClient, tps: list[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, OffsetRange]:
    """What the partitions hold; those that cannot be asked are left out with a warning.

    Raises ApiError when none can be.
    """
    held: dict[TopicPartition, OffsetRange] = {}
    failed: dict[TopicPartition, ApiError] = {}
    for tp, found in (await find_offset_ranges(client, tps, isolation=isolation)).items():
        if isinstance(found, ApiError):
            failed[tp] = found
        else:
            held[tp] = found
    for tp, error in failed.items():
        if not held:
            raise ApiError(error.code, f"{tp}: {error}")
        run.console.warn(f"{tp} is not read: {error.code.name}: {error}")
    return held


def _select(tps: list[TopicPartition], partition: str | None) -> list[TopicPartition]:
    wanted = parse_partitions(partition)
    if wanted is None:
        return tps
    missing = sorted(set(wanted) - {tp.partition for tp in tps})
    if missing:
        message = f"{tps[0].topic} has no partition {', '.join(map(str, missing))}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return [tp for tp in tps if tp.partition in wanted]


async def _bounds(
    run: Invocation,
    client: ClusterClient,
    held: dict[TopicPartition, OffsetRange],
    lower: OffsetSpec,
    upper: OffsetSpec | None,
    *,
    follow: bool,
) -> dict[TopicPartition, tuple[int, int | None]]:
    """First offset and the one to stop at (None: never), moved into what the partitions hold."""
    starts = await resolve(client, held, lower)
    ends = await resolve(client, held, upper) if upper is not None else {}
    bounds: dict[TopicPartition, tuple[int, int | None]] = {}
    for tp, range_ in held.items():
        start = starts[tp]
        inside = min(max(start, range_.start), range_.end)
        if start != inside and lower.anchor is Anchor.ZERO:
            bounds_text = f"{range_.start} to {range_.end}"
            run.console.note(f"{tp}: offset {start} lies outside of {bounds_text}; reading from {inside}")
        end = ends.get(tp)
        if not follow:
            end = range_.end if end is None else min(end, range_.end)
        bounds[tp] = (inside, end)
    return bounds


async def _copy(
    consumer: Consumer,
    write: Write,
    ends: dict[TopicPartition, int],
    max_records: int | None,
    *,
    flush: Callable[[], None] | None = None,
) -> None:
    """Show records until all partitions have reached their ends or there are enough."""
    left = max_records
    _drop_finished(consumer, ends)
    while consumer.positions and left != 0:
        for tp, records in await consumer.poll():
            end = ends.get(tp)
            for record in records:
                if left == 0 or (end is not None and record.offset >= end):
                    break
                if write(tp, record):
                    left = None if left is None else left - 1
        if flush is not None:
            flush()
        _drop_finished(consumer, ends)


def _writer(run: Invocation, stream: RowStream) -> Write:
    """Shows every record as it is."""
    show = record_item if run.console.is_machine_readable else record_row

    def write(tp: TopicPartition, record: Record) -> bool:
        stream.write(show(tp, record))
        return True

    return write


def _decoding_writer(run: Invocation, stream: RowStream, formatter: str) -> Write:
    """Shows the records of one kind decoded."""

    def write(tp: TopicPartition, record: Record) -> bool:
        try:
            told = key_and_value(formatter, record)
        except MalformedRequest as error:
            run.console.warn(f"{tp}: the record at offset {record.offset} does not decode: {error}")
            return False
        if told is None:
            return False
        timestamp_ms, time_text = known(record.timestamp), format_time(record.timestamp)
        stream.write(DecodedRecordItem(tp.topic, tp.partition, record.offset, timestamp_ms, time_text, *told))
        return True

    return write


def _classic_writer(run: Invocation, formatter: str, compat: str) -> Write:
    """Shows the records of one kind in Kafka's words."""

    def write(tp: TopicPartition, record: Record) -> bool:
        try:
            text = classic_text(formatter, compat, record)
        except MalformedRequest as error:
            run.console.warn(f"{tp}: the record at offset {record.offset} does not decode: {error}")
            return False
        if text is not None:
            run.console.verbatim(text)
        return text is not None

    return write


def _drop_finished(consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
    for tp, end in ends.items():
        if tp in consumer.positions and consumer.positions[tp] >= end:
            consumer.drop(tp)
