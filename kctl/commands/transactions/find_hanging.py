"""`kctl transactions find-hanging`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin import transactions
from kctl.admin.offsets import partitions_of
from kctl.commands.command import examples
from kctl.commands.compat import transactions as transaction_compat
from kctl.commands.compat.versions import CompatSinceKafka3
from kctl.commands.exit_status import ExitStatus
from kctl.commands.groups.reset import parse_scope
from kctl.commands.invocation import Invocation
from kctl.commands.omissions import note_omissions
from kctl.commands.query import QueryCommand
from kctl.commands.rows import known
from kctl.commands.shown import shows
from kctl.commands.times import parse_duration_ms
from kctl.commands.transactions.warnings import warn_of_failures
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.transactions import OpenTransaction
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


HANGING_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("producer_id", numeric=True),
    Column("producer_epoch", numeric=True, drop_order=2),
    Column("coordinator_epoch", numeric=True, drop_order=1),
    Column("start_offset", numeric=True, drop_order=4),
    Column("last_time", drop_order=3),
    Column("idle_ms", numeric=True),
    Column("transactional_id"),
    *ERROR_COLUMNS,
)


class HangingRow(NamedTuple):
    """A transaction that no coordinator will end."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_timestamp_ms: int | None
    last_time: str | None
    idle_ms: int
    transactional_id: str | None
    error: str | None = None
    message: str | None = None


class SearchFailureRow(NamedTuple):
    """A broker whose partitions could not be searched."""

    topic: None
    partition: None
    error: str
    message: str


@app.command(
    "find-hanging",
    cls=QueryCommand,
    epilog=examples("kctl transactions find-hanging", "kctl transactions find-hanging --topic orders:0-3 --idle 1h"),
)
@shows(HangingRow, SearchFailureRow)
def find_hanging(
    ctx: typer.Context,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC[:N,N-N]", help="Only this topic, or some of its partitions.  Default: all topics."
        ),
    ] = None,
    idle: Annotated[
        str,
        typer.Option(
            "--idle",
            metavar="DURATION",
            help="Only transactions without writes for longer than this; use the brokers' transaction.max.timeout.ms.",
        ),
    ] = "15m",
    compat: CompatSinceKafka3 = None,
) -> ExitStatus:
    """Find open transactions that no coordinator will end and that block readers of committed records.

    The exit status is 3 if there are any; 'kctl transactions abort' aborts one.  Requires Kafka 3.0 or later.
    """
    run: Invocation = ctx.obj
    scope = parse_scope(topic, all_topics=not topic)
    now_ms = round(time.time() * 1000)
    idle_since_ms = now_ms - parse_duration_ms(idle)

    tps = run.on_brokers(lambda client: _partitions(client, scope))
    note_omissions(run, tps, "topics")
    found, failed = run.on_brokers(lambda client: transactions.find_hanging(client, tps, idle_since_ms=idle_since_ms))
    if compat:
        run.console.verbatim(transaction_compat.hanging(found, tps, now_ms))
        return warn_of_failures(run, failed) or (ExitStatus.UNMET if found else ExitStatus.DONE)
    rows = [_hanging_row(one, now_ms) for one in found]
    errors = [SearchFailureRow(None, None, one.error.name, f"{one.name}: {one.message}") for one in failed]
    run.console.show(HANGING_COLUMNS, [*rows, *errors])
    for one in found:
        start = one.producer.txn_start_offset
        run.console.note(
            f"to abort it: kctl transactions abort {one.tp.topic}:{one.tp.partition} --start-offset {start}"
            f"{run.cluster_options()}"
        )
    if errors:
        return ExitStatus.FAILED
    return ExitStatus.UNMET if rows else ExitStatus.DONE


async def _partitions(client: ClusterClient, scope: dict[str, list[int] | None] | None) -> list[TopicPartition]:

    if scope is None:
        metadata = await client.metadata()
        return [TopicPartition(name, one.partition) for name, it in metadata.topics.items() for one in it.partitions]
    tps = await partitions_of(client, scope)
    chosen = [tp for tp in tps if scope[tp.topic] is None]
    return chosen + [TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()]


def _hanging_row(one: OpenTransaction, now_ms: int) -> HangingRow:
    producer = one.producer
    return HangingRow(
        topic=one.tp.topic,
        partition=one.tp.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=known(producer.coordinator_epoch),
        start_offset=producer.txn_start_offset,
        last_timestamp_ms=known(producer.last_timestamp_ms),
        last_time=format_time(producer.last_timestamp_ms),
        idle_ms=max(0, now_ms - producer.last_timestamp_ms),
        transactional_id=one.transactional_id,
    )
