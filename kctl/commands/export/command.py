"""`kctl export`, and `kctl spark export`, which differ in their default engine."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.client.registry.schema import RegistryUnreachable, SchemaError
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.registry_access import registry_of
from kctl.commands.shown import shows_one
from kctl.commands.values import parse_offset, parse_pairs, parse_partitions, parse_size
from kctl.console import Column
from kctl.errors import UsageError
from kctl.input_files import read_regular
from kctl.operating_system import usable_processors
from kctl.quantities import counted
from kctl.server.clock import SystemClock
from kctl.spark.cluster_view import TopicSelection
from kctl.spark.commit_log import LostRace
from kctl.spark.decodings import DecodingOptions, FieldOptions
from kctl.spark.engine import EngineSettings
from kctl.spark.exec.column_types import Format
from kctl.spark.exec.files import Locked
from kctl.spark.exec.outcome import BadRecords, DataLoss
from kctl.spark.exec.partitioning import PartitionBy
from kctl.spark.exec.target import PackageMissing, parse_target
from kctl.spark.export import Exporter, ExportRequest, Listener
from kctl.spark.inventory import UnknownFiles
from kctl.spark.local_pool import LocalSettings
from kctl.spark.pace import Pace
from kctl.spark.plan import Compression, FileOptions, Isolation, OnDataLoss
from kctl.spark.session import SparkMissing, SparkSettings
from kctl.spark.summary import (
    ExportSummary,
    RangeRow,
    bad_reasons,
    columns_of,
    document,
    planned_rows,
    rows_of,
    sentence,
)
from kctl.spark.tables.kinds import TableKind, TableOptions

if TYPE_CHECKING:
    from kctl.client.registry.settings import RegistrySettings
    from kctl.console import Progress
    from kctl.spark.export import Origin
    from kctl.spark.job import JobProgress
    from kctl.spark.plan import Plan

app = typer.Typer(add_completion=False)

PROCESSES_MAX = 256

COLUMNS = (
    Column("batch", numeric=True),
    Column("topic"),
    Column("partition", numeric=True),
    Column("start", numeric=True),
    Column("end", numeric=True),
    Column("records", numeric=True),
    Column("bytes_out", numeric=True),
    Column("files", numeric=True),
    Column("lost", numeric=True),
    Column("bad", numeric=True),
    Column("status"),
)


@app.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "kctl export orders --to /data/orders",
        "kctl export orders payments --to /data/shop --from @2026-11-01 --include-headers",
        "kctl export orders --to /data/orders --dry-run",
        "kctl export orders payments --to s3://lake/shop --table delta",
        "kctl export orders --to lake/ --table iceberg --value avro --schema-registry http://127.0.0.1:8081",
        "kctl export orders --to lake/ --value json --on-bad-record dead-letter",
    ),
)
@shows_one("kctl.spark.summary:ExportSummary", lines="kctl.spark.summary:RangeRow")
def export(
    ctx: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Topics to export.", metavar="TOPIC")],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR", help="Folder or URL (s3://, gs://, az://) for the files and their commit log."
        ),
    ],
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="N,N-N", help="Only these partitions.  Default: all.")
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="OFFSET",
            help="Where to start partitions that are not in the folder yet: earliest, latest, N, +N, -N or @TIME.",
        ),
    ] = "earliest",
    until: Annotated[
        str, typer.Option("--until", metavar="OFFSET", help="Where to stop, exclusive; the same forms as --from.")
    ] = "latest",
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        typer.Option("--isolation", help="Whether to skip aborted transactions and stop before open ones."),
    ] = "read_committed",
    include_headers: Annotated[bool, typer.Option("--include-headers", help="Add the column `headers`.")] = False,
    compression: Annotated[
        Literal["zstd", "snappy", "none"], typer.Option("--compression", help="Codec of the files.")
    ] = "zstd",
    target_file_size: Annotated[
        str, typer.Option("--target-file-size", metavar="SIZE", help="Approximate size of a file.")
    ] = "256m",
    on_data_loss: Annotated[
        Literal["fail", "warn"],
        typer.Option(
            "--on-data-loss",
            help="What to do if records were deleted before their export, a topic was recreated, or a file is missing.",
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
            "--one-table", help="One table for all topics, in DIR.  Default: a table per topic, in DIR/TOPIC."
        ),
    ] = False,
    partition_by: Annotated[
        Literal["none", "date", "hour"],
        typer.Option("--partition-by", help="Iceberg and Delta: a file has records of one day or hour (UTC)."),
    ] = "none",
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
        Literal["binary", "string", "json", "avro", "protobuf"],
        typer.Option(
            "--value", help="What values are: bytes, or text, JSON, Avro or Protobuf that is decoded into columns."
        ),
    ] = "binary",
    key: Annotated[
        Literal["binary", "string", "json", "avro", "protobuf"],
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
    on_bad_record: Annotated[
        Literal["fail", "dead-letter"],
        typer.Option(
            "--on-bad-record",
            help="What to do with records that cannot be decoded: fail, or keep them in DIR/_dead_letters.",
        ),
    ] = "fail",
    engine: Annotated[
        Literal["local", "spark"] | None,
        typer.Option(
            "--engine",
            help="What runs the tasks: processes of this machine, or Apache Spark.  "
            "Default: local for 'kctl export', spark for 'kctl spark export'.",
        ),
    ] = None,
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
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Engine spark: set a Spark property.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be exported; starts no engine.")] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress on stderr.")] = False,
) -> ExitStatus:
    """Export topics to Parquet files or to Iceberg or Delta tables, each record exactly once.

    The first run into a folder exports all records, each further run the new ones.  If a run is interrupted, the next
    one completes it.  The columns are those of Spark's Kafka source; with --value and --key, values and keys are
    decoded into columns.

    The exit status is 3 if records were deleted before they were exported, or if exported files are missing (see
    --on-data-loss), or if a record cannot be decoded (see --on-bad-record).  It is 5 if another export into the folder
    is running, or if the folder contains files that are not in its commit log (see --adopt).

    Both engines run the same tasks and commit to the same log; a folder may be exported to by either.  Engine local
    requires the extra 'export' of the package kctl-kafka; engine spark the extra 'spark', and Java 17 or later.  Object
    stores require the extra 'objectstore', tables the extra 'iceberg' or 'delta', Avro and
    Protobuf the extra 'registry'.
    """
    run: Invocation = ctx.obj
    now_ms = round(time.time() * 1000)
    level = Isolation(isolation)
    decoding = DecodingOptions(
        key=_field("key", key, key_schema),
        value=_field("value", value, value_schema),
        keeps_bad=on_bad_record == "dead-letter",
    )
    if decoding.keeps_bad and not decoding.are_typed:
        raise UsageError("--on-bad-record is an option of --value and --key other than binary")
    request = ExportRequest(
        target=parse_target(to),
        selection=TopicSelection(
            topics=sorted(set(topics)),
            start=parse_offset(start, now_ms=now_ms),
            until=parse_offset(until, now_ms=now_ms),
            isolation=level,
            partitions=parse_partitions(partitions),
        ),
        client=run.client_settings(),
        options=FileOptions(include_headers, Compression(compression), level),
        target_file_bytes=parse_size(target_file_size),
        on_data_loss=OnDataLoss(on_data_loss),
        adopts=adopt,
        engine=_engine(engine or _default_engine(ctx), processes, master, conf),
        table=TableOptions(
            kind=TableKind(table),
            is_shared=one_table,
            partition_by=PartitionBy(partition_by),
            catalog=catalog or None,
            namespace=namespace or "",
        ),
        decoding=decoding,
        registry=_registry(run, decoding, schema_registry),
    )
    if adopt and request.table.kind is not TableKind.PARQUET:
        raise UsageError("--adopt is an option of --table parquet: tables contain their own commits")
    if request.target_file_bytes < 1:
        raise UsageError("--target-file-size must be greater than 0")
    return _run(run, request, dry_run=dry_run, show_progress=not no_progress)


def _field(name: str, format_: str, schema: str) -> FieldOptions:
    """The options of keys or values, with the file read.  Raises UsageError."""
    text = ""
    if schema and not FieldOptions.is_in_registry(schema):
        try:
            text = read_regular(schema).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--{name}-schema {schema}: {getattr(error, 'strerror', None) or error}") from None
    return FieldOptions(name=name, format=Format(format_), schema=schema, text=text)


def _registry(run: Invocation, decoding: DecodingOptions, url: str | None) -> RegistrySettings | None:
    """Raises UsageError if the registry is missing, or not needed."""
    if not any(one.needs_registry for one in decoding.fields):
        if url is not None:
            raise UsageError(
                "--schema-registry requires --value or --key avro or protobuf, or a schema of the registry"
            )
        return None
    return registry_of(run.client_properties(), url)


def _default_engine(ctx: typer.Context) -> str:
    """The engine that the name of the command implies."""
    return "spark" if ctx.parent is not None and ctx.parent.info_name == "spark" else "local"


def _engine(name: str, processes: int | None, master: str | None, conf: list[str] | None) -> EngineSettings:
    """Raises UsageError for invalid options, and for options of the other engine."""
    if name == "spark":
        if processes is not None:
            raise UsageError("--processes is an option of --engine local; for Spark use --master local[N]")
        return SparkSettings(master or "local[*]", parse_pairs(conf, "--conf"))
    if master is not None or conf:
        raise UsageError(f"{'--conf' if master is None else '--master'} is an option of --engine spark")
    if processes is not None and not 1 <= processes <= PROCESSES_MAX:
        raise UsageError(f"--processes must be 1 to {PROCESSES_MAX}")
    return LocalSettings(processes or usable_processors())


def _run(run: Invocation, request: ExportRequest, *, dry_run: bool, show_progress: bool) -> ExitStatus:
    """Runs or plans the export; returns the exit status for errors that only exports have."""
    try:
        return _show_plan(run, request) if dry_run else _export(run, request, show_progress=show_progress)
    except DataLoss as error:
        run.console.fail("DATA_LOSS", f"{error}; --on-data-loss=warn exports the records that exist")
        return ExitStatus.UNMET
    except BadRecords as error:
        run.console.fail("BAD_RECORDS", f"{error}; --on-bad-record=dead-letter keeps such records in DIR/_dead_letters")
        return ExitStatus.UNMET
    except (SchemaError, RegistryUnreachable) as error:
        run.console.fail("SCHEMA_REGISTRY", str(error))
        return ExitStatus.FAILED
    except SparkMissing as error:
        run.console.fail("SPARK_MISSING", str(error))
        return ExitStatus.FAILED
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except (Locked, LostRace, UnknownFiles) as error:
        raise Refused(str(error)) from None


def _show_plan(run: Invocation, request: ExportRequest) -> ExitStatus:

    plan, is_pending, warnings = Exporter(request, SystemClock()).plan()
    for warning in warnings:
        run.console.warn(warning)
    rows = planned_rows(plan, is_pending=is_pending) if plan else []
    for column in columns_of([plan] if plan else []):
        run.console.note(f"column of {column.topic}: {column.name} {column.type}")
    if plan is None:
        run.console.note("nothing new")
    elif is_pending:
        run.console.note(f"batch {plan.batch} was interrupted; the next run completes it before it exports new records")
    _show(run, document(request, rows, None, plan), rows)
    return ExitStatus.DONE


def _export(run: Invocation, request: ExportRequest, *, show_progress: bool) -> ExitStatus:

    with contextlib.ExitStack() as stack:
        notes = _ProgressNotes(run, stack, show_progress=show_progress)
        report = Exporter(request, SystemClock()).run(Listener(notes.on_plan, notes.on_progress))
    for warning in report.warnings:
        run.console.warn(warning)
    for reason, count in bad_reasons(report).items():
        undecoded = counted(count, "record could not be decoded and is", "records could not be decoded and are")
        run.console.warn(f"{undecoded} in {request.target}/_dead_letters: {reason}")
    rows = rows_of(report)
    _show(run, document(request, rows, report), rows)
    run.console.note(sentence(rows, report))
    return ExitStatus.DONE


class _ProgressNotes:
    """Notes and progress on stderr while an export runs."""

    def __init__(self, run: Invocation, stack: contextlib.ExitStack, *, show_progress: bool) -> None:
        self._run = run
        self._stack = stack
        self._is_shown = show_progress
        self._progress: Progress | None = None
        self._pace: Pace | None = None

    def on_plan(self, plan: Plan, origin: Origin) -> None:
        doing = {"recovered": "finishing interrupted", "adopted": "adopting files as"}.get(origin, "exporting")
        self._run.console.note(
            f"{doing} batch {plan.batch}: {counted(plan.offset_count, 'offset')}"
            f" of {counted(len(plan.ranges), 'partition')} into {counted(plan.file_count, 'file')}"
        )
        if self._is_shown:
            progress = self._run.console.progress("exported", plan.offset_count, unit="offsets")
            self._progress = self._stack.enter_context(progress)
            self._pace = Pace(plan.offset_count, start_s=time.monotonic())

    def on_progress(self, done: JobProgress) -> None:
        if self._progress is not None and self._pace is not None:
            offsets, note = self._pace.observe(done, now_s=time.monotonic())
            self._progress.update(offsets, note=note)


def _show(run: Invocation, summary: ExportSummary, rows: list[RangeRow]) -> None:
    if run.console.format.is_document:
        run.console.show_one(summary)
    else:
        run.console.show(COLUMNS, rows)
