"""`kctl transactions`: describe transactions, find hanging ones, abort and terminate them."""

from __future__ import annotations

import re
import shlex
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kctl.admin.topics import transactions
from kctl.admin.topics.offsets import partitions_of
from kctl.admin.topics.transactions import (
    OPEN_STATES,
    Marker,
    describe_producers,
    describe_transactions,
    owner_of,
    terminate,
    write_abort_marker,
)
from kctl.admin.topics.transactions import list_transactions as query
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.rows import code_error, exception_error, known, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand, note_omissions
from kctl.commands.groups.resets import parse_scope
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText
from kctl.output.quantities import INT16_MAX, INT32_MAX, INT64_MAX, parse_integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kctl.admin.topics.transactions import OpenTransaction, Transaction
    from kctl.client.cluster import ClusterClient


# Warnings about brokers and coordinators that did not respond.


# `kctl transactions list`.


verbs = typer.Typer(add_completion=False)


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


class ListedTransactionRow(NamedTuple):
    """A transactional id with the state of its last transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    error: ErrorName = None
    message: ErrorText = None


class CoordinatorFailureRow(NamedTuple):
    """A broker that could not list its transactions."""

    transactional_id: None
    coordinator: int
    error: str | None
    message: str | None


@verbs.command(
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
) -> ExitStatus:
    """List the transactional ids of all brokers with the state of their last transaction.

    Requires Kafka 3.0 or later.
    """
    run: Invocation = ctx.obj
    listed, failed = run.on_brokers(lambda client: query(client, states=state or (), producer_ids=producer_id or ()))
    rows: list[ListedTransactionRow | CoordinatorFailureRow] = [
        ListedTransactionRow(
            transaction.transactional_id, transaction.coordinator_id, transaction.producer_id, transaction.state
        )
        for transaction in sorted(listed, key=lambda transaction: transaction.transactional_id)
    ]
    rows += [CoordinatorFailureRow(None, int(outcome.name), **outcome_error(outcome)) for outcome in failed]
    run.console.show(ListedTransactionRow, rows)
    note_omissions(run, rows, "transactional ids")
    return run.status_of(rows)


# `kctl transactions describe`.


class TopicPartitionsItem(NamedTuple):
    """The partitions of one topic that a transaction has written to."""

    topic: str
    partitions: list[int]


def _partitions_text(topics: Sequence[Mapping[str, Any]]) -> str | None:
    """For example `orders(0,1) payments(3)`."""
    return " ".join(f"{item['topic']}({','.join(map(str, item['partitions']))})" for item in topics) or None


class TransactionItem(NamedTuple):
    """A transaction."""

    transactional_id: str
    coordinator: str | None
    producer_id: int | None
    producer_epoch: int | None
    state: str | None
    timeout_ms: int | None
    start_timestamp_ms: Annotated[int | None, JSON_ONLY]
    start_time: str | None
    duration_ms: int | None
    partitions: Annotated[list[TopicPartitionsItem], Column(wraps=True, shown=_partitions_text)]
    error: ErrorName = None
    message: ErrorText = None


@verbs.command("describe", cls=QueryCommand, epilog=examples("kctl transactions describe billing-1"))
@shows(TransactionItem)
def describe(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Transactional ids.", metavar="TRANSACTIONAL_ID")],
) -> ExitStatus:
    """Describe transactions: state, producer, time and partitions.

    Requires Kafka 3.0 or later.
    """
    run: Invocation = ctx.obj

    async def query(client: ClusterClient) -> list[Transaction]:
        return await describe_transactions(client, names)

    found = run.on_brokers(query)
    now_ms = round(time.time() * 1000)
    items = [_item(transaction, now_ms) for transaction in found]
    run.console.show(TransactionItem, items)
    return run.status_of(items)


def _item(transaction: Transaction, now_ms: int) -> TransactionItem:
    topics: dict[str, list[int]] = {}
    for tp in transaction.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionItem(
        transactional_id=transaction.outcome.name,
        coordinator=transaction.coordinator or None,
        producer_id=known(transaction.producer_id),
        producer_epoch=known(transaction.producer_epoch),
        state=transaction.state or None,
        timeout_ms=known(transaction.timeout_ms),
        start_timestamp_ms=known(transaction.start_ms),
        start_time=format_time(transaction.start_ms),
        duration_ms=max(0, now_ms - transaction.start_ms)
        if transaction.state in OPEN_STATES and transaction.start_ms >= 0
        else None,
        partitions=[TopicPartitionsItem(topic, numbers) for topic, numbers in topics.items()],
        **outcome_error(transaction.outcome),
    )


# `kctl transactions find-hanging`.


class HangingRow(NamedTuple):
    """A transaction that no coordinator will end."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: Annotated[int, Column(drop_order=2)]
    coordinator_epoch: Annotated[int | None, Column(drop_order=1)]
    start_offset: Annotated[int, Column(drop_order=4)]
    last_timestamp_ms: Annotated[int | None, JSON_ONLY]
    last_time: Annotated[str | None, Column(drop_order=3)]
    idle_ms: int
    transactional_id: str | None
    error: ErrorName = None
    message: ErrorText = None


