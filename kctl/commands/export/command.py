"""`kctl export`."""

from __future__ import annotations

import contextlib
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.client.registry.schema import RegistryUnreachable, SchemaError
from kctl.commands.export.engines import command_of, engine_settings
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration, Offset, Pair, Partitions, Size, list_of
from kctl.commands.frame.options.values import check_offset_range
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.reading.options import registry_of
from kctl.commands.reading.searches import NamePattern
from kctl.commands.topics.list import selected_names
from kctl.commands.topics.options import TopicRegex
from kctl.errors import KctlError, UsageError
from kctl.output.quantities import counted
from kctl.server.loop.tasks import SystemClock
from kctl.system.user_files import read_regular
from kctl.tables.commits.commit_log import BrokenExportFolder, LostRace
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.commits.layout import PARQUET_MARK
from kctl.tables.engines.engine import Pace, require_engine
from kctl.tables.engines.session import SparkMissing, SparkSettings, require_spark
from kctl.tables.engines.submission import submit, without_secrets
from kctl.tables.exec.outcome import BadRecords, CorruptRecords, DataLoss
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_selection import HEADER_LIST, HeaderForm, RowSelection
from kctl.tables.exec.targets.files import Locked
from kctl.tables.exec.targets.target import PackageMissing, parse_target
from kctl.tables.exports.cluster_reads import topic_names
from kctl.tables.exports.export import Exporter, Listener
from kctl.tables.exports.summary import (
    ExportSummary,
    RangeRow,
    bad_reasons,
    columns_of,
    document,
    planned_rows,
    rows_of,
    sentence,
)
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.cluster_view import TopicSelection
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.following import FollowState
from kctl.tables.plans.plan import Compression, FileOptions, Isolation, OnCorruptBatch, OnDataLoss
from kctl.tables.plans.request import ExportRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.client.registry.schema import RegistrySettings
    from kctl.output.console import Progress
    from kctl.tables.engines.job import JobProgress
    from kctl.tables.exports.export import ExportReport, Origin
    from kctl.tables.plans.plan import Plan

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
        "kctl export orders --to lake/ --value json --on-bad-record dead-letter --dead-letter-topic orders-bad",
        "kctl export orders --to lake/ --partition-by date --time-zone Europe/Berlin",
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
            metavar="date|hour|FIELD",
            help="Divide the files by day or hour of the timestamps, or by a field of the decoded values.",
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
            metavar="COLUMN,...",
            help="Only these columns, also fields such as value.id, besides topic, partition and offset.",
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
    on_bad_record: Annotated[
        Literal["fail", "dead-letter"],
        typer.Option(
            "--on-bad-record",
            help="What to do with records that cannot be decoded, or not be in a partition: fail, or keep them in "
            "DIR/_dead_letters.",
        ),
    ] = "fail",
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(
            "--dead-letter-topic",
            metavar="TOPIC",
            help="With --on-bad-record dead-letter: an existing topic that gets these records too, each once, after "
            "the commit.",
        ),
    ] = None,
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
    decoding = DecodingOptions(
        key=_field("key", key, key_schema),
        value=_field("value", value, value_schema),
        keeps_bad=on_bad_record == "dead-letter",
    )
    by = Partitioning(partition_by, time_zone)
    rows = RowSelection(tuple(name.strip() for name in select.split(",")) if select else (), where.strip())
    if decoding.keeps_bad and not decoding.are_typed and not by:
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
            headers=HeaderForm.parse(headers) if headers else HEADER_LIST,
            catalog=catalog or None,
            namespace=namespace or "",
        ),
        decoding=decoding,
        dead_letter_topic=dead_letter_topic or "",
        registry=_registry(run, decoding, schema_registry),
    )
    if adopt and request.table.mark != PARQUET_MARK:
        raise UsageError(
            "--adopt is an option of --table parquet without --one-table, --partition-by, --select, --where, --headers"
        )
    if follows and dry_run:
        raise UsageError("--follow and --dry-run exclude each other")
    for name, given in (("every", every), ("metrics-port", metrics_port), ("metrics-listen", metrics_listen)):
        if given is not None and not follows:
            raise UsageError(f"--{name} is an option of --follow")
    if follows and run.console.format.is_document:
        raise UsageError(
            f"--format {run.console.format.value} is one document, which --follow never ends; use --format jsonl"
        )
    every_ms = Duration(EVERY_DEFAULT) if every is None else every
    host = metrics_listen or METRICS_LISTEN_DEFAULT
    rounds = _Rounds(topic_regex, every_ms, host, metrics_port) if follows else None
    command = command_of(run, ctx, request, request.engine) if isinstance(request.engine, SparkSettings) else []
    return _run(run, request, command, rounds, dry_run=dry_run, show_progress=not no_progress)


