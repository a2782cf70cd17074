"""`kctl transactions list`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from kctl.admin.transactions import list_transactions as query
from kctl.commands.command import examples
from kctl.commands.compat import transactions as transaction_compat
from kctl.commands.compat.versions import CompatSinceKafka3
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.omissions import note_omissions
from kctl.commands.query import QueryCommand
from kctl.commands.rows import outcome_error
from kctl.commands.shown import shows
from kctl.commands.transactions.warnings import warn_of_failures
from kctl.console import ERROR_COLUMNS, Column
from kctl.integers import INT64_MAX

app = typer.Typer(add_completion=False)


class State(StrEnum):
    """States by which --state selects."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


LIST_COLUMNS = (
    Column("transactional_id"),
    Column("coordinator", numeric=True),
    Column("producer_id", numeric=True),
    Column("state"),
    *ERROR_COLUMNS,
)


class ListedTransactionRow(NamedTuple):
    """A transactional id with the state of its last transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    error: str | None = None
    message: str | None = None


class CoordinatorFailureRow(NamedTuple):
    """A broker that could not list its transactions."""

    transactional_id: None
    coordinator: int
    error: str | None
    message: str | None


@app.command(
    "list",
    cls=QueryCommand,
    epilog=examples("kctl transactions list", "kctl transactions list --state Ongoing --format json"),
)
@shows(ListedTransactionRow, CoordinatorFailureRow)
def list_transactions(
    ctx: typer.Context,
    *,
    state: Annotated[list[State] | None, typer.Option("--state", help="Only transactions in this state.")] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", help="Only those of this producer.", max=INT64_MAX, min=0),
    ] = None,
    compat: CompatSinceKafka3 = None,
) -> ExitStatus:
    """List the transactional ids of all brokers with the state of their last transaction.

    Requires Kafka 3.0 or later.
    """
    run: Invocation = ctx.obj
    listed, failed = run.on_brokers(lambda client: query(client, states=state or (), producer_ids=producer_id or ()))
    if not state and not producer_id and not failed:
        run.store_names("transactions", (one.transactional_id for one in listed))
    if compat:
        run.console.verbatim(transaction_compat.listed(listed))
        return warn_of_failures(run, failed)
    rows: list[ListedTransactionRow | CoordinatorFailureRow] = [
        ListedTransactionRow(one.transactional_id, one.coordinator_id, one.producer_id, one.state)
        for one in sorted(listed, key=lambda one: one.transactional_id)
    ]
    rows += [CoordinatorFailureRow(None, int(one.name), **outcome_error(one)) for one in failed]
    run.console.show(LIST_COLUMNS, rows)
    note_omissions(run, rows, "transactional ids")
    return run.status_of(rows)
