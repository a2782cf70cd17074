"""`kctl producers`: what partitions remember of idempotent and transactional producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import NO_ERROR, exception_error, known
from kctl.commands.values import format_time, parse_partitions
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ApiError

if TYPE_CHECKING:
    from kctl.admin.producers import ActiveProducer
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition

app = Group("producers", "Look at idempotent and transactional producers.")

COLUMNS = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("producer_id", numeric=True),
    Column("producer_epoch", numeric=True),
    Column("coordinator_epoch", numeric=True),
    Column("last_sequence", numeric=True),
    Column("last_time"),
    Column("txn_start_offset", numeric=True),
    *ERROR_COLUMNS,
)


@app.command(
    "describe",
    cluster=True,
    examples=("kctl producers describe orders", "kctl producers describe orders --partition 0,3-5 --open"),
)
def describe(
    run: Invocation,
    topics: Annotated[list[str], Argument("Topics to look at.", metavar="TOPIC")],
    *,
    partition: Annotated[
        str | None, Option("--partition", metavar="N,N-N", help="Only these partitions.  Default: all.")
    ] = None,
    broker: Annotated[
        int | None,
        Option("--broker", metavar="N", help="What this broker knows as a replica.  Default: what the leaders know."),
    ] = None,
    open_: Annotated[bool, Option("--open", help="Only producers with an open transaction.")] = False,
) -> ExitStatus:
    """Describe the producers that partitions remember.

    TXN-START-OFFSET is where the open transaction of a producer began, and empty where there is none.  Brokers before
    2.8 do not tell.
    """
    from kctl.admin.offsets import partitions_of  # noqa: PLC0415 - help needs no client
    from kctl.admin.producers import describe_producers  # noqa: PLC0415 - same
    from kctl.model import TopicPartition  # noqa: PLC0415 - same

    wanted = parse_partitions(partition)

    async def ask(client: ClusterClient) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for topic in sorted(set(topics)):
            try:
                tps = await partitions_of(client, [topic])
                if wanted is not None:
                    tps = [TopicPartition(topic, number) for number in wanted]
                found = await describe_producers(client, tps, broker=broker)
            except ApiError as error:
                rows.append({"topic": topic, "partition": None, **exception_error(error)})
                continue
            for tp, producers in found.items():
                if isinstance(producers, ApiError):
                    rows.append({"topic": tp.topic, "partition": tp.partition, **exception_error(producers)})
                else:
                    rows.extend(producer_row(tp, one) for one in producers if one.has_transaction or not open_)
        return rows

    rows = run.on_cluster(ask)
    run.console.show(COLUMNS, rows)
    return run.status_of(rows)


def producer_row(tp: TopicPartition, producer: ActiveProducer) -> dict[str, Any]:
    """One producer of one partition."""
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": known(producer.coordinator_epoch),
        "last_sequence": known(producer.last_sequence),
        "last_timestamp_ms": known(producer.last_timestamp_ms),
        "last_time": format_time(producer.last_timestamp_ms),
        "txn_start_offset": known(producer.txn_start_offset),
        **NO_ERROR,
    }
