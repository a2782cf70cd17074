"""`kctl tables profile`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, NamedTuple

import typer

from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.shown import shows_one
from kctl.commands.frame.values import parse_offset_range, parse_partitions
from kctl.output.console import Column, Format
from kctl.output.quantities import counted, format_duration
from kctl.tables.exec.target import PackageMissing
from kctl.tables.plans.cluster_view import TopicSelection
from kctl.tables.plans.plan import Isolation
from kctl.tables.profiling.request import ProfileRequest, profile_topic
from kctl.tables.profiling.rows import PartitionProfile, Spread, TopicProfile

verbs = typer.Typer(add_completion=False)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PARTITION_COLUMNS = (
    Column("partition", numeric=True),
    Column("start", numeric=True),
    Column("end", numeric=True),
    Column("records", numeric=True),
    Column("share", numeric=True),
    Column("log_bytes", numeric=True),
    Column("key_bytes", numeric=True),
    Column("value_bytes", numeric=True),
    Column("null_keys", numeric=True),
    Column("null_values", numeric=True),
    Column("out_of_order", numeric=True),
    Column("lateness", numeric=True),
    Column("earliest"),
    Column("latest"),
    Column("gone", numeric=True, is_rare=True),
)
SPREAD_COLUMNS = (
    Column("measure"),
    *(Column(name, numeric=True) for name in ("counted", "mean", "min", "p50", "p90", "p99", "max")),
)
KEY_COLUMNS = (Column("key"), Column("records", numeric=True), Column("share", numeric=True))
KIND_COLUMNS = (Column("kind"), Column("values", numeric=True))
SCHEMA_COLUMNS = (Column("schema_id", numeric=True), Column("values", numeric=True), Column("slices", wraps=True))
FIELD_COLUMNS = (
    Column("field"),
    Column("share", numeric=True),
    Column("kinds", wraps=True),
    Column("changes", wraps=True),
)


class _Facts(NamedTuple):
    """What is shown first."""

    topic: str
    records: int
    log_bytes: int
    uncompressed_bytes: int
    codecs: str
    null_keys: int
    null_values: int
    with_headers: int
    without_timestamp: int
    out_of_order: int
    distinct_keys: str
    keys_in_several_partitions: int


@verbs.command(
    "profile",
    cls=ClusterCommand,
    epilog=examples(
        "kctl tables profile orders",
        "kctl tables profile orders --from @2026-11-01 --until @2026-11-02",
        "kctl tables profile orders --partitions 0-3 --from=-100000 --format json",
    ),
)
@shows_one(TopicProfile, lines=PartitionProfile)
def profile(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to read.", metavar="TOPIC")],
    *,
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="N,N-N", help="Only these partitions.  Default: all.")
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="OFFSET", help="Where to start: earliest, latest, N, +N, -N or @TIME."),
    ] = "earliest",
    until: Annotated[
        str, typer.Option("--until", metavar="OFFSET", help="Where to stop, exclusive; the same forms as --from.")
    ] = "latest",
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation", help="Whether to skip aborted transactions and stop before open ones."),
    ] = "read_committed",
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress on stderr.")] = False,
) -> ExitStatus:
    """Profile a topic: keys, sizes, nulls, skew, disorder and schema drift.

    Reads the records once, and writes nothing.  Needs no table; the profile helps to decide on
    partitions, keys and columns before an export.  Memory does not grow with the topic.

    Numbers of records, bytes and nulls are exact.  Percentiles are at most 3 % too high.  Up to 65,536 different keys
    are counted exactly, more are estimated with a standard error of 0.4 %; counts of the most frequent keys are exact
    up to 4,096 different keys, and lower bounds with a stated error above.  A record is OUT-OF-ORDER if one before it
    in its partition has a later timestamp; LATENESS is the longest such time.  Kinds of values and the fields of JSON
    objects come from a sample of 10,000 values at equal distances; CHANGES names fields that appear, end or change
    their type, by slice: slice 0 has the first twentieth of the offsets of each partition, slice 19 the last.
    """
    run: Invocation = ctx.obj
    now_ms = round(time.time() * 1000)
    first, end = parse_offset_range(start, until, now_ms=now_ms)
    run.consumer_properties()
    run.note_unused("tables profile")
    request = ProfileRequest(
        selection=TopicSelection(
            topics=[topic],
            start=first,
            until=end,
            isolation=Isolation(run.setting(ctx, "isolation", "isolation.level")),
            partitions=parse_partitions(partitions),
        ),
        client=run.client_settings(),
    )
    try:
        with contextlib.ExitStack() as stack:
            bar = None if no_progress else stack.enter_context(run.console.progress("read", unit="offsets"))
            found = profile_topic(request, lambda done, _: bar.update(done) if bar else None)
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    if gone := sum(one.gone for one in found.partitions):
        run.console.warn(f"{counted(gone, 'offset')} deleted while the topic was read")
    _show(run, found)
    return ExitStatus.DONE


def _show(run: Invocation, found: TopicProfile) -> None:
    console = run.console
    if console.format.is_document:
        console.show_one(found)
        return
    if console.format is not Format.TABLE:
        console.show(PARTITION_COLUMNS, found.partitions, rows=map(_partition_row, found.partitions))
        return
    console.show_one(_facts(found))
    console.text("")
    console.show(PARTITION_COLUMNS, found.partitions, rows=map(_partition_row, found.partitions))
    for columns, rows in (
        (SPREAD_COLUMNS, _spread_rows(found)),
        (KEY_COLUMNS, [{**one._asdict(), "share": _percent(one.share)} for one in found.keys.top]),
        (KIND_COLUMNS, [one._asdict() for one in found.values.kinds]),
        (SCHEMA_COLUMNS, list(_schema_rows(found))),
        (FIELD_COLUMNS, list(_field_rows(found))),
    ):
        if rows:
            console.text("")
            console.show(columns, rows)
    if found.keys.frequency_error:
        console.note(f"records of keys are lower bounds, at most {found.keys.frequency_error:,} too low")
    if found.values.has_more_fields:
        console.note("there are more fields than listed")


def _facts(found: TopicProfile) -> _Facts:
    keys = found.keys
    error = f" (estimated, standard error {keys.distinct_error:.1%})" if keys.distinct_error else ""
    return _Facts(
        found.topic,
        found.records,
        found.log_bytes,
        sum(one.uncompressed_bytes for one in found.codecs),
        ", ".join(f"{one.codec} ({counted(one.batches, 'batch', 'batches')})" for one in found.codecs),
        found.null_keys,
        found.null_values,
        found.with_headers,
        found.without_timestamp,
        found.out_of_order,
        f"{keys.distinct}{error}",
        keys.in_several_partitions,
    )


def _partition_row(one: PartitionProfile) -> dict[str, object]:
    return {
        **one._asdict(),
        "share": _percent(one.share),
        "lateness": format_duration(one.lateness_ms_max),
        "earliest": None if one.min_timestamp is None else _time_text(one.min_timestamp),
        "latest": None if one.max_timestamp is None else _time_text(one.max_timestamp),
        "gone": one.gone or None,
    }


def _spread_rows(found: TopicProfile) -> list[dict[str, object]]:
    spreads: list[tuple[str, Spread]] = [
        ("key bytes", found.key_sizes),
        ("value bytes", found.value_sizes),
        ("records per key", found.keys.records_per_key),
        ("lateness in ms", found.lateness_ms),
    ]
    return [{"measure": name, **spread._asdict()} for name, spread in spreads if spread.counted]


def _schema_rows(found: TopicProfile) -> Iterator[dict[str, object]]:
    for one in found.values.schema_ids:
        present = [slice_ for slice_, count in enumerate(one.by_slice) if count]
        yield {"schema_id": one.schema_id, "values": one.values, "slices": f"{present[0]} to {present[-1]}"}
    if found.values.other_schema_ids:
        yield {"schema_id": None, "values": found.values.other_schema_ids, "slices": None}


def _field_rows(found: TopicProfile) -> Iterator[dict[str, object]]:
    for one in found.values.fields:
        kinds = ", ".join(f"{kind} {count}" for kind, count in one.kinds.items())
        yield {
            "field": one.field,
            "share": _percent(one.share),
            "kinds": kinds,
            "changes": "; ".join(one.changes) or None,
        }


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _time_text(timestamp_ms: int) -> str:
    """A time in UTC with milliseconds; beyond the years of the calendar, the number."""
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(' ', 'milliseconds')[:-6]}Z"
    except OverflowError:
        return str(timestamp_ms)
