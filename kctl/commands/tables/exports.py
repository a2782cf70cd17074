"""`kctl tables`: status, verify, compact, maintain, import."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.client.producing.transaction import TRANSACTION_TIMEOUT_MS
from kctl.commands.frame.command import ChangingCommand, ClusterCommand, LocalChange
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration, LagCondition, Partitions, Size, list_of
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.rows import exception_error
from kctl.commands.frame.output.shown import shows
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText, is_present, nonzero
from kctl.output.quantities import counted, format_duration
from kctl.records.compression import Codec
from kctl.server.loop.tasks import SystemClock
from kctl.tables.commits.commit_log import BrokenExportFolder, LostRace
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.compaction.bins import CompactedTable, MaintainedStep, NotCompactable
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.targets.files import Locked
from kctl.tables.exec.targets.target import PackageMissing, open_files, parse_target, require_arrow
from kctl.tables.exports.export import misfit_text
from kctl.tables.exports.importing import Import, ImportRequest, NotImportable, import_export
from kctl.tables.exports.status import PartitionStatus, ReplacedRange, State, export_status
from kctl.tables.exports.summary import MisfitRow
from kctl.tables.plans.plan import Compression, Isolation
from kctl.tables.verification.request import VerifyRequest, verify_export
from kctl.tables.verification.rows import VerifiedRange

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.tables.commits.existing import ExportState


# Options and errors that the verbs of `kctl tables` share.


Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Iceberg: the catalogue of the export, as for 'kctl export'.  Default: the database in the target.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Iceberg: namespace of the tables.  Default: kafka."),
]
TARGET_HELP = "Folder or URL of an export, as --to of 'kctl export'."


# `kctl tables status`.


verbs = typer.Typer(add_completion=False)


class StatusRow(NamedTuple):
    """One partition of an export as a JSON object; null for unknown.  `pending` and `lag` are numbers of offsets."""

    target: str
    table: Annotated[str, JSON_ONLY]
    topic: str
    partition: int
    exported_offset: int | None
    end_offset: int | None
    lag: int | None
    time_lag_ms: Annotated[int | None, Column("time_lag", shown=format_duration)]
    lost: Annotated[int | None, Column(is_rare=True, shown=nonzero)]
    pending: Annotated[int | None, Column(is_rare=True)]
    batch: int | None
    committed_ms: Annotated[int | None, Column("committed", numeric=False, shown=format_time)]
    state: Annotated[str, Column(trouble=lambda text: text != State.CURRENT and is_present(text))]
    diverged_offset: Annotated[
        int | None,
        Column(is_rare=True, after="lost"),
        "The first offset at which the log has, or may have, other records than those that were exported.",
    ]
    replaced: Annotated[
        int,
        Column(is_rare=True, shown=nonzero, after="diverged_offset"),
        "Number of offsets whose rows are of records that the topic lost; they are in `replaced_ranges`.",
    ]
    replaced_ranges: Annotated[list[ReplacedRange], JSON_ONLY]
    misfits: Annotated[
        int,
        Column(is_rare=True, shown=nonzero),
        "Values of all partitions in value_rest or key_rest, of the columns whose first such value is in this one.",
    ]
    misfit_columns: Annotated[list[MisfitRow], JSON_ONLY]
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "status",
    cls=ClusterCommand,
    epilog=examples(
        "kctl tables status /data/orders",
        "kctl tables status s3://lake/shop s3://lake/web --format json",
        "kctl tables status /data/orders --lag '>15m' --check --quiet",
    ),
)
@shows(StatusRow)
def status(
    ctx: typer.Context,
    targets: Annotated[list[str], typer.Argument(help=TARGET_HELP, metavar="TARGET")],
    *,
    condition: LagCondition = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Exit with status 3 unless every partition is current; with --lag, if there is such a row."
        ),
    ] = False,
    catalog: Catalog = None,
    namespace: Namespace = None,
) -> ExitStatus:
    """Show how far exports are behind their topics, in records and in time.

    One row per partition.  LAG is the number of offsets after the last commit of the export, up to the last stable
    offset; TIME-LAG is the age of the first of their records.  PENDING are offsets of a batch that was planned and is
    not committed: an export is running or was interrupted.

    States: current; behind; interrupted (see PENDING); new (not exported yet); losing (LOST records were deleted
    before they were exported); truncated (the log ends before the exported offset, or has other records from
    DIVERGED-OFFSET on, as after an unclean leader election); recreated (the topic was deleted and created again);
    damaged (a data file is gone or does not have the size with which it was committed: a warning names it); gone
    (there is no such topic or partition).

    REPLACED are exported rows of records that the topic lost later, of all former truncations; JSON has their offsets
    and incarnations.

    MISFITS are values since the first export that are in value_rest or key_rest, because they have another type than
    their column or none.  A note names each column, with the offset of the first.
    """
    run: Invocation = ctx.obj
    required = condition
    exports: dict[str, ExportState] = {}
    try:
        for target in dict.fromkeys(map(parse_target, targets)):
            existing = ExistingExport(open_files(target), catalog=catalog, namespace=namespace or "")
            exports[target] = existing.state()
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    for target, state in exports.items():
        for loss in dict.fromkeys(state.losses.values()):
            run.console.warn(f"{target}: {loss}")
        for topic_state in state.topics.values():
            for misfit in topic_state.misfits:
                run.console.note(f"{target}: {misfit_text(misfit)}")
    now_ms = round(time.time() * 1000)

    async def read(client: ClusterClient) -> list[StatusRow]:
        return [
            _item(target, state, status_of_partition)
            for target, state in exports.items()
            for status_of_partition in await export_status(client, state, now_ms)
        ]

    items = [item for item in run.on_brokers(read) if required is None or item.error or required.holds(item)]
    run.console.show(StatusRow, items)
    failed = run.status_of(items)
    if (
        failed is ExitStatus.DONE
        and check
        and (items if required else any(row.state != State.CURRENT for row in items))
    ):
        return ExitStatus.UNMET
    return failed


def _item(target: str, export: ExportState, partition: PartitionStatus) -> StatusRow:
    error = exception_error(partition.error) if partition.error else {"error": None, "message": None}
    return StatusRow(
        target=target,
        table=export.kind.value,
        topic=partition.topic,
        partition=partition.partition,
        exported_offset=partition.exported_offset,
        end_offset=partition.end_offset,
        lag=partition.lag,
        time_lag_ms=partition.time_lag_ms,
        lost=partition.lost,
        pending=partition.pending,
        batch=partition.batch,
        committed_ms=partition.committed_ms,
        state=partition.state.value,
        diverged_offset=partition.diverged_offset,
        replaced=sum(range_.end - range_.start for range_ in partition.replaced_ranges),
        replaced_ranges=list(partition.replaced_ranges),
        misfits=sum(misfit.values for misfit in partition.misfits),
        misfit_columns=[MisfitRow.of(misfit) for misfit in partition.misfits],
        **error,
    )


# `kctl tables verify`.


@verbs.command(
    "verify",
    cls=ClusterCommand,
    epilog=examples(
        "kctl tables verify orders /data/orders",
        "kctl tables verify orders s3://lake/shop --format json",
        "kctl tables verify orders /data/shop --partitions 0-3 --from-start",
    ),
)
@shows(VerifiedRange)
def verify(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Topic to compare.", metavar="TOPIC")],
    target: Annotated[str, typer.Argument(help=TARGET_HELP, metavar="TARGET")],
    *,
    partitions: Annotated[
        Partitions | None, typer.Option("--partitions", parser=Partitions, help="Only these partitions.  Default: all.")
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start",
            help="Iceberg and Delta: compare from the first offset of the topic on, not from that of the table.",
        ),
    ] = False,
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"] | None,
        typer.Option(
            "--isolation-level",
            help="The isolation of the export.  Default: that of a folder's export; for tables read_committed.",
        ),
    ] = None,
    catalog: Catalog = None,
    namespace: Namespace = None,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress on stderr.")] = False,
) -> ExitStatus:
    """Compare an exported topic with its files or table, record by record.

    Reads all exported records from the topic and all rows from the files, and compares keys, values, timestamps and,
    if they were exported, headers.  Changes nothing, takes no lock, and may run beside an export.

    One row per range of offsets: the number of records and rows, how many records are MISSING in the files, there
    TWICE, DIFFERENT, or UNEXPECTED because the topic does not have them, and the first such OFFSET.  JSON has hashes of
    both sides too, which do not depend on the order.  What the topic no longer has cannot be compared, and is listed
    with the REASON: records that were deleted, compacted or truncated, and aborted transactions.

    The exit status is 3 if there is a difference, or if a file of the export is missing.
    """
    run: Invocation = ctx.obj
    request = VerifyRequest(
        topic=topic,
        target=parse_target(target),
        client=run.client_settings(),
        partitions=list_of(partitions),
        from_start=from_start,
        isolation=Isolation(isolation) if isolation else None,
        catalog=catalog,
        namespace=namespace or "",
    )
    try:
        with contextlib.ExitStack() as stack:
            bar = None if no_progress else stack.enter_context(run.console.progress("compared", unit="offsets"))
            verification = verify_export(request, bar.update if bar else lambda done: None)
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    for warning in verification.warnings:
        run.console.warn(warning)
    if verification.filtered:
        filtered = counted(verification.filtered, "record of the topic does", "records of the topic do")
        run.console.note(f"{filtered} not match --where of the export and are not expected in it")
    run.console.show(VerifiedRange, verification.ranges)
    return ExitStatus.DONE if verification.is_equal else ExitStatus.UNMET


# `kctl tables compact`.


@verbs.command(
    "compact",
    cls=LocalChange,
    epilog=examples(
        "kctl tables compact /data/orders --dry-run",
        "kctl tables compact s3://lake/shop --target-file-size 512m --yes",
    ),
)
@shows(CompactedTable)
def compact(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(help=TARGET_HELP, metavar="TARGET")],
    *,
    target_file_size: Annotated[
        Size, typer.Option("--target-file-size", parser=Size.within("1"), help="Approximate size of merged files.")
    ] = Size("256m"),
    compression: Annotated[
        Literal["zstd", "snappy", "none"], typer.Option("--compression", help="Codec of merged files.")
    ] = "zstd",
    catalog: Catalog = None,
    namespace: Namespace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be merged; change nothing.")] = False,
) -> ExitStatus:
    """Merge the small files of an export into large ones.

    Files of less than three quarters of the target size are merged, within a topic or table and a partition.  Each
    table is replaced by one commit, or a folder of Parquet files by commits of its log.  Records and positions do not
    change, and exports continue as before.  Rows whose values are in value_rest or key_rest, because a later run added
    their columns, get these columns; files of any size are written again for that.

    Readers of Iceberg and Delta tables are not disturbed; replaced files remain until snapshots are expired, or the
    table is vacuumed.  In a folder of Parquet files, replaced files are removed: readers that list the folder may see
    records twice until then, and readers of the commit log see each record once at any time.

    The exit status is 5 if an export into the folder is running or was interrupted, and 3 if files are missing.
    """
    run: Invocation = ctx.obj
    location = parse_target(target)
    try:
        require_arrow()
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    from kctl.tables.compaction.table_files import CompactRequest, compact_export  # noqa: PLC0415 - imports pyarrow

    request = CompactRequest(
        target_bytes=target_file_size,
        compression=Compression(compression),
        catalog=catalog,
        namespace=namespace or "",
        is_dry_run=dry_run,
    )
    if not dry_run:
        run.consent(f"Merge the small files of {location}?")
    return _show_changes(run, CompactedTable, lambda: compact_export(request, open_files(location), SystemClock()))


# `kctl tables maintain`.


@verbs.command(
    "maintain",
    cls=LocalChange,
    epilog=examples(
        "kctl tables maintain s3://lake/shop --dry-run",
        "kctl tables maintain lake/ --keep 3d --delete-rows-after 90d --yes",
    ),
)
@shows(MaintainedStep)
def maintain(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(help=TARGET_HELP, metavar="TARGET")],
    *,
    keep: Annotated[
        Duration,
        typer.Option(
            "--keep",
            parser=Duration.within("1h", "3650d"),
            help="Age from which snapshots, replaced files and files of interrupted runs are removed.",
        ),
    ] = Duration("7d"),
    delete_rows_after: Annotated[
        Duration | None,
        typer.Option(
            "--delete-rows-after",
            parser=Duration.within("1h", "3650d"),
            help="Remove the files all of whose rows have timestamps of that age.  Default: no rows are removed.",
        ),
    ] = None,
    target_file_size: Annotated[
        Size, typer.Option("--target-file-size", parser=Size.within("1"), help="Approximate size of merged files.")
    ] = Size("256m"),
    catalog: Catalog = None,
    namespace: Namespace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
) -> ExitStatus:
    """Merge the files of tables, and remove what they no longer need.

    In this order: remove old rows (--delete-rows-after), merge small files as 'kctl tables compact', expire snapshots
    (Iceberg), and remove the data files and manifests that no snapshot or version uses.  Each step is complete or has
    changed nothing, and a repetition does what is left.  Exports may run at the same time.

    In a folder of Parquet files, small files are merged.  The files of a current state (--mode upsert) are not merged.

    'kctl export --follow --maintain-every 1h' does the same between rounds.
    """
    run: Invocation = ctx.obj
    location = parse_target(target)
    try:
        require_arrow()
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    from kctl.tables.compaction.maintenance import MaintainRequest, maintain_export  # noqa: PLC0415 - imports pyarrow

    request = MaintainRequest(
        target_bytes=target_file_size,
        keep_ms=keep,
        rows_ms=delete_rows_after,
        catalog=catalog,
        namespace=namespace or "",
        is_dry_run=dry_run,
    )
    if not dry_run:
        run.consent(f"Merge the files of {location}, and remove those that are not needed?")
    return _show_changes(run, MaintainedStep, lambda: maintain_export(request, open_files(location), SystemClock()))


def _show_changes(run: Invocation, row: type[NamedTuple], change: Callable[[], Sequence[NamedTuple]]) -> ExitStatus:
    """Change the files of tables, and show a row for each change.  Raises Refused."""
    try:
        changes = change()
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except DataLoss as error:
        run.console.fail("DATA_LOSS", str(error))
        return ExitStatus.UNMET
    except (BrokenExportFolder, Locked, LostRace, UnknownFiles, NotCompactable) as error:
        raise Refused(str(error)) from None
    run.console.show(row, changes)
    return ExitStatus.DONE


# `kctl tables import`.


class ImportedRow(NamedTuple):
    """One partition: the exported offsets `start` to `end` (exclusive), and how many records they were."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    status: str


