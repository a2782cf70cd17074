"""`kctl transactions describe`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.transactions import describe_transactions
from kctl.commands.command import examples
from kctl.commands.compat import transactions as transaction_compat
from kctl.commands.compat.versions import CompatSinceKafka3
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.rows import known, outcome_error
from kctl.commands.shown import shows
from kctl.commands.transactions.warnings import warn_of_failures
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.transactions import Transaction
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
DESCRIBE_COLUMNS = (
    Column("transactional_id"),
    Column("coordinator"),
    Column("producer_id", numeric=True),
    Column("producer_epoch", numeric=True),
    Column("state"),
    Column("timeout_ms", numeric=True),
    Column("start_time"),
    Column("duration_ms", numeric=True),
    Column("partitions", wraps=True),
    *ERROR_COLUMNS,
)


class TopicPartitionsItem(NamedTuple):
    """The partitions of one topic that a transaction has written to."""

    topic: str
    partitions: list[int]


class TransactionItem(NamedTuple):
    """A transaction as a JSON object."""

    transactional_id: str
    coordinator: str | None
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp_ms: int | None
    start_time: str | None
    duration_ms: int | None
    partitions: list[TopicPartitionsItem]
    error: str | None = None
    message: str | None = None


class TransactionRow(NamedTuple):
    """A transaction in the table."""

    transactional_id: str
    coordinator: str | None
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_time: str | None
    duration_ms: int | None
    partitions: str | None
    """For example `orders(0,1) payments(3)`."""
    error: str | None
    message: str | None


@app.command("describe", cls=QueryCommand, epilog=examples("kctl transactions describe billing-1"))
@shows(TransactionItem)
def describe(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Transactional ids.", metavar="TRANSACTIONAL_ID")],
    *,
    compat: CompatSinceKafka3 = None,
) -> ExitStatus:
    """Describe transactions: state, producer, time and partitions.

    Requires Kafka 3.0 or later.
    """
    run: Invocation = ctx.obj

    async def query(client: ClusterClient) -> list[Transaction]:
        return await describe_transactions(client, names)

    found = run.on_brokers(query)
    now_ms = round(time.time() * 1000)
    if compat:
        return _describe_as_kafka(run, found, now_ms)
    items = [_item(one, now_ms) for one in found]
    run.console.show(DESCRIBE_COLUMNS, items, rows=[_row(item) for item in items])
    return run.status_of(items)


def _describe_as_kafka(run: Invocation, found: Sequence[Transaction], now_ms: int) -> ExitStatus:

    brokers = run.on_brokers(lambda client: client.metadata([])).brokers.values()
    ids = {f"{broker.host}:{broker.port}": broker.node_id for broker in brokers}
    for one in found:
        if one.outcome.is_done:
            run.console.verbatim(transaction_compat.described(one, ids.get(one.coordinator, -1), now_ms))
    return warn_of_failures(run, [one.outcome for one in found if not one.outcome.is_done])


def _item(one: Transaction, now_ms: int) -> TransactionItem:
    topics: dict[str, list[int]] = {}
    for tp in one.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionItem(
        transactional_id=one.outcome.name,
        coordinator=one.coordinator or None,
        producer_id=known(one.producer_id),
        producer_epoch=known(one.producer_epoch),
        state=one.state or None,
        timeout_ms=known(one.timeout_ms),
        start_timestamp_ms=known(one.start_ms),
        start_time=format_time(one.start_ms),
        duration_ms=max(0, now_ms - one.start_ms) if one.state in OPEN_STATES and one.start_ms >= 0 else None,
        partitions=[TopicPartitionsItem(topic, numbers) for topic, numbers in topics.items()],
        **outcome_error(one.outcome),
    )


def _row(item: TransactionItem) -> TransactionRow:
    fields = item._asdict()
    del fields["start_timestamp_ms"]
    return TransactionRow(**(fields | {"partitions": _text(item.partitions)}))


def _text(topics: Sequence[TopicPartitionsItem]) -> str | None:
    return " ".join(f"{topic}({','.join(map(str, partitions))})" for topic, partitions in topics) or None
