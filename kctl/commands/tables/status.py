"""`kctl tables status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.lag_condition import parse_condition
from kctl.commands.rows import exception_error
from kctl.commands.shown import shows
from kctl.commands.tables.options import TARGET_HELP, Catalog, Namespace
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column, is_present
from kctl.quantities import format_duration
from kctl.spark.exec.target import PackageMissing, open_files, parse_target
from kctl.spark.existing import ExistingExport
from kctl.spark.export_status import PartitionStatus, ReplacedRange, State, export_status

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.spark.existing import ExportState

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("target"),
    Column("topic"),
    Column("partition", numeric=True),
    Column("exported_offset", numeric=True),
    Column("end_offset", numeric=True),
    Column("lag", numeric=True),
    Column("time_lag", numeric=True),
    Column("lost", numeric=True, is_rare=True),
    Column("diverged_offset", numeric=True, is_rare=True),
    Column("replaced", numeric=True, is_rare=True),
    Column("pending", numeric=True, is_rare=True),
    Column("batch", numeric=True),
    Column("committed"),
    Column("state", trouble=lambda text: text != State.CURRENT and is_present(text)),
    *ERROR_COLUMNS,
)


class StatusRow(NamedTuple):
    """One partition of an export as a JSON object; null for unknown.  `pending` and `lag` are numbers of offsets."""

    target: str
    table: str
    topic: str
    partition: int
    exported_offset: int | None
    end_offset: int | None
    lag: int | None
    time_lag_ms: int | None
    lost: int | None
    pending: int | None
    batch: int | None
    committed_ms: int | None
    state: str
    diverged_offset: int | None
    """The first offset at which the log has, or may have, other records than those that were exported."""
    replaced: int
    """Number of offsets whose rows are of records that the topic lost; they are in `replaced_ranges`."""
    replaced_ranges: list[ReplacedRange]
    error: str | None = None
    message: str | None = None


@app.command(
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
    condition: Annotated[
        str | None,
        typer.Option(
            "--lag", metavar="CONDITION", help="Only rows with this lag, such as '>1000' in records or '>5m' in time."
        ),
    ] = None,
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
    """
    run: Invocation = ctx.obj
    required = parse_condition(condition)
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
    now_ms = round(time.time() * 1000)

    async def read(client: ClusterClient) -> list[StatusRow]:
        return [
            _item(target, state, one)
            for target, state in exports.items()
            for one in await export_status(client, state, now_ms)
        ]

    items = [item for item in run.on_brokers(read) if required is None or item.error or required.holds(item)]
    run.console.show(COLUMNS, items, rows=[_row(item) for item in items])
    failed = run.status_of(items)
    if (
        failed is ExitStatus.DONE
        and check
        and (items if required else any(one.state != State.CURRENT for one in items))
    ):
        return ExitStatus.UNMET
    return failed


def _item(target: str, export: ExportState, one: PartitionStatus) -> StatusRow:
    error = exception_error(one.error) if one.error else {"error": None, "message": None}
    return StatusRow(
        target=target,
        table=export.kind.value,
        topic=one.topic,
        partition=one.partition,
        exported_offset=one.exported_offset,
        end_offset=one.end_offset,
        lag=one.lag,
        time_lag_ms=one.time_lag_ms,
        lost=one.lost,
        pending=one.pending,
        batch=one.batch,
        committed_ms=one.committed_ms,
        state=one.state.value,
        diverged_offset=one.diverged_offset,
        replaced=sum(range_.end - range_.start for range_ in one.replaced_ranges),
        replaced_ranges=list(one.replaced_ranges),
        **error,
    )


def _row(item: StatusRow) -> dict[str, object]:
    """The cells of a table: the times as text."""
    committed = None if item.committed_ms is None else format_time(item.committed_ms)
    time_lag = None if item.time_lag_ms is None else format_duration(item.time_lag_ms)
    return {
        **item._asdict(),
        "time_lag": time_lag,
        "committed": committed,
        "lost": item.lost or None,
        "replaced": item.replaced or None,
    }