@verbs.command(
    "import",
    cls=ChangingCommand,
    epilog=examples(
        "kctl tables import /data/orders orders-restored --dry-run",
        "kctl tables import s3://lake/shop orders --from-topic orders --compression lz4",
    ),
)
@shows(ImportedRow)
def import_(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(help=TARGET_HELP, metavar="TARGET")],
    topic: Annotated[str, typer.Argument(help="Existing topic to write to.", metavar="TOPIC")],
    *,
    from_topic: Annotated[
        str | None,
        typer.Option(
            "--from-topic",
            metavar="TOPIC",
            help="The exported topic.  Default: that of the same name, or the only one.",
        ),
    ] = None,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], typer.Option("--compression", help="Codec of the records.")
    ] = "none",
    append: Annotated[
        bool,
        typer.Option("--append", help="Also write into partitions that have records but no progress of this import."),
    ] = False,
    catalog: Catalog = None,
    namespace: Namespace = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where the import would start; write nothing.")
    ] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress on stderr.")] = False,
) -> ExitStatus:
    """Write exported records back into a topic, each exactly once.

    Keeps keys, values, timestamps, partitions and their order, and headers if they were exported.  Offsets are assigned
    anew.  An import that was interrupted is continued by the same command, and one that is complete adds only what was
    exported since.

    Records are written in transactions, which also commit the progress, as offsets of the group kctl-import.TOPIC.ID.
    Readers with read_committed see each record once.

    The exit status is 5 if the topic has records but the group has no progress (see --append), or if files are missing
    or overlap.
    """
    run: Invocation = ctx.obj
    request = ImportRequest(
        topic=topic,
        source=from_topic,
        codec=Codec.named(compression),
        appends=append,
        is_dry_run=dry_run,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    try:
        require_arrow()
        files = open_files(parse_target(target))
        existing = ExistingExport(files, catalog=catalog, namespace=namespace or "")
        with contextlib.ExitStack() as stack:
            bar = None if no_progress else stack.enter_context(run.console.progress("imported", unit="records"))

            async def work(client: ClusterClient) -> Import:
                return await import_export(client, files, existing, request, bar.update if bar else lambda rows: None)

            imported = run.on_cluster_concurrently(work)
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except NotImportable as error:
        raise Refused(str(error)) from None
    for warning in imported.warnings:
        run.console.warn(warning)
    run.console.show(ImportedRow, [ImportedRow(topic, *partition) for partition in imported.partitions])
    return ExitStatus.DONE