class _Rounds(NamedTuple):
    """The options of --follow."""

    topic_regex: str | None
    """Selects the topics of each round; None for those of the request."""
    every_ms: int
    metrics_host: str
    metrics_port: int | None


def _field(name: str, format_: str, schema: str) -> FieldOptions:
    """Return the options of keys or values, with the file read.  Raises UsageError."""
    text = ""
    if schema and not FieldOptions.is_in_registry(schema):
        try:
            text = read_regular(schema).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--{name}-schema {schema}: {getattr(error, 'strerror', None) or error}") from None
    return FieldOptions(name=name, format=Format(format_), schema=schema, text=text)


def _registry(run: Invocation, decoding: DecodingOptions, url: str | None) -> RegistrySettings | None:
    """Return the settings of the registry; raise UsageError if it is missing, or not needed."""
    if not any(field.needs_registry for field in decoding.fields):
        if url is not None:
            raise UsageError(
                "--schema-registry requires --value or --key avro or protobuf, or a schema of the registry"
            )
        return None
    return registry_of(run.client_properties(), url)


def _run(
    run: Invocation,
    request: ExportRequest,
    command: list[str],
    rounds: _Rounds | None,
    *,
    dry_run: bool,
    show_progress: bool,
) -> ExitStatus:
    """Run or plan the export; return the exit status for errors that only exports have."""
    try:
        if dry_run:
            if command:
                run.console.note(shlex.join(without_secrets(command)))
            return _show_plan(run, request)
        if isinstance(request.engine, SparkSettings) and request.engine.is_cluster_mode:
            require_spark()
            if status := submit(command):
                run.console.fail("SPARK_SUBMIT", f"spark-submit ended with status {status}; its output has the reason")
            return ExitStatus.FAILED if status else ExitStatus.DONE
        if rounds is not None:
            _follow(run, request, rounds, show_progress=show_progress)
            return ExitStatus.DONE
        return _export(run, request, show_progress=show_progress)
    except DataLoss as error:
        run.console.fail("DATA_LOSS", f"{error}; --on-data-loss=warn exports the records that exist")
        return ExitStatus.UNMET
    except BadRecords as error:
        run.console.fail("BAD_RECORDS", f"{error}; --on-bad-record=dead-letter keeps such records in DIR/_dead_letters")
        return ExitStatus.UNMET
    except CorruptRecords as error:
        run.console.fail("CORRUPT_RECORDS", f"{error}{_CORRUPT_HINT}")
        return ExitStatus.FAILED
    except (SchemaError, RegistryUnreachable) as error:
        run.console.fail("SCHEMA_REGISTRY", str(error))
        return ExitStatus.FAILED
    except SparkMissing as error:
        run.console.fail("SPARK_MISSING", str(error))
        return ExitStatus.FAILED
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except (BrokenExportFolder, Locked, LostRace, UnknownFiles) as error:
        raise Refused(str(error)) from None