class SearchFailureRow(NamedTuple):
    """A broker whose partitions could not be searched."""

    topic: None
    partition: None
    error: str
    message: str


@verbs.command(
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
        Duration,
        typer.Option(
            "--idle",
            parser=Duration,
            help="Only transactions without writes for longer than this; use the brokers' transaction.max.timeout.ms.",
        ),
    ] = Duration("15m"),
) -> ExitStatus:
    """Find open transactions that no coordinator will end and that block readers of committed records.

    The exit status is 3 if there are any; 'kctl transactions abort' aborts one.  Requires Kafka 3.0 or later.
    """
    run: Invocation = ctx.obj
    scope = parse_scope(topic, all_topics=not topic)
    now_ms = round(time.time() * 1000)
    idle_since_ms = now_ms - idle

    tps = run.on_brokers(lambda client: _partitions(client, scope))
    note_omissions(run, tps, "topics")
    found, failed = run.on_brokers(lambda client: transactions.find_hanging(client, tps, idle_since_ms=idle_since_ms))
    rows = [_hanging_row(transaction, now_ms) for transaction in found]
    errors = [
        SearchFailureRow(None, None, outcome.error.name, f"{outcome.name}: {outcome.message}") for outcome in failed
    ]
    run.console.show(HangingRow, [*rows, *errors])
    for transaction in found:
        place = f"{transaction.tp.topic}:{transaction.tp.partition}"
        run.console.note(
            f"to abort it: kctl transactions abort {place} --start-offset {transaction.producer.txn_start_offset}"
            f"{run.cluster_options()}"
        )
    if errors:
        return ExitStatus.FAILED
    return ExitStatus.UNMET if rows else ExitStatus.DONE


async def _partitions(client: ClusterClient, scope: dict[str, list[int] | None] | None) -> list[TopicPartition]:

    if scope is None:
        metadata = await client.metadata()
        return [
            TopicPartition(name, partition.partition)
            for name, described in metadata.topics.items()
            for partition in described.partitions
        ]
    tps = await partitions_of(client, scope)
    chosen = [tp for tp in tps if scope[tp.topic] is None]
    return chosen + [TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()]


def _hanging_row(transaction: OpenTransaction, now_ms: int) -> HangingRow:
    producer = transaction.producer
    return HangingRow(
        topic=transaction.tp.topic,
        partition=transaction.tp.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=known(producer.coordinator_epoch),
        start_offset=producer.txn_start_offset,
        last_timestamp_ms=known(producer.last_timestamp_ms),
        last_time=format_time(producer.last_timestamp_ms),
        idle_ms=max(0, now_ms - producer.last_timestamp_ms),
        transactional_id=transaction.transactional_id,
    )


# `kctl transactions abort`.


class AbortRow(NamedTuple):
    """A transaction that is aborted in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int | None
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
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

    A hanging transaction has no coordinator that will end it; 'kctl transactions find-hanging' finds them.  One that a
    coordinator still has is ended in all its partitions by 'kctl transactions terminate'.

    Refused (exit status 5) without --force if a coordinator still has the transaction: it could be committed later, and
    its records in this partition would be lost.  Asks for confirmation on a terminal; elsewhere --yes is required.
    """
    run: Invocation = ctx.obj
    tp = _partition(partition)
    explicit = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) is all(value is None for value in explicit):
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
    run.console.show(AbortRow, [row])
    return run.status_of([row])


