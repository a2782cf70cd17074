"""`kctl transactions`: look at transactions, find those that hang, and abort them."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.commands.rows import NO_ERROR, known, outcome_error
from kctl.commands.times import parse_duration_ms
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.integers import INT16_MAX, INT64_MAX, parse_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.outcome import Outcome
    from kctl.admin.producers import Marker
    from kctl.admin.transactions import OpenTransaction, Transaction
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition

app = Group("transactions", "Look at transactions, find hanging ones and abort them.")

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")

COMPATS = ("kafka-3", "kafka-4")
Compat = Annotated[
    str | None, Option("--compat", choices=COMPATS, help="Print what Kafka's own tool of that version prints.")
]

LIST_COLUMNS = (
    Column("transactional_id"),
    Column("coordinator", numeric=True),
    Column("producer_id", numeric=True),
    Column("state"),
    *ERROR_COLUMNS,
)
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
HANGING_COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("producer_id", numeric=True),
    Column("producer_epoch", numeric=True),
    Column("coordinator_epoch", numeric=True),
    Column("start_offset", numeric=True),
    Column("last_time"),
    Column("idle_ms", numeric=True),
    Column("transactional_id"),
    *ERROR_COLUMNS,
)
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


@app.command(
    "list", cluster=True, examples=("kctl transactions list", "kctl transactions list --state Ongoing --format json")
)
def list_transactions(
    run: Invocation,
    *,
    state: Annotated[
        list[str] | None, Option("--state", choices=STATES, help="Only transactions in this state.")
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        Option("--producer-id", metavar="N", help="Only those of this producer.", maximum=INT64_MAX),
    ] = None,
    compat: Compat = None,
) -> ExitStatus:
    """List the transactional ids of all brokers with the state of their last transaction.

    Brokers before 3.0 do not tell.
    """
    from kctl.admin.transactions import list_transactions as ask  # noqa: PLC0415 - help needs no client

    listed, failed = run.on_brokers(lambda client: ask(client, states=state or (), producer_ids=producer_id or ()))
    if compat:
        from kctl.commands import transaction_compat  # noqa: PLC0415 - rarely used

        run.console.verbatim(transaction_compat.listed(listed))
        return _warned(run, failed)
    rows: list[dict[str, Any]] = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator_id,
            "producer_id": one.producer_id,
            "state": one.state,
            **NO_ERROR,
        }
        for one in sorted(listed, key=lambda one: one.transactional_id)
    ]
    rows.extend({"transactional_id": None, "coordinator": int(one.name), **outcome_error(one)} for one in failed)
    run.console.show(LIST_COLUMNS, rows)
    return run.status_of(rows)


@app.command("describe", cluster=True, examples=("kctl transactions describe billing-1",))
def describe(
    run: Invocation,
    names: Annotated[list[str], Argument("Transactional ids.", metavar="TRANSACTIONAL_ID")],
    *,
    compat: Compat = None,
) -> ExitStatus:
    """Describe transactions: state, producer, time and partitions.

    Brokers before 3.0 do not tell.
    """
    from kctl.admin.transactions import describe_transactions  # noqa: PLC0415 - help needs no client

    async def ask(client: ClusterClient) -> list[Transaction]:
        return await describe_transactions(client, names)

    found = run.on_brokers(ask)
    now_ms = round(time.time() * 1000)
    if compat:
        return _describe_as_kafka(run, found, now_ms)
    items = [_item(one, now_ms) for one in found]
    rows = [{**item, "partitions": _text(item["partitions"])} for item in items]
    run.console.show(DESCRIBE_COLUMNS, items, rows=rows)
    return run.status_of(items)


def _describe_as_kafka(run: Invocation, found: Sequence[Transaction], now_ms: int) -> ExitStatus:
    from kctl.commands import transaction_compat  # noqa: PLC0415 - rarely used

    brokers = run.on_brokers(lambda client: client.metadata([])).brokers.values()
    ids = {f"{broker.host}:{broker.port}": broker.node_id for broker in brokers}
    for one in found:
        if one.outcome.is_done:
            run.console.verbatim(transaction_compat.described(one, ids.get(one.coordinator, -1), now_ms))
    return _warned(run, [one.outcome for one in found if not one.outcome.is_done])


def _warned(run: Invocation, failed: Sequence[Outcome]) -> ExitStatus:
    """What could not be told goes to stderr where stdout is Kafka's."""
    for one in failed:
        run.console.warn(f"{one.name}: {one.message}")
    return ExitStatus.FAILED if failed else ExitStatus.DONE


