"""`kctl consume`."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from kctl.admin.records.latest import LAST_RECORDS_MAX
from kctl.admin.records.selection import MaskingRules, masking_rules
from kctl.admin.topics.offsets import Anchor, OffsetSpec
from kctl.client.consuming.fetching.batches import CHUNKS
from kctl.client.properties.values import BY_DURATION, iso_duration_ms
from kctl.commands.consume.presenting import Decode, presenting, text_of_options
from kctl.commands.consume.reading import Reading, RecordText, read_topics
from kctl.commands.frame.command import ConfirmedCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Offset, list_of
from kctl.commands.frame.options.parameters import NOT_AN_OPTION, with_groups
from kctl.commands.frame.options.values import check_offset_range, parse_offset
from kctl.commands.frame.output.shown import shows
from kctl.commands.reading.options import (
    DescriptorOptions,
    From,
    Limit,
    Mask,
    MaskRegex,
    NullMarker,
    Partition,
    RecordFormat,
    SchemaRegistry,
    SelectOptions,
    selecting,
)
from kctl.commands.reading.topics import TopicRegex, topic_selection
from kctl.errors import ConfigError, UsageError
from kctl.output.console import Format
from kctl.output.quantities import INT64_MAX

app = typer.Typer(add_completion=False)


Formatter = Literal["offsets", "group-metadata", "transactions"]
IsolationLevelName = Literal["read_committed", "read_uncommitted"]


@app.command(
    "consume",
    cls=ConfirmedCommand,
    epilog=examples(
        "kctl consume orders",
        "kctl consume orders --last 20",
        "kctl consume orders payments --from @-1h --format jsonl",
        "kctl consume 'shop-*' --follow",
        "kctl consume orders --from -10 --partition 0",
        "kctl consume orders --from @2026-11-21T09:00:00Z --until @2026-11-21T10:00:00Z --format jsonl",
        "kctl consume orders --from @10:00 --until @10:05 --key customer-7 --max-messages 20",
        "kctl consume orders --from @-1h --where 'value.status == \"failed\" and value.amount > 100' --format jsonl",
        "kctl consume orders --grep 'timeout|refused' --record-header source=web --max-messages 1 --expect 1",
        "kctl consume orders --from end --follow",
        r"kctl consume orders -f '%p:%o %d{rfc3339} %k = %v\n'",
        r"kctl consume orders -f '%K %V %k%v' --reversible | kctl produce orders-copy -f '%K %V %k%v'",
        "kctl consume orders --value-only --max-messages 1",
        "kctl consume orders --decode value --schema-registry http://127.0.0.1:8081 --mask value.card.number",
        "kctl consume orders --value-descriptor shop.desc --value-message shop.Order",
        "kctl consume orders --group audit --follow --format jsonl",
        "kctl consume orders --group audit --follow --assignor cooperative-sticky",
        "kctl consume __consumer_offsets --formatter offsets",
    ),
)
@shows(
    "kctl.commands.reading.items:RecordItem",
    "kctl.commands.reading.items:DecodedItem",
    "kctl.commands.consume.reading:DecodedRecordItem",
)
@with_groups
def consume(
    ctx: typer.Context,
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics to read; * and ? are wildcards.", metavar="TOPIC")
    ] = None,
    *,
    topic_regex: TopicRegex = None,
    from_: From = Offset("start"),
    until: Annotated[
        Offset | None,
        typer.Option(
            "--until", parser=Offset, help="Where to stop, exclusive.  Default: the end, unless --follow is given."
        ),
    ] = None,
    select: SelectOptions,
    max_records: Limit = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            help="Only the N records with the latest timestamps, of all partitions together.",
            max=LAST_RECORDS_MAX,
            min=0,
        ),
    ] = None,
    expect: Annotated[
        int | None,
        typer.Option(
            "--expect", metavar="N", help="Exit status 3 unless exactly N records are shown.", max=INT64_MAX, min=0
        ),
    ] = None,
    partition: Partition = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more records at the end.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Read as a member of this consumer group, and commit offsets."),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(
            "--assignor",
            metavar="NAME[,NAME]",
            help="With --group: range, roundrobin, sticky or cooperative-sticky, the preferred one first.  "
            "Default: range,cooperative-sticky.",
        ),
    ] = None,
    isolation: Annotated[
        IsolationLevelName,
        typer.Option("--isolation-level", help="Whether records of open and aborted transactions are read."),
    ] = "read_committed",
    on_truncation: Annotated[
        Literal["stop", "continue"],
        typer.Option(
            "--on-truncation",
            help="When records that were read are not in the log any more: stop with exit status 5, or read on from "
            "where the logs part.",
        ),
    ] = "stop",
    formatter: Annotated[
        Formatter | None,
        typer.Option(
            "--formatter",
            help="Decode the records of __consumer_offsets or __transaction_state, and skip those of other kinds.",
        ),
    ] = None,
    record_format: RecordFormat = None,
    null_marker: NullMarker = None,
    reversible: Annotated[
        bool,
        typer.Option(
            "--reversible", help="With -f: stop at a record that 'kctl produce -f' would not read back equal."
        ),
    ] = False,
    value_only: Annotated[
        bool,
        typer.Option("--value-only", help="Only values, one per line; JSON is indented on a terminal."),
    ] = False,
    decode: Annotated[
        Decode | None,
        typer.Option("--decode", help="Decode Avro, Protobuf and JSON Schema by a schema registry into JSON."),
    ] = None,
    schema_registry: SchemaRegistry = None,
    descriptors: DescriptorOptions,
    mask: Mask = None,
    mask_regex: MaskRegex = None,
    formatter_text: Annotated[RecordText | None, NOT_AN_OPTION] = None,
) -> ExitStatus:
    """Read records of topics.

    Several topics are read side by side.  In TOPIC, * is any text and ? any character; --topic-regex takes a regular
    expression.  Internal topics are read only if they are named in full.  With --follow, topics that match and are
    created later are read from their start; they are looked for every 10 s (metadata.max.age.ms, if that is less).
    The table and csv have a column for the topic unless one TOPIC without wildcards is given.

    Records are in order within each partition.  The command ends at the offsets that were the end of the partitions
    when it started, unless --follow is given.  Without --group it does not join a group and commits nothing.

    With --follow, added partitions are read from their start, and so is a topic that is deleted and created again,
    with a warning; changes without an error are noticed after metadata.max.age.ms in --command-config (5 min).

    --last shows N records in total, in the order of their timestamps; records of a partition stay in the order of their
    offsets.  Each partition is read backwards until N records are found that --key, --grep, --where and --record-header
    select, or --from or the start of the log is reached.  With --follow, new records come after them.

    With --group the partitions are divided among the members of the group, which may be other clients; --from applies
    to partitions without a committed offset.  Offsets of the records shown are committed every 5 s
    (auto.commit.interval.ms), before a rebalance and at the end, also after SIGINT and SIGTERM.  After SIGKILL, records
    since the last commit are shown again.  --command-config may set group.instance.id, session.timeout.ms,
    heartbeat.interval.ms and max.poll.interval.ms; with enable.auto.commit=false nothing is committed.

    --command-config may also set auto.offset.reset, isolation.level and the sizes of fetches
    (docs/reference/client-properties.md); --from and --isolation-level take precedence.

    After an unclean leader election, or when a topic was deleted and created again, the log does not have the records
    that were read before a position, and others may have their offsets.  This is checked by leader epochs (KIP-320),
    which are committed with the offsets: when the command starts, and when a leader changes.  It then names the lost
    range and ends with exit status 5, and the group keeps its offsets; with --on-truncation continue it warns and reads
    on from where the logs part, or from --from if that is unknown.

    --assignor, or partition.assignment.strategy in --command-config, lists the assignors that the member supports; all
    members of a group must have one in common.  If cooperative-sticky is the only one, the member keeps reading during
    a rebalance; otherwise it revokes its partitions first.

    TIME is RFC 3339 (UTC without a zone), a date (2026-11-21 or 20261121), a time of the current day in UTC (10:05),
    epoch seconds (10 digits) or milliseconds (13 digits), now, or a duration before now (@-1h).  Times before 1970 are
    refused.  A partition is read from its first record at or after the time of --from up to its first record at or
    after the time of --until.

    --key, --grep, --where and --record-header select records; if several are given, all must match. --max-messages
    counts selected records.  --grep applies Python's regular expressions to the value as UTF-8: without special
    characters to the whole value, otherwise to its first 64 KiB and for at most 1 s.  --where compares fields (key,
    value, headers, topic, partition, offset, timestamp) and JSON below them (value.items[0].id,
    headers["trace-id"]) by = != < <= > >=, in, like and is null, joined by and, or, not, exists(PATH).  A
    comparison with null or a path that does not exist is unknown, as in SQL, and so is its opposite.  'kctl export
    --where' has the same conditions.

    With json, jsonl and yaml, keys, values and header values that are not UTF-8 are base64; "key_encoding",
    "value_encoding" and "encoding" name the encoding.  'kctl produce --input jsonl' reads them back unchanged.  json
    and yaml hold all records in memory until the end; jsonl, plain and csv do not.

    -f writes each record in a format: %k key, %v value, %h headers, %t topic, %p partition, %o offset, %d timestamp, %K
    and %V sizes, and other characters as they are; \\n, \\t and \\xNN are escapes.  Forms are in braces: %k{hex},
    %v{base64}, %v{escape}, %d{rfc3339}.  'kctl produce -f' reads the same formats; see docs/format-language.md.

    --decode reads schemas from --schema-registry, or schema.registry.url in --command-config.  A value that does not
    decode is shown as bytes, with a warning per cause, and the exit status is 1.  --key, --grep and --where apply to
    what is shown: decoded and masked text; see docs/schema-registry.md.  --value-descriptor and --value-message decode
    Protobuf that was written without a registry.

    --mask replaces the JSON value at a path of --where by "***", and the whole key or value if it is not JSON;
    --mask-regex replaces what matches in keys, values and headers.  kctl.mask.paths and kctl.mask.regex in
    --command-config are further rules.

    With --formatter, each record is a line of JSON, or all records are one document with --format json or yaml.  Key
    and value are objects; the value of a tombstone is null.  Records that cannot be decoded are skipped with a warning.
    """
    run: Invocation = ctx.obj
    selection = topic_selection(ctx, topics, topic_regex)
    if partition is not None and selection.has_several:
        raise UsageError("--partition names partitions of one topic; give one TOPIC")
    if assignor is not None and group is None:
        raise UsageError("--assignor requires --group")
    text = text_of_options(
        run.console,
        record_format=record_format,
        null_marker=null_marker,
        reversible=reversible,
        value_only=value_only,
        formatter=formatter,
    )
    if group is not None:
        if partition is not None or until is not None:
            raise UsageError(
                "--group assigns partitions and determines where to stop; leave out --partition and --until"
            )
        if selection.names and selection.pattern is not None:
            raise UsageError("with --group, give names of topics or patterns, not both")
        if select.partition_of_key:
            raise UsageError("--group assigns partitions; leave out --partition-of-key")
        if run.console.format.is_document:
            chosen_format = run.console.format.value
            raise UsageError(
                f"--format {chosen_format} shows everything at the end, so nothing could be committed; use jsonl"
            )
        run.authorize_change(ctx.command_path)
    if last is not None:
        other = {"--group": group, "--formatter": formatter, "--max-messages": max_records}
        if names := [name for name, value in other.items() if value is not None]:
            raise UsageError(f"--last cannot be used with {names[0]}")
    if formatter and (decode or mask or mask_regex or any(descriptors)):
        raise UsageError(
            "--formatter decodes internal topics; leave out --decode, --mask, --mask-regex and descriptors"
        )
    if formatter and run.console.format is Format.CSV:
        raise UsageError("--formatter shows objects within objects, which csv has no columns for; use json or yaml")
    if formatter and not run.console.format.is_document:
        run.console.format = Format.JSONL
    from kctl.client.properties.settings import fetch_limits  # noqa: PLC0415 - it imports the producer

    now_ms = round(time.time() * 1000)
    chosen = selecting(select)
    properties = run.consumer_properties()
    run.note_unused("consume", *(["--group"] if group is not None else []))
    if group is None and properties.get("group.id", "").strip():
        run.console.warn(
            f"group.id does not join a group: without --group {properties['group.id'].strip()}, all partitions are read"
            " and nothing is committed"
        )
    check_offset_range(from_, until)
    lower: OffsetSpec = from_
    reset = run.setting(ctx, "from_", "auto.offset.reset")
    if reset == "none" and group is None:
        raise ConfigError("auto.offset.reset", reset, "without a group there is no committed offset; add --from")
    if reset not in {str(from_), "none"}:
        lower = start_of_reset(reset, now_ms=now_ms)
    reading = Reading(
        topics=selection,
        lower=lower,
        upper=until,
        records_max=max_records,
        partitions=list_of(partition),
        follows=follow,
        group=group,
        assignor=assignor,
        reads_committed=run.setting(ctx, "isolation", "isolation.level") == "read_committed",
        formatter=formatter,
        formatter_text=formatter_text,
        presenting=presenting(
            run.console,
            properties,
            decode=decode,
            registry_url=schema_registry,
            described=descriptors.messages(),
            rules=MaskingRules() if formatter else masking_rules(properties).joined(mask, mask_regex),
        ),
        text=text,
        selecting=chosen,
        expected=expect,
        last=last,
        continues_after_truncation=on_truncation == "continue",
        limits=fetch_limits(properties, CHUNKS) if properties else CHUNKS,
        has_reset=reset != "none",
    )
    return run.on_cluster_concurrently(lambda client: read_topics(run, client, reading), ends_with_reader=True)


def start_of_reset(reset: str, *, now_ms: int) -> OffsetSpec:
    """Return where auto.offset.reset begins: earliest, latest or by_duration:DURATION."""
    if reset.startswith(BY_DURATION):
        return OffsetSpec(Anchor.TIME, max(0, now_ms - iso_duration_ms(reset.removeprefix(BY_DURATION))))
    return parse_offset(reset, now_ms=now_ms)
