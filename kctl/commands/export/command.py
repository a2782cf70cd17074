"""`kctl export`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.commands.export.engines import command_of, engine_settings
from kctl.commands.export.running import Rounds, run_export
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration, Offset, Pair, Partitions, Size, list_of
from kctl.commands.frame.options.values import check_offset_range
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.reading.options import registry_of
from kctl.commands.topics.list import selected_names
from kctl.commands.topics.options import TopicRegex
from kctl.errors import UsageError
from kctl.system.user_files import read_regular
from kctl.tables.commits.layout import PARQUET_MARK
from kctl.tables.engines.session import SparkSettings
from kctl.tables.exec.schema.column_types import ChangeFormat, Format
from kctl.tables.exec.schema.logical_types import columns_of_kind
from kctl.tables.exec.selection.column_layout import ColumnLayout
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_selection import HEADER_LIST, HeaderForm, RowSelection
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.target import parse_target
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.cluster_view import TopicSelection
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.plan import Compression, FileOptions, Isolation, OnCorruptBatch, OnDataLoss
from kctl.tables.plans.request import ExportRequest

if TYPE_CHECKING:
    from kctl.client.registry.schema import RegistrySettings

app = typer.Typer(add_completion=False)

EVERY_DEFAULT = "1m"
METRICS_LISTEN_DEFAULT = "127.0.0.1"


@app.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "kctl export orders --to /data/orders",
        "kctl export orders payments --to /data/shop --from @2026-11-01 --include-headers",
        "kctl export orders --to /data/orders --dry-run",
        "kctl export --topic-regex 'shop[.].*' --to /data/shop",
        "kctl export orders payments --to s3://lake/shop --table delta",
        "kctl export orders --to lake/ --table iceberg --value avro --schema-registry http://127.0.0.1:8081",
        "kctl export orders --to lake/ --value json --dead-letter-topic orders-bad",
        "kctl export orders --to lake/ --partition-by date --time-zone Europe/Berlin",
        "kctl export orders --to lake/ --value json --flatten '{path}' --rename value.id=order_id --sort-by value.id",
        "kctl export orders --to lake/ --table iceberg --value json --partition-by 'day(timestamp),bucket(16,id)'",
        "kctl export shop.customers --to lake/ --table delta --mode upsert --value json --change-format debezium",
        "kctl export orders --to s3://lake/orders --follow --every 5m --metrics-port 9309",
    ),
)
@shows_one("kctl.tables.exports.summary:ExportSummary", lines="kctl.tables.exports.summary:RangeRow")
def export(
    ctx: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics to export.", metavar="TOPIC")] = None,
    *,
    topic_regex: TopicRegex = None,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR", help="Folder or URL (s3://, gs://, az://) for the files and their commit log."
        ),
    ],
    partitions: Annotated[
        Partitions | None, typer.Option("--partitions", parser=Partitions, help="Only these partitions.  Default: all.")
    ] = None,
    start: Annotated[
        Offset,
        typer.Option(
            "--from",
            parser=Offset,
            help="Where to start partitions that are not in the folder yet: earliest, latest, N, +N, -N or @TIME.  "
            "Those that a topic gets after its first export start at their beginning.",
        ),
    ] = Offset("earliest"),
    until: Annotated[
        Offset, typer.Option("--until", parser=Offset, help="Where to stop, exclusive; the same forms as --from.")
    ] = Offset("latest"),
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation-level", help="Whether to skip aborted transactions and stop before open ones."),
    ] = "read_committed",
    include_headers: Annotated[
        bool, typer.Option("--include-headers", help="Add the column `headers`, with all of them in a list.")
    ] = False,
    headers: Annotated[
        str | None,
        typer.Option(
            "--headers",
            metavar="FORM",
            help="Form of the column `headers`: list, map (of several headers with a name the last one counts) or "
            "columns:NAME,NAME (a struct of these).  Fixed by the first run.",
        ),
    ] = None,
    compression: Annotated[
        Literal["zstd", "snappy", "none"], typer.Option("--compression", help="Codec of the files.")
    ] = "zstd",
    target_file_size: Annotated[
        Size, typer.Option("--target-file-size", parser=Size.within("1"), help="Approximate size of a file.")
    ] = Size("256m"),
    on_data_loss: Annotated[
        Literal["fail", "warn"],
        typer.Option(
            "--on-data-loss",
            help="What to do if records were deleted before their export, a log was truncated after it, a topic was "
            "recreated, or a file is missing: fail, or warn and go on where the records are.",
        ),
    ] = "fail",
    on_corrupt_batch: Annotated[
        Literal["fail", "skip"],
        typer.Option(
            "--on-corrupt-batch",
            help="What to do with batches that cannot be read, for example because their checksum is wrong: fail, or "
            "leave out their offsets, which are named and recorded in the commit.",
        ),
    ] = "fail",
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Accept the data files of an export whose commit log (DIR/_kctl) is missing."),
    ] = False,
    table: Annotated[
        Literal["parquet", "iceberg", "delta"],
        typer.Option("--table", help="What to publish: folders of Parquet files, Iceberg tables or Delta tables."),
    ] = "parquet",
    one_table: Annotated[
        bool,
        typer.Option(
            "--one-table",
            help="One table for all topics, in DIR, or the folder DIR/data of Parquet files.  "
            "Default: a table per topic, in DIR/TOPIC.",
        ),
    ] = False,
    partition_by: Annotated[
        str,
        typer.Option(
            "--partition-by",
            metavar="date|hour|FIELD|TRANSFORM(FIELD),...",
            help="Divide the files by day or hour of the timestamps, by fields of the decoded values, or by year, "
            "month, day, hour(FIELD), bucket(N,FIELD) or truncate(N,FIELD) of fields or of `timestamp`.",
        ),
    ] = "none",
    time_zone: Annotated[
        str,
        typer.Option("--time-zone", metavar="NAME", help="Of days and hours of --partition-by, as Europe/Berlin."),
    ] = "UTC",
    select: Annotated[
        str,
        typer.Option(
            "--select",
            "--columns",
            metavar="COLUMN,...",
            help="Only these columns, also fields such as value.id or patterns such as value.*_id, besides topic, "
            "partition and offset.  Fixed by the first run.",
        ),
    ] = "",
    rename: Annotated[
        list[Pair] | None,
        typer.Option(
            "--rename",
            parser=Pair,
            metavar="OLD=NEW",
            help="Another name for a column or field, as value.customer.id=customer.  Fixed by the first run.",
        ),
    ] = None,
    flatten: Annotated[
        str,
        typer.Option(
            "--flatten",
            metavar="TEMPLATE",
            help="Fields of decoded keys and values as columns of their own, whose names have {path} (customer_name "
            "of value.customer.name), {path:SEPARATOR}, {name} or {column}.  Fixed by the first run.",
        ),
    ] = "",
    sort_by: Annotated[
        str,
        typer.Option(
            "--sort-by",
            metavar="COLUMN,...",
            help="Sort the rows of each file, and of those that a compaction merges.  Fixed by the first run.",
        ),
    ] = "",
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help='Only records for which this is true, such as "value.amount > 100 AND key IS NOT NULL".',
        ),
    ] = "",
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="NAME",
            help="Iceberg: a catalogue configured for pyiceberg (.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__*).  "
            "Default: a SQLite database in DIR/_kctl.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="Iceberg: namespace of the tables.  Default: kafka."),
    ] = None,
    value: Annotated[
        Literal["binary", "string", "json", "avro", "protobuf", "variant"],
        typer.Option(
            "--value",
            help="What values are: bytes, or text, JSON, Avro or Protobuf that is decoded into columns, or JSON of any "
            "kind as a variant (Parquet only).",
        ),
    ] = "binary",
    key: Annotated[
        Literal["binary", "string", "json", "avro", "protobuf", "variant"],
        typer.Option("--key", help="What keys are; as --value."),
    ] = "binary",
    value_schema: Annotated[
        str,
        typer.Option(
            "--value-schema",
            metavar="FILE|registry[:SUBJECT]",
            help="Schema of values: a file with an Avro schema or JSON Schema, or all versions of a subject of the "
            "schema registry.  Default: inferred for JSON, else registry.",
        ),
    ] = "",
    key_schema: Annotated[
        str,
        typer.Option("--key-schema", metavar="FILE|registry[:SUBJECT]", help="Schema of keys; as --value-schema."),
    ] = "",
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="URL of the schema registry.  Default: schema.registry.url in --command-config.",
        ),
    ] = None,
    max_depth: Annotated[
        int | None,
        typer.Option(
            "--max-depth",
            metavar="N",
            min=1,
            help="Levels of fields with columns, 1 for those of the value only: what is below is JSON, in value_rest "
            "for --value json, and in a column of text for --value avro.  Default: all.",
        ),
    ] = None,
    which_logical: Annotated[
        Literal["portable", "all"],
        typer.Option(
            "--logical-types",
            help="Logical types of Avro with columns of their own: those that all usual readers have, or all of the "
            "format of the table, such as times of the day and nanoseconds, which Spark does not read.",
        ),
    ] = "portable",
    keep_raw: Annotated[
        bool,
        typer.Option(
            "--keep-raw",
            help="Keep the bytes of decoded keys and values too, in the columns key_raw and value_raw, so that "
            "'kctl tables import' can write them back.  Fixed by the first run.",
        ),
    ] = False,
    on_bad_record: Annotated[
        Literal["dead-letter", "fail"] | None,
        typer.Option(
            "--on-bad-record",
            help="What to do with records that cannot be decoded, or not be in a partition: keep them in "
            "DIR/_dead_letters, or fail.  Default: dead-letter.",
        ),
    ] = None,
    max_misfits: Annotated[
        int | None,
        typer.Option(
            "--max-misfits",
            metavar="N",
            min=0,
            help="Commit nothing if more values of a run's records have another type than their column, and so would "
            "be in value_rest or key_rest.  Default: any number, which is reported by column.",
        ),
    ] = None,
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(
            "--dead-letter-topic",
            metavar="TOPIC",
            help="With --on-bad-record dead-letter: an existing topic that gets these records too, each once, after "
            "the commit.",
        ),
    ] = None,
    mode: Annotated[
        Literal["append", "upsert"],
        typer.Option(
            "--mode",
            help="What the table has: a row for each record, or the current row of each key, without deleted ones.",
        ),
    ] = "append",
    key_fields: Annotated[
        str,
        typer.Option(
            "--key-fields",
            metavar="FIELD,...",
            help="With --mode upsert: fields of the values that are the key, as id.  Default: the key of the record.",
        ),
    ] = "",
    order_by: Annotated[
        str,
        typer.Option(
            "--order-by",
            metavar="FIELD",
            help="With --mode upsert: the row with the highest value of this field, or of timestamp, is the current "
            "one.  Default: the one with the highest offset.",
        ),
    ] = "",
    change_format: Annotated[
        Literal["none", "debezium"],
        typer.Option(
            "--change-format",
            help="With --mode upsert: what values are: rows, of which null deletes one, or changes of Debezium, as "
            "envelopes or unwrapped with __deleted.",
        ),
    ] = "none",
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="With --mode upsert: keep earlier rows of each key too, in the columns valid_from, valid_to and "
            "is_current (a slowly changing dimension of type 2).  Fixed by the first run.",
        ),
    ] = False,
    engine: Annotated[
        Literal["local", "spark"],
        typer.Option("--engine", help="What runs the tasks: processes of this machine, or Apache Spark."),
    ] = "local",
    processes: Annotated[
        int | None,
        typer.Option("--processes", metavar="N", help="Engine local: concurrent tasks.  Default: one per processor."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Engine spark: local[*] (default), local[N], spark://HOST:PORT, yarn or k8s://URL.",
        ),
    ] = None,
    deploy_mode: Annotated[
        Literal["client", "cluster"] | None,
        typer.Option(
            "--deploy-mode",
            help="Engine spark: where the driver runs, on this machine (client, default) or in the cluster, "
            "with --master yarn or k8s://URL.",
        ),
    ] = None,
    conf: Annotated[
        list[Pair] | None, typer.Option("--conf", parser=Pair, help="Engine spark: set a Spark property.")
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option("--packages", metavar="GROUP:NAME:VERSION[,...]", help="Engine spark: Maven packages to add."),
    ] = None,
    archives: Annotated[
        str | None,
        typer.Option(
            "--archives",
            metavar="FILE[#FOLDER][,...]",
            help="Engine spark: archives to unpack where tasks run, such as a Python environment.",
        ),
    ] = None,
    py_files: Annotated[
        str | None,
        typer.Option("--py-files", metavar="FILE[,...]", help="Engine spark: Python files and zips for tasks."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be exported, and the spark-submit command; starts no engine."),
    ] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress on stderr.")] = False,
    follows: Annotated[
        bool, typer.Option("--follow", help="Repeat the export until SIGINT or SIGTERM; errors are retried.")
    ] = False,
    every: Annotated[
        Duration | None,
        typer.Option(
            "--every",
            parser=Duration.within("100ms", "1d"),
            help=f"With --follow: time between the starts of two rounds.  Default: {EVERY_DEFAULT}.",
        ),
    ] = None,
    maintain_every: Annotated[
        Duration | None,
        typer.Option(
            "--maintain-every",
            parser=Duration.within("1s", "30d"),
            help="With --follow: time after which 'kctl tables maintain' is carried out between two rounds, with 7 "
            "days of snapshots and replaced files.  Default: never.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="N",
            help="With --follow: port of an HTTP endpoint with metrics for Prometheus; 0 for a free one.",
            min=0,
            max=65535,
        ),
    ] = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            "--metrics-listen",
            metavar="HOST",
            help=f"Address on which that endpoint listens.  Default: {METRICS_LISTEN_DEFAULT}.",
        ),
    ] = None,
) -> ExitStatus:
    """Export topics to Parquet files or to Iceberg or Delta tables, each record exactly once.

    The first run into a folder exports all records, each further run the new ones.  If a run is interrupted, the next
    one completes it.  The columns are those of Spark's Kafka source; with --value and --key, values and keys are
    decoded into columns.

    With --mode upsert, the table has one row per key: that of its last record, unless that deletes it.  Each run
    applies the changes since the last one.

    The exit status is 3 if records were deleted before they were exported, if the topic lost records that were
    exported, as by an unclean leader election, or if exported files are missing (see --on-data-loss), or if a record
    cannot be decoded (see --on-bad-record).  It is 5 if another export into the folder is running, or if the folder
    contains files that are not in its commit log (see --adopt).

    Of several topics and partitions, those that can be exported are.  Each other topic is named with its error, and the
    exit status is 1, or 3 if nothing but records of it are missing or cannot be decoded.

    With --follow, the first SIGINT or SIGTERM ends the command after the current commit with status 0; a second one
    ends it at once.  An error of the first round ends it; later rounds are repeated after errors of the network, of
    brokers, of processes and of disks.

    Both engines run the same tasks and commit to the same log; a folder may be exported to by either.  Engine local
    requires the extra 'export' of the package kctl-kafka; engine spark the extra 'spark', and Java 17 or later.  Object
    stores require the extra 'objectstore', tables the extra 'iceberg' or 'delta', Avro and
    Protobuf the extra 'registry'.
    """
    run: Invocation = ctx.obj
    run.console.outlive_reader()
    names = selected_names(run, topics, topic_regex, None) or []
    check_offset_range(start, until)
    run.consumer_properties()
    run.note_unused("export")
    level = Isolation(run.setting(ctx, "isolation", "isolation.level"))
    upsert = _upsert(mode, key_fields, order_by, change_format, has_history=history)
    changes = upsert.changes if upsert else ChangeFormat.NONE
    if changes is not ChangeFormat.NONE:
        if value not in {"json", "avro", "protobuf"}:
            raise UsageError("--change-format debezium requires --value json, avro or protobuf")
        # Tombstones have nothing but a key, which Debezium writes in the same format.
        key = value if key == "binary" and not key_schema else key
    decoding = DecodingOptions(
        key=_field("key", key, key_schema, changes),
        value=_field("value", value, value_schema, changes),
        keeps_bad=on_bad_record != "fail",
        levels=max_depth,
        logical_columns=columns_of_kind(table, has_all=which_logical == "all"),
    )
    by = Partitioning(partition_by.replace(" ", ""), time_zone)
    rows = RowSelection(tuple(name.strip() for name in select.split(",")) if select else (), where.strip())
    if on_bad_record and not decoding.are_typed and not by and not upsert:
        raise UsageError("--on-bad-record is an option of --partition-by and of --value and --key other than binary")
    request = ExportRequest(
        target=parse_target(to),
        selection=TopicSelection(
            topics=sorted(names),
            start=start,
            until=until,
            isolation=level,
            partitions=list_of(partitions),
        ),
        client=run.client_settings(),
        options=FileOptions(include_headers or headers is not None, Compression(compression), level),
        target_file_bytes=target_file_size,
        on_data_loss=OnDataLoss(on_data_loss),
        on_corrupt_batch=OnCorruptBatch(on_corrupt_batch),
        adopts=adopt,
        engine=engine_settings(run, ctx.params, engine, target=to, decoding=decoding),
        table=TableOptions(
            kind=TableKind(table),
            is_shared=one_table,
            partition_by=by,
            rows=rows,
            layout=_layout(flatten, rename, sort_by),
            headers=HeaderForm.parse(headers) if headers else HEADER_LIST,
            upsert=upsert,
            keeps_raw=keep_raw,
            catalog=catalog or None,
            namespace=namespace or "",
        ),
        decoding=decoding,
        misfits_max=max_misfits,
        dead_letter_topic=dead_letter_topic or "",
        registry=_registry(run, decoding, schema_registry),
    )
    if adopt and request.table.mark != PARQUET_MARK:
        raise UsageError(
            "--adopt is an option of --table parquet without --one-table, --partition-by, --select, --where, --rename, "
            "--flatten, --sort-by, --headers and --keep-raw"
        )
    if follows and dry_run:
        raise UsageError("--follow and --dry-run exclude each other")
    for name, given in (
        ("every", every),
        ("maintain-every", maintain_every),
        ("metrics-port", metrics_port),
        ("metrics-listen", metrics_listen),
    ):
        if given is not None and not follows:
            raise UsageError(f"--{name} is an option of --follow")
    if follows and run.console.format.is_document:
        raise UsageError(
            f"--format {run.console.format.value} is one document, which --follow never ends; use --format jsonl"
        )
    every_ms = Duration(EVERY_DEFAULT) if every is None else every
    host = metrics_listen or METRICS_LISTEN_DEFAULT
    rounds = Rounds(topic_regex, every_ms, host, metrics_port, maintain_every) if follows else None
    command = command_of(run, ctx, request, request.engine) if isinstance(request.engine, SparkSettings) else []
    return run_export(run, request, command, rounds, dry_run=dry_run, show_progress=not no_progress)


def _layout(flatten: str, rename: Sequence[Pair] | None, sort_by: str) -> ColumnLayout:
    names = tuple(name.strip() for name in sort_by.split(",")) if sort_by else ()
    return ColumnLayout(flatten, tuple((old, new) for old, new in rename or ()), names)


def _upsert(
    mode: str, key_fields: str, order_by: str, change_format: str, *, has_history: bool
) -> UpsertOptions | None:
    """Return how the table keeps the current state; None if it has all records.  Raises UsageError."""
    if mode == "upsert":
        keys = tuple(name.strip() for name in key_fields.split(",")) if key_fields else ()
        return UpsertOptions(keys, order_by.strip(), ChangeFormat(change_format), has_history)
    given = {
        "--key-fields": key_fields,
        "--order-by": order_by,
        "--change-format": change_format != "none",
        "--history": has_history,
    }
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name} is an option of --mode upsert")
    return None


def _field(name: str, format_: str, schema: str, changes: ChangeFormat) -> FieldOptions:
    """Return the options of keys or values, with the file read.  Raises UsageError."""
    text = ""
    if schema and not FieldOptions.is_in_registry(schema):
        try:
            text = read_regular(schema).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--{name}-schema {schema}: {getattr(error, 'strerror', None) or error}") from None
    return FieldOptions(name=name, format=Format(format_), schema=schema, text=text, changes=changes)


def _registry(run: Invocation, decoding: DecodingOptions, url: str | None) -> RegistrySettings | None:
    """Return the settings of the registry; raise UsageError if it is missing, or not needed."""
    if not any(field.needs_registry for field in decoding.fields):
        if url is not None:
            raise UsageError(
                "--schema-registry requires --value or --key avro or protobuf, or a schema of the registry"
            )
        return None
    return registry_of(run.client_properties(), url)