@app.command(
    "find-hanging",
    cluster=True,
    examples=("kctl transactions find-hanging", "kctl transactions find-hanging --topic orders:0-3 --idle 1h"),
)
def find_hanging(
    run: Invocation,
    *,
    topic: Annotated[
        list[str] | None,
        Option(
            "--topic",
            metavar="TOPIC[:N,N-N]",
            help="Only this topic, or some of its partitions.  Default: all topics.",
        ),
    ] = None,
    idle: Annotated[
        str,
        Option(
            "--idle",
            metavar="DURATION",
            help="Only transactions that are silent for longer: take the brokers' transaction.max.timeout.ms.",
        ),
    ] = "15m",
    compat: Compat = None,
) -> ExitStatus:
    """Find open transactions that no coordinator will end, and that keep readers of committed records from going on.

    The exit status is 3 when there are some.  'kctl transactions abort' ends one.  Brokers before 3.0 do not tell.
    """
    from kctl.admin import transactions  # noqa: PLC0415 - help needs no client
    from kctl.commands.group_reset import parse_scope  # noqa: PLC0415 - same

    scope = parse_scope(topic, all_topics=not topic)
    now_ms = round(time.time() * 1000)
    idle_since_ms = now_ms - parse_duration_ms(idle)

    tps = run.on_brokers(lambda client: _partitions(client, scope))
    found, failed = run.on_brokers(lambda client: transactions.find_hanging(client, tps, idle_since_ms=idle_since_ms))
    if compat:
        from kctl.commands import transaction_compat  # noqa: PLC0415 - rarely used

        run.console.verbatim(transaction_compat.hanging(found, tps, now_ms))
        return _warned(run, failed) or (ExitStatus.UNMET if found else ExitStatus.DONE)
    rows = [_hanging_row(one, now_ms) for one in found]
    errors: list[dict[str, Any]] = [
        {"topic": None, "partition": None, **outcome_error(one), "message": f"{one.name}: {one.message}"}
        for one in failed
    ]
    run.console.show(HANGING_COLUMNS, rows + errors)
    for one in found:
        start = one.producer.txn_start_offset
        run.console.note(f"to end it: kctl transactions abort {one.tp.topic}:{one.tp.partition} --start-offset {start}")
    if errors:
        return ExitStatus.FAILED
    return ExitStatus.UNMET if rows else ExitStatus.DONE


