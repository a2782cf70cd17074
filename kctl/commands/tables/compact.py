"""`kctl tables compact`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kctl.commands.command import LocalChange, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.tables.options import TARGET_HELP, Catalog, Namespace
from kctl.commands.values import parse_size
from kctl.console import Column
from kctl.errors import UsageError
from kctl.server.clock import SystemClock
from kctl.spark.commit_log import BrokenExportFolder, LostRace
from kctl.spark.compaction.bins import CompactedTable, NotCompactable
from kctl.spark.compaction.request import CompactRequest, compact_export
from kctl.spark.exec.files import Locked
from kctl.spark.exec.outcome import DataLoss
from kctl.spark.exec.target import PackageMissing, open_files, parse_target
from kctl.spark.inventory import UnknownFiles
from kctl.spark.plan import Compression

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("table"),
    Column("files_before", numeric=True),
    Column("files_after", numeric=True),
    Column("bytes_before", numeric=True),
    Column("bytes_after", numeric=True),
    Column("status"),
)


@app.command(
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
        str, typer.Option("--target-file-size", metavar="SIZE", help="Approximate size of merged files.")
    ] = "256m",
    compression: Annotated[
        Literal["zstd", "snappy", "none"], typer.Option("--compression", help="Codec of merged files.")
    ] = "zstd",
    catalog: Catalog = None,
    namespace: Namespace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be merged; change nothing.")] = False,
) -> ExitStatus:
    """Merge the small files of an export into large ones.

    Files of less than three quarters of the target size are merged, within a topic or table and a partition.  Each
    table is replaced by one commit, or a folder of Parquet files by commits of its log.  Records, columns and positions
    do not change, and exports continue as before.

    Readers of Iceberg and Delta tables are not disturbed; replaced files remain until snapshots are expired, or the
    table is vacuumed.  In a folder of Parquet files, replaced files are removed: readers that list the folder may see
    records twice until then, and readers of the commit log see each record once at any time.

    The exit status is 5 if an export into the folder is running or was interrupted, and 3 if files are missing.
    """
    run: Invocation = ctx.obj
    size = parse_size(target_file_size)
    if size < 1:
        raise UsageError("--target-file-size must be greater than 0")
    location = parse_target(target)
    request = CompactRequest(
        target_bytes=size,
        compression=Compression(compression),
        catalog=catalog,
        namespace=namespace or "",
        is_dry_run=dry_run,
    )
    if not dry_run:
        run.consent(f"Merge the small files of {location}?")
    try:
        found = compact_export(request, open_files(location), SystemClock())
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    except DataLoss as error:
        run.console.fail("DATA_LOSS", str(error))
        return ExitStatus.UNMET
    except (BrokenExportFolder, Locked, LostRace, UnknownFiles, NotCompactable) as error:
        raise Refused(str(error)) from None
    run.console.show(COLUMNS, found)
    return ExitStatus.DONE
