"""`kctl tables import`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.client.transaction import TRANSACTION_TIMEOUT_MS
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.tables.options import TARGET_HELP, Catalog, Namespace
from kctl.console import Column
from kctl.records.compression import Codec
from kctl.spark.exec.target import PackageMissing, open_files, parse_target, require_arrow
from kctl.spark.existing import ExistingExport
from kctl.spark.importing import Import, ImportRequest, NotImportable, import_export

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("start", numeric=True),
    Column("end", numeric=True),
    Column("records", numeric=True),
    Column("status"),
)


class ImportedRow(NamedTuple):
    """One partition: the exported offsets `start` to `end` (exclusive), and how many records they were."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    status: str


@app.command(
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

            found = run.on_cluster_concurrently(work)
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except NotImportable as error:
        raise Refused(str(error)) from None
    for warning in found.warnings:
        run.console.warn(warning)
    run.console.show(COLUMNS, [ImportedRow(topic, *one) for one in found.partitions])
    return ExitStatus.DONE