@app.command(
    "abort",
    cluster=True,
    examples=(
        "kctl transactions abort orders:0 --start-offset 1234 --dry-run",
        "kctl transactions abort orders:0 --start-offset 1234 --yes",
        "kctl transactions abort orders:0 --producer-id 4000 --producer-epoch 7 --coordinator-epoch 3 --yes",
    ),
)
def abort(
    run: Invocation,
    partition: Annotated[str, Argument("The partition in which it is open.", metavar="TOPIC:PARTITION")],
    *,
    start_offset: Annotated[
        int | None,
        Option(
            "--start-offset",
            metavar="N",
            help="Where the transaction began; who wrote it is looked up.",
            maximum=INT64_MAX,
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        Option("--producer-id", metavar="N", help="Instead: whose it is, with both epochs.", maximum=INT64_MAX),
    ] = None,
    producer_epoch: Annotated[
        int | None, Option("--producer-epoch", metavar="N", help="Epoch of the producer.", maximum=INT16_MAX)
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        Option("--coordinator-epoch", metavar="N", help="Epoch of the producer's last coordinator.", minimum=-1),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Also where a coordinator is about to end the transaction itself.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do it without asking.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be done and do nothing.")] = False,
) -> ExitStatus:
    """Abort a hanging transaction in one partition: its records stay hidden, readers of committed records go on.

    A transaction that its coordinator knows is refused (exit status 5) without --force: it can still be committed, and
    would then lose this partition's part.  Without --yes it asks on the terminal; without a terminal it refuses.
    """
    from kctl.admin.producers import Marker, write_abort_marker  # noqa: PLC0415 - help needs no client

    tp = _partition(partition)
    explicit = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) is all(one is None for one in explicit):
        raise UsageError("say which transaction: --start-offset, or --producer-id with both epochs")
    if start_offset is None:
        if producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise UsageError("--producer-id, --producer-epoch and --coordinator-epoch go together")
        marker = Marker(tp, producer_id, producer_epoch, coordinator_epoch)
    else:
        marker = run.on_brokers(lambda client: _find(client, tp, start_offset))
    if not force:
        _refuse_if_coordinated(run, marker)
    outcome = None
    if not dry_run:
        run.consent(f"Abort the transaction of producer {marker.producer_id} in {tp}?", yes=yes)
        outcome = run.on_brokers(lambda client: write_abort_marker(client, marker))
    is_done = outcome is None or outcome.is_done
    row = {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": known(marker.coordinator_epoch),
        "start_offset": start_offset,
        "status": ("would be aborted" if dry_run else "aborted") if is_done else None,
        **(NO_ERROR if outcome is None else outcome_error(outcome)),
    }
    run.console.show(ABORT_COLUMNS, [row])
    return run.status_of([row])


async def _find(client: ClusterClient, tp: TopicPartition, start_offset: int) -> Marker:
    """What ends the transaction that began there.  Raises ApiError when there is none."""
    from kctl.admin.producers import Marker, describe_producers  # noqa: PLC0415 - help needs no client

    producers = (await describe_producers(client, [tp]))[tp]
    if isinstance(producers, ApiError):
        raise ApiError(producers.code, f"{tp}: {producers}")
    for one in producers:
        if one.txn_start_offset == start_offset:
            return Marker(tp, one.producer_id, one.producer_epoch, one.coordinator_epoch)
    raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{tp}: no open transaction begins at offset {start_offset}")


def _refuse_if_coordinated(run: Invocation, marker: Marker) -> None:
    from kctl.admin.transactions import owner_of  # noqa: PLC0415 - help needs no client

    try:
        owner = run.on_brokers(lambda client: owner_of(client, marker.producer_id))
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        run.console.warn("brokers before 3.0 do not tell whether a coordinator is about to end the transaction")
        return
    if owner is not None and owner.producer_id == marker.producer_id and marker.tp in owner.partitions:
        raise Refused(
            f"the transaction does not hang: the coordinator of '{owner.outcome.name}' has it as {owner.state}; "
            "--force aborts it in this partition all the same"
        )


async def _partitions(client: ClusterClient, scope: dict[str, list[int] | None] | None) -> list[TopicPartition]:
    from kctl.admin.offsets import partitions_of  # noqa: PLC0415 - help needs no client
    from kctl.model import TopicPartition  # noqa: PLC0415 - same

    if scope is None:
        metadata = await client.metadata()
        return [TopicPartition(name, one.partition) for name, it in metadata.topics.items() for one in it.partitions]
    tps = await partitions_of(client, scope)
    chosen = [tp for tp in tps if scope[tp.topic] is None]
    return chosen + [TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()]


def _partition(text: str) -> TopicPartition:
    from kctl.model import TopicPartition  # noqa: PLC0415 - help needs it not

    found = re.fullmatch(r"([^:]+):([0-9]+)", text)
    if found is None:
        raise UsageError(f"'{text}' is no partition; write TOPIC:PARTITION")
    return TopicPartition(found[1], parse_integer(found[2], "a partition"))


def _item(one: Transaction, now_ms: int) -> dict[str, Any]:
    """A transaction as JSON tells it."""
    topics: dict[str, list[int]] = {}
    for tp in one.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {
        "transactional_id": one.outcome.name,
        "coordinator": one.coordinator or None,
        "producer_id": known(one.producer_id),
        "producer_epoch": known(one.producer_epoch),
        "state": one.state or None,
        "timeout_ms": known(one.timeout_ms),
        "start_timestamp_ms": known(one.start_ms),
        "start_time": format_time(one.start_ms),
        "duration_ms": max(0, now_ms - one.start_ms) if one.state in OPEN_STATES and one.start_ms >= 0 else None,
        "partitions": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
        **outcome_error(one.outcome),
    }


def _text(partitions: list[dict[str, Any]]) -> str | None:
    return " ".join(f"{one['topic']}({','.join(map(str, one['partitions']))})" for one in partitions) or None


def _hanging_row(one: OpenTransaction, now_ms: int) -> dict[str, Any]:
    producer = one.producer
    return {
        "topic": one.tp.topic,
        "partition": one.tp.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": known(producer.coordinator_epoch),
        "start_offset": producer.txn_start_offset,
        "last_timestamp_ms": known(producer.last_timestamp_ms),
        "last_time": format_time(producer.last_timestamp_ms),
        "idle_ms": max(0, now_ms - producer.last_timestamp_ms),
        "transactional_id": one.transactional_id,
        **NO_ERROR,
    }
