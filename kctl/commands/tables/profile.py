"""`kctl tables profile`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import typer

from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Offset, Partitions, list_of
from kctl.commands.frame.options.values import check_offset_range
from kctl.commands.frame.output.shown import shows_one
from kctl.output.console import Column, Format, TypedRow
from kctl.output.quantities import counted
from kctl.tables.exec.targets.target import PackageMissing, require_arrow
from kctl.tables.plans.cluster_view import TopicSelection
from kctl.tables.plans.plan import Isolation
from kctl.tables.profiling.rows import KindCount, PartitionProfile, Spread, TopicProfile, TopKey, percent

verbs = typer.Typer(add_completion=False)


class _SpreadRow(NamedTuple):
    """A measure and its percentiles."""

    measure: str
    counted: int
    mean: float | None
    min: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None


class _SchemaRow(NamedTuple):
    """How many values have a schema id; without id for all that are not listed."""

    schema_id: int | None
    values: int
    slices: Annotated[str | None, Column(wraps=True)]


class _FieldRow(NamedTuple):
    """A field of JSON objects."""

    field: str
    share: Annotated[float, Column(shown=percent)]
    kinds: Annotated[str, Column(wraps=True)]
    changes: Annotated[str | None, Column(wraps=True)]


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
        Partitions | None, typer.Option("--partitions", parser=Partitions, help="Only these partitions.  Default: all.")
    ] = None,
    start: Annotated[
        Offset,
        typer.Option("--from", parser=Offset, help="Where to start: earliest, latest, N, +N, -N or @TIME."),
    ] = Offset("earliest"),
    until: Annotated[
        Offset, typer.Option("--until", parser=Offset, help="Where to stop, exclusive; the same forms as --from.")
    ] = Offset("latest"),
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation-level", help="Whether to skip aborted transactions and stop before open ones."),
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
    check_offset_range(start, until)
    run.consumer_properties()
    run.note_unused("tables profile")
    try:
        require_arrow()
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    from kctl.tables.profiling.request import ProfileRequest, profile_topic  # noqa: PLC0415 - imports pyarrow

    request = ProfileRequest(
        selection=TopicSelection(
            topics=[topic],
            start=start,
            until=until,
            isolation=Isolation(run.setting(ctx, "isolation", "isolation.level")),
            partitions=list_of(partitions),
        ),
        client=run.client_settings(),
    )
    with contextlib.ExitStack() as stack:
        bar = None if no_progress else stack.enter_context(run.console.progress("read", unit="offsets"))
        topic_profile = profile_topic(request, lambda done, _: bar.update(done) if bar else None)
    if gone := sum(partition.gone for partition in topic_profile.partitions):
        run.console.warn(f"{counted(gone, 'offset')} deleted while the topic was read")
    _show(run, topic_profile)
    return ExitStatus.DONE


def _show(run: Invocation, topic_profile: TopicProfile) -> None:
    console = run.console
    if console.format.is_document:
        console.show_one(topic_profile)
        return
    if console.format is not Format.TABLE:
        console.show(PartitionProfile, topic_profile.partitions)
        return
    console.show_one(_facts(topic_profile))
    console.text("")
    console.show(PartitionProfile, topic_profile.partitions)
    tables: list[tuple[type[TypedRow], Sequence[TypedRow]]] = [
        (_SpreadRow, _spread_rows(topic_profile)),
        (TopKey, topic_profile.keys.top),
        (KindCount, topic_profile.values.kinds),
        (_SchemaRow, list(_schema_rows(topic_profile))),
        (_FieldRow, list(_field_rows(topic_profile))),
    ]
    for row, rows in tables:
        if rows:
            console.text("")
            console.show(row, rows)
    if topic_profile.keys.frequency_error:
        console.note(f"records of keys are lower bounds, at most {topic_profile.keys.frequency_error:,} too low")
    if topic_profile.values.has_more_fields:
        console.note("there are more fields than listed")


def _facts(topic_profile: TopicProfile) -> _Facts:
    keys = topic_profile.keys
    error = f" (estimated, standard error {keys.distinct_error:.1%})" if keys.distinct_error else ""
    return _Facts(
        topic_profile.topic,
        topic_profile.records,
        topic_profile.log_bytes,
        sum(codec.uncompressed_bytes for codec in topic_profile.codecs),
        ", ".join(f"{codec.codec} ({counted(codec.batches, 'batch', 'batches')})" for codec in topic_profile.codecs),
        topic_profile.null_keys,
        topic_profile.null_values,
        topic_profile.with_headers,
        topic_profile.without_timestamp,
        topic_profile.out_of_order,
        f"{keys.distinct}{error}",
        keys.in_several_partitions,
    )


def _spread_rows(topic_profile: TopicProfile) -> list[_SpreadRow]:
    spreads: list[tuple[str, Spread]] = [
        ("key bytes", topic_profile.key_sizes),
        ("value bytes", topic_profile.value_sizes),
        ("records per key", topic_profile.keys.records_per_key),
        ("lateness in ms", topic_profile.lateness_ms),
    ]
    return [_SpreadRow(name, *spread[:-1]) for name, spread in spreads if spread.counted]


def _schema_rows(topic_profile: TopicProfile) -> Iterator[_SchemaRow]:
    for schema in topic_profile.values.schema_ids:
        present = [slice_ for slice_, count in enumerate(schema.by_slice) if count]
        yield _SchemaRow(schema.schema_id, schema.values, f"{present[0]} to {present[-1]}")
    if topic_profile.values.other_schema_ids:
        yield _SchemaRow(None, topic_profile.values.other_schema_ids, None)


def _field_rows(topic_profile: TopicProfile) -> Iterator[_FieldRow]:
    for field in topic_profile.values.fields:
        kinds = ", ".join(f"{kind} {count}" for kind, count in field.kinds.items())
        yield _FieldRow(field.field, field.share, kinds, "; ".join(field.changes) or None)
