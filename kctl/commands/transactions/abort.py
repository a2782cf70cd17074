"""`kctl transactions abort`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.producers import Marker, describe_producers, write_abort_marker
from kctl.admin.transactions import owner_of
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.rows import code_error, known, outcome_error
from kctl.commands.shown import shows
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.integers import INT16_MAX, INT32_MAX, INT64_MAX, parse_integer
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


ABORT_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("producer_id", numeric=True),
    Column("producer_epoch", numeric=True),
    Column("coordinator_epoch", numeric=True),
    Column("start_offset", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)


class AbortRow(NamedTuple):
    """A transaction that is aborted in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int | None
    status: str | None
    error: str | None = None
    message: str | None = None


@app.command(
    "abort",
    cls=ChangingCommand,
    epilog=examples(
        "kctl transactions abort orders:0 --start-offset 1234 --dry-run",
        "kctl transactions abort orders:0 --start-offset 1234 --yes",
        "kctl transactions abort orders:0 --producer-id 4000 --producer-epoch 7 --coordinator-epoch 3 --yes",
    ),
)
@shows(AbortRow)
def abort(
    ctx: typer.Context,
    partition: Annotated[
        str, typer.Argument(help="Partition in which the transaction is open.", metavar="TOPIC:PARTITION")
    ],
    *,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="N",
            help="First offset of the transaction; the broker returns its producer.",
            max=INT64_MAX,
            min=0,
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            "--producer-id",
            metavar="N",
            help="Id of the producer, with both epochs; replaces --start-offset.",
            max=INT64_MAX,
            min=0,
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", help="Epoch of the producer.", max=INT16_MAX, min=0)
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch", metavar="N", help="Epoch of the producer's last coordinator.", min=-1, max=INT32_MAX
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Abort even if a coordinator still has the transaction.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")] = False,
) -> ExitStatus:
    """Abort a hanging transaction in one partition, so that readers of committed records continue without its records.

    Refused (exit status 5) without --force if a coordinator still has the transaction: it could be committed later, and
    its records in this partition would be lost.  Asks for confirmation on a terminal; elsewhere --yes is required.
    """
    run: Invocation = ctx.obj
    tp = _partition(partition)
    explicit = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) is all(one is None for one in explicit):
        raise UsageError("give --start-offset, or --producer-id with both epochs")
    if start_offset is None:
        if producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise UsageError("--producer-id, --producer-epoch and --coordinator-epoch must be given together")
        marker = Marker(tp, producer_id, producer_epoch, coordinator_epoch)
    else:
        marker = run.on_brokers(lambda client: _find(client, tp, start_offset))
    if not force:
        _refuse_if_coordinated(run, marker)
    outcome = None
    if not dry_run:
        run.consent(f"Abort the transaction of producer {marker.producer_id} in {tp}?")
        outcome = run.on_brokers(lambda client: write_abort_marker(client, marker))
    is_done = outcome is None or outcome.is_done
    row = AbortRow(
        topic=tp.topic,
        partition=tp.partition,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=known(marker.coordinator_epoch),
        start_offset=start_offset,
        status=("would be aborted" if dry_run else "aborted") if is_done else None,
        **(outcome_error(outcome) if outcome else code_error(ErrorCode.NONE)),
    )
    run.console.show(ABORT_COLUMNS, [row])
    return run.status_of([row])


async def _find(client: ClusterClient, tp: TopicPartition, start_offset: int) -> Marker:
    """The marker that aborts the transaction with this first offset.  Raises ApiError if there is none."""
    producers = (await describe_producers(client, [tp]))[tp]
    if isinstance(producers, ApiError):
        raise ApiError(producers.code, f"{tp}: {producers}")
    for one in producers:
        if one.txn_start_offset == start_offset:
            return Marker(tp, one.producer_id, one.producer_epoch, one.coordinator_epoch)
    raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{tp}: no open transaction begins at offset {start_offset}")


def _refuse_if_coordinated(run: Invocation, marker: Marker) -> None:

    try:
        owner = run.on_brokers(lambda client: owner_of(client, marker.producer_id))
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        run.console.warn("brokers before 3.0 do not report whether a coordinator still has the transaction")
        return
    if owner is not None and owner.producer_id == marker.producer_id and marker.tp in owner.partitions:
        raise Refused(
            f"the transaction is not hanging: the coordinator of '{owner.outcome.name}' has it in state {owner.state}; "
            "--force aborts it in this partition nevertheless"
        )


def _partition(text: str) -> TopicPartition:

    found = re.fullmatch(r"([^:]+):([0-9]+)", text)
    if found is None:
        raise UsageError(f"'{text}' is not a partition; use TOPIC:PARTITION")
    return TopicPartition(found[1], parse_integer(found[2], "a partition"))