def _show_plan(run: Invocation, request: ExportRequest) -> ExitStatus:

    exporter = Exporter(request, SystemClock())
    plan, is_pending, warnings = exporter.plan()
    for warning in [*warnings, *_failures(exporter.failed)]:
        run.console.warn(warning)
    rows = planned_rows(plan, is_pending=is_pending) if plan else []
    for column in columns_of([plan] if plan else []):
        run.console.note(f"column of {column.topic}: {column.name} {column.type}")
    if plan is None:
        run.console.note("nothing new")
    elif is_pending:
        run.console.note(f"batch {plan.batch} was interrupted; the next run completes it before it exports new records")
    _show(run, document(request, rows, None, plan, failed=exporter.failed), rows)
    return _status_of(exporter.failed)


def _export(run: Invocation, request: ExportRequest, *, show_progress: bool) -> ExitStatus:

    with contextlib.ExitStack() as stack:
        notes = _ProgressNotes(run, stack, show_progress=show_progress)
        report = Exporter(request, SystemClock()).run(Listener(notes.on_plan, notes.on_progress, notes.on_note))
    _show_report(run, request, report)
    return _status_of(report.failed)


_CORRUPT_HINT = "; --on-corrupt-batch=skip leaves it out"


def _failures(failed: Mapping[str, KctlError]) -> list[str]:
    return [
        f"topic {topic} is not exported completely: {error}{_CORRUPT_HINT if isinstance(error, CorruptRecords) else ''}"
        for topic, error in failed.items()
    ]


def _status_of(failed: Mapping[str, KctlError]) -> ExitStatus:
    """Return the exit status of an export without some of its topics."""
    if not failed:
        return ExitStatus.DONE
    is_loss = all(isinstance(error, (DataLoss, BadRecords)) for error in failed.values())
    return ExitStatus.UNMET if is_loss else ExitStatus.FAILED


def _follow(run: Invocation, request: ExportRequest, rounds: _Rounds, *, show_progress: bool) -> None:
    from kctl.commands.export.follow import FollowMetrics, follow  # noqa: PLC0415 - imports asyncio and HTTP

    def listener(stack: contextlib.ExitStack) -> Listener:
        notes = _ProgressNotes(run, stack, show_progress=show_progress)
        return Listener(notes.on_plan, notes.on_progress, notes.on_note)

    def show(report: ExportReport) -> None:
        if report.batches or report.warnings or report.failed:
            _show_report(run, request, report)
            run.console.header = None if run.console.header else run.console.header

    def next_request() -> ExportRequest:
        if rounds.topic_regex is None:
            return request
        names = NamePattern("--topic-regex", rounds.topic_regex).select(topic_names(request.client))
        if not names:
            raise KctlError(f"no topic matches --topic-regex '{rounds.topic_regex}'")
        return replace(request, selection=replace(request.selection, topics=sorted(names)))

    require_engine(request.engine)
    with FollowMetrics(FollowState(every_ms=rounds.every_ms)) as metrics:
        if rounds.metrics_port is not None:
            port = metrics.serve(rounds.metrics_host, rounds.metrics_port)
            host = f"[{rounds.metrics_host}]" if ":" in rounds.metrics_host else rounds.metrics_host
            run.console.note(f"serving http://{host}:{port}/metrics")
        follow(run, next_request, metrics, listener, show)


def _show_report(run: Invocation, request: ExportRequest, report: ExportReport) -> None:
    for warning in [*report.warnings, *_failures(report.failed)]:
        run.console.warn(warning)
    for reason, count in bad_reasons(report).items():
        undecoded = counted(count, "record could not be decoded and is", "records could not be decoded and are")
        run.console.warn(f"{undecoded} in {request.target}/_dead_letters: {reason}")
    rows = rows_of(report)
    _show(run, document(request, rows, report, failed=report.failed), rows)
    run.console.note(sentence(rows, report))


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

    def on_note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.hide()
        self._run.console.note(text)


def _show(run: Invocation, summary: ExportSummary, rows: list[RangeRow]) -> None:
    if run.console.format.is_document:
        run.console.show_one(summary)
    else:
        run.console.show(RangeRow, rows)
