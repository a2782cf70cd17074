"""`kctl tables verify`."""

from __future__ import annotations

import contextlib
from typing import Annotated, Literal

import typer

from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.tables.options import TARGET_HELP, Catalog, Namespace
from kctl.commands.values import parse_partitions
from kctl.console import Column
from kctl.quantities import counted
from kctl.spark.exec.target import PackageMissing, parse_target
from kctl.spark.plan import Isolation
from kctl.spark.verification.request import VerifyRequest, verify_export
from kctl.spark.verification.rows import VerifiedRange

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("start", numeric=True),
    Column("end", numeric=True),
    Column("status"),
    Column("topic_records", numeric=True),
    Column("table_records", numeric=True),
    Column("missing", numeric=True),
    Column("twice", numeric=True),
    Column("different", numeric=True),
    Column("unexpected", numeric=True),
    Column("not_compared", numeric=True),
    Column("offset", numeric=True, is_rare=True),
    Column("difference", is_rare=True),
    Column("reason", wraps=True, is_rare=True),
)


@app.command(
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
        str | None, typer.Option("--partitions", metavar="N,N-N", help="Only these partitions.  Default: all.")
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
            "--isolation",
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
        partitions=parse_partitions(partitions),
        from_start=from_start,
        isolation=Isolation(isolation) if isolation else None,
        catalog=catalog,
        namespace=namespace or "",
    )
    try:
        with contextlib.ExitStack() as stack:
            bar = None if no_progress else stack.enter_context(run.console.progress("compared", unit="offsets"))
            found = verify_export(request, bar.update if bar else lambda done: None)
    except PackageMissing as error:
        run.console.fail("PACKAGE_MISSING", str(error))
        return ExitStatus.FAILED
    for warning in found.warnings:
        run.console.warn(warning)
    if found.filtered:
        filtered = counted(found.filtered, "record of the topic does", "records of the topic do")
        run.console.note(f"{filtered} not match --where of the export and are not expected in it")
    run.console.show(COLUMNS, found.ranges)
    return ExitStatus.DONE if found.is_equal else ExitStatus.UNMET