async def _find(client: ClusterClient, tp: TopicPartition, start_offset: int) -> Marker:
    """Return the marker that aborts the transaction with this first offset.  Raises ApiError if there is none."""
    producers = (await describe_producers(client, [tp]))[tp]
    if isinstance(producers, ApiError):
        raise ApiError(producers.code, f"{tp}: {producers}")
    for producer in producers:
        if producer.txn_start_offset == start_offset:
            return Marker(tp, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
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
        name = owner.outcome.name
        raise Refused(
            f"the transaction is not hanging: the coordinator of '{name}' has it in state {owner.state}; "
            f"'kctl transactions terminate {shlex.quote(name)}' ends it, --force aborts it in this partition only"
        )


def _partition(text: str) -> TopicPartition:

    found = re.fullmatch(r"([^:]+):([0-9]+)", text)
    if found is None:
        raise UsageError(f"'{text}' is not a partition; use TOPIC:PARTITION")
    return TopicPartition(found[1], parse_integer(found[2], "a partition"))


# `kctl transactions terminate`.


class TerminatedRow(NamedTuple):
    """A transactional id whose transaction is ended; state and producer are those before."""

    transactional_id: str
    state: str | None
    producer_id: int | None
    producer_epoch: Annotated[int | None, Column(drop_order=2)]
    duration_ms: Annotated[int | None, Column(drop_order=1)]
    partitions: Annotated[list[TopicPartitionsItem], Column(wraps=True, shown=_partitions_text)]
    status: Annotated[str | None, "terminated or fenced; 'would be ...' without --yes."]
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
    "terminate",
    cls=ChangingCommand,
    epilog=examples("kctl transactions terminate billing-1", "kctl transactions terminate billing-1 --yes"),
)
@shows(TerminatedRow)
def terminate_verb(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Transactional ids.", metavar="TRANSACTIONAL_ID")],
    *,
    fence: Annotated[
        bool, typer.Option("--fence", help="Fence the producer also if it has no open transaction.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, also with --yes.")] = False,
) -> ExitStatus:
    """End the open transaction of a transactional id, and fence its producer; a dry run without --yes.

    The coordinator aborts the transaction in all its partitions; one in the state PrepareCommit is committed.  The
    command waits until that is done, at most for --timeout.  The producer gets an error with its next request: it has
    to be restarted.  'kctl transactions abort' ends a transaction without a coordinator, in one partition.

    Refused (exit status 5) if the transactional id has no open transaction, unless --fence is given.  Requires Kafka
    3.0 or later.
    """
    run: Invocation = ctx.obj
    now_ms = round(time.time() * 1000)
    executes = run.has_consent and not dry_run
    found = run.on_brokers(lambda client: describe_transactions(client, names))
    closed = [known_id for known_id in found if known_id.outcome.is_done and known_id.state not in OPEN_STATES]
    if closed and not fence:
        raise Refused(
            f"'{closed[0].outcome.name}' has no open transaction (its state is {closed[0].state}); --fence fences its "
            "producer nevertheless"
        )

    async def end(client: ClusterClient, transaction: Transaction) -> TerminatedRow:
        row = _terminated_row(transaction, now_ms)
        if row.error:
            return row
        if not executes:
            return row._replace(status=f"would be {row.status}")
        try:
            await terminate(client, transaction)
        except ApiError as error:
            message = str(error)
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                message = "its producer is fenced, but the markers are not written yet: repeat the command"
            return row._replace(status=None, **exception_error(ApiError(error.code, message)))
        return row

    async def end_all(client: ClusterClient) -> list[TerminatedRow]:
        return [await end(client, transaction) for transaction in found]

    rows = run.on_brokers(end_all)
    run.console.show(TerminatedRow, rows)
    if not executes and any(not row.error for row in rows):
        run.console.note("nothing was changed: repeat with --yes")
    return run.status_of(rows)


def _terminated_row(transaction: Transaction, now_ms: int) -> TerminatedRow:
    item = _item(transaction, now_ms)
    status = "terminated" if item.state in OPEN_STATES else "fenced"
    return TerminatedRow(
        transactional_id=item.transactional_id,
        state=item.state,
        producer_id=item.producer_id,
        producer_epoch=item.producer_epoch,
        duration_ms=item.duration_ms,
        partitions=item.partitions,
        status=None if item.error else status,
        error=item.error,
        message=item.message,
    )
