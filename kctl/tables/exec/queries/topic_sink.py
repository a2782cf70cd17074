"""The tasks of `format("kctl")` that write rows into topics, on executors.

A task writes in a transaction of its own, which it leaves open: the driver ends the transactions of all tasks
(kctl.tables.exec.queries.sink_commits).  A task that is attempted again has the same transactional id, so that its
records of before are aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.producing.partitioners import Partitioner
from kctl.client.producing.producer import Producer
from kctl.client.producing.settings import ProducerSettings
from kctl.client.producing.transaction import Transaction
from kctl.client.settings import ClientSettings
from kctl.errors import KctlError, UsageError
from kctl.model import INT32_MAX, ProducerIdAndEpoch, TopicPartition
from kctl.system.reference_cycles import copy_of

COLUMNS = ("topic", "partition", "key", "value", "headers")
"""The columns that are written, as in Spark's Kafka sink."""


GROUP = "kctl-spark"
"""Beginning of the names of groups and transactional ids."""
AFTER_FAILURE_S = 5.0
ROWS_WITHOUT_PAUSE = 1_000


class SinkRow(NamedTuple):
    """A record to write."""

    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Where and how rows are written; pickled by the driver."""

    settings: ClientSettings
    producer: ProducerSettings
    partitioner: Partitioner | None
    columns: tuple[str, ...]
    """Those of COLUMNS that the rows have."""
    topic: str
    """Of all rows; empty if they have a topic each."""
    transaction_timeout_ms: int | None
    """None to write without transactions, where repeated tasks write their rows again."""
    group: str
    """The group with the numbers of committed batches; with --txnAppId or a streaming query it is the same again."""
    batch: int | None
    """The number of the batch, which is committed once; None if it is not repeatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows(WriterCommitMessage):
    """What a task has written."""

    group: str
    task: int
    rows: int = 0
    producer: ProducerIdAndEpoch | None = None
    """That of the open transaction; None without one."""
    example: TopicPartition | None = None
    """A partition of the transaction."""
    is_repetition: bool = False
    """Whether nothing was written because the batch is committed."""


def transactional_id(group: str, task: int) -> str:
    """Return the transactional id of a task."""
    return f"{group}.{task}"


def rows_of(batches: Iterable[pa.RecordBatch], columns: tuple[str, ...]) -> Iterator[SinkRow]:
    """Yield the rows of batches that have these columns, and maybe others."""
    for batch in batches:
        values = {name: _values(batch.column(batch.schema.get_field_index(name)), name) for name in columns}
        absent = [None] * batch.num_rows
        for topic, partition, key, value, headers in zip(*(values.get(name, absent) for name in COLUMNS), strict=True):
            yield SinkRow(topic, partition, key, value, headers or ())


def _values(column: pa.Array, name: str) -> list[Any]:
    if name in {"key", "value"}:
        is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        return column.cast(pa.large_binary() if is_large else pa.binary()).to_pylist()  # type: ignore[no-any-return]
    if name == "headers":
        return [
            row and tuple((header["key"], header["value"]) for header in row if header is not None)
            for row in column.to_pylist()
        ]
    return column.to_pylist()  # type: ignore[no-any-return]


def rows_of_spark(rows: Iterable[Any], columns: tuple[str, ...]) -> Iterator[SinkRow]:
    """Yield the same from the rows of PySpark 4.0, whose streaming queries have no Arrow batches."""
    for row in rows:
        values: Mapping[str, Any] = {name: row[name] for name in columns}
        key, value = (
            given.encode() if isinstance(given := values.get(name), str) else (given and bytes(given)) or given
            for name in ("key", "value")
        )
        headers = tuple((header["key"], header["value"]) for header in values.get("headers") or ())
        yield SinkRow(values.get("topic"), values.get("partition"), key, value, headers)


async def write_rows(sink: TopicSink, task: int, rows: Iterator[SinkRow], *, is_committed: bool) -> WrittenRows:
    """Write the rows of a task, and leave their transaction open.

    Raises UsageError for a row that cannot be written, ApiError and ClusterUnreachable; the transaction is aborted.
    """
    written = WrittenRows(group=sink.group, task=task, is_repetition=is_committed)
    first = None if is_committed else next(rows, None)
    if first is None:
        return written
    async with ClusterClient(sink.settings, AsyncioTransport()) as client:
        transaction = None
        if sink.transaction_timeout_ms is not None:
            transaction = await Transaction.begin(
                client, transactional_id(sink.group, task), timeout_ms=sink.transaction_timeout_ms
            )
        writer = _Writer(client, sink, transaction)
        try:
            count = await writer.write(first, rows)
        except BaseException:
            await writer.abort()
            raise
        finally:
            await writer.stop()
        example = next(iter(transaction.added)) if transaction else None
        producer = transaction.producer if transaction else None
        return WrittenRows(group=sink.group, task=task, rows=count, producer=producer, example=example)


class _Writer:
    def __init__(self, client: ClusterClient, sink: TopicSink, transaction: Transaction | None) -> None:
        self._sink = sink
        self._transaction = transaction
        self._producer = Producer(client, sink.producer, transaction=transaction, partitioner=sink.partitioner)

    async def write(self, first: SinkRow, rows: Iterator[SinkRow]) -> int:
        """Write rows until they have their results; return their number."""
        count = 0
        row: SinkRow | None = first
        while row is not None:
            topic = self._sink.topic or row.topic
            if not topic:
                raise UsageError(f"row {count} of a task has no topic: give the option topic, or a topic in each row")
            if row.partition is not None and not 0 <= row.partition <= INT32_MAX:
                raise UsageError(f"row {count} of a task: {row.partition} is not a partition of {topic}")
            for name, _ in row.headers:
                if name is None:
                    raise UsageError(f"row {count} of a task has a header without a key")
            await self._producer.send(topic, row.value, key=row.key, headers=row.headers, partition=row.partition)
            count += 1
            self._check()
            if count % ROWS_WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)  # for the sender
            row = next(rows, None)
        await self._producer.flush()
        self._check()
        return count

    def _check(self) -> None:
        """Raise the error of a batch that was not written."""
        if self._producer.failure is not None:
            raise copy_of(self._producer.failure)

    async def abort(self) -> None:
        """Abort the transaction; if that fails, the next attempt or the coordinator does it."""
        self._producer.abandon()
        if self._transaction is not None:
            with contextlib.suppress(TimeoutError, KctlError):
                async with asyncio.timeout(AFTER_FAILURE_S):
                    await self._transaction.abort()

    async def stop(self) -> None:
        """End the producer, and not the transaction."""
        await self._producer.stop()
