"""`kctl producers`: describe idempotent and transactional producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.topics.offsets import partitions_of
from kctl.admin.topics.transactions import describe_producers
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Partitions, list_of
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.rows import exception_error, known
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.errors import ApiError
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText
from kctl.output.quantities import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.topics.transactions import ActiveProducer
    from kctl.client.cluster import ClusterClient

    ProducerResult = tuple[str, int | None, Sequence[ActiveProducer] | ApiError]
    """The producers of a partition, or an error; the partition is None if the error is about the topic."""


# `kctl transactions describe-producers`.


verbs = typer.Typer(add_completion=False)


class ProducerRow(NamedTuple):
    """A producer of a partition."""

    topic: str
    partition: int | None
    producer_id: int
    producer_epoch: Annotated[int, Column(drop_order=2)]
    coordinator_epoch: Annotated[int | None, Column(drop_order=1)]
    last_sequence: Annotated[int | None, Column(drop_order=3)]
    last_timestamp_ms: Annotated[int | None, JSON_ONLY]
    last_time: Annotated[str | None, Column(drop_order=4)]
    txn_start_offset: int | None
    error: ErrorName = None
    message: ErrorText = None


class PartitionFailureRow(NamedTuple):
    """A partition, or a topic, whose producers are unknown."""

    topic: str
    partition: int | None
    error: str | None
    message: str | None


@verbs.command(
    "describe-producers",
    cls=QueryCommand,
    epilog=examples(
        "kctl transactions describe-producers orders",
        "kctl transactions describe-producers orders --partition 0,3-5 --open",
    ),
)
@shows(ProducerRow, PartitionFailureRow)
def describe(
    ctx: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Topics whose producers to describe.", metavar="TOPIC")],
    *,
    partition: Annotated[
        Partitions | None, typer.Option("--partition", parser=Partitions, help="Only these partitions.  Default: all.")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker",
            metavar="N",
            help="Query this broker, which must be a replica.  Default: the leaders.",
            min=0,
            max=INT32_MAX,
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Only producers with an open transaction.")] = False,
) -> ExitStatus:
    """Describe the idempotent and transactional producers of partitions.

    TXN-START-OFFSET is the first offset of a producer's open transaction, and empty if there is none.  Requires Kafka
    2.8 or later.
    """
    run: Invocation = ctx.obj
    found = run.on_brokers(lambda client: _query(client, topics, list_of(partition), broker=broker))
    if open_:
        found = [
            (
                topic,
                number,
                producers
                if isinstance(producers, ApiError)
                else [producer for producer in producers if producer.has_transaction],
            )
            for topic, number, producers in found
        ]
    rows: list[ProducerRow | PartitionFailureRow] = []
    for topic, number, producers in found:
        if isinstance(producers, ApiError):
            rows.append(PartitionFailureRow(topic, number, **exception_error(producers)))
        else:
            by_id = sorted(producers, key=lambda producer: producer.producer_id)
            rows.extend(producer_row(topic, number, producer) for producer in by_id)
    run.console.show(ProducerRow, rows)
    return run.status_of(rows)


async def _query(
    client: ClusterClient, topics: Sequence[str], requested: Sequence[int] | None, *, broker: int | None
) -> list[ProducerResult]:

    async def send_one(topic: str) -> list[ProducerResult]:
        try:
            tps = await partitions_of(client, [topic])
            if requested is not None:
                tps = [TopicPartition(topic, number) for number in requested]
            found = await describe_producers(client, tps, broker=broker)
        except ApiError as error:
            return [(topic, None, error)]
        return [(tp.topic, tp.partition, producers) for tp, producers in found.items()]

    responses = await client.gather([send_one(topic) for topic in sorted(set(topics))])
    return [part for some in responses for part in some]


def producer_row(topic: str, partition: int | None, producer: ActiveProducer) -> ProducerRow:
    """Return one producer of one partition."""
    return ProducerRow(
        topic=topic,
        partition=partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=known(producer.coordinator_epoch),
        last_sequence=known(producer.last_sequence),
        last_timestamp_ms=known(producer.last_timestamp_ms),
        last_time=format_time(producer.last_timestamp_ms),
        txn_start_offset=known(producer.txn_start_offset),
    )
