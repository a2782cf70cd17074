"""Writes rows of data files into a topic, in transactions that also commit how far they were written.

The progress is the committed offset of a group for a partition: the offset in the files of the next row.  So both the
records and the progress exist, or neither (KIP-98).  The group is the transactional id too, so that a second writer
fences the first one before it reads the progress.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.client.cluster import ClusterClient
from kctl.client.committed_offsets import CommittedOffset
from kctl.client.group_metadata import GroupMetadata
from kctl.client.producer import Delivery, Producer, ProducerSettings
from kctl.client.transaction import Transaction
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.records.compression import Codec

if TYPE_CHECKING:
    import pyarrow as pa

    from kctl.spark.verification.data_files import DataFiles, Extent

COMMIT_MS = 1_000
"""How long a transaction is open."""
AFTER_INTERRUPT_S = 5.0


class RowSpan(NamedTuple):
    """The rows of a partition to write: from `start` on, up to the offset `end` of the export (exclusive)."""

    partition: int
    incarnation: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Route:
    """Where rows go."""

    topic: str
    partition_of: Callable[[int], int]
    """The partition of the topic for one of the export."""
    progress_of: Callable[[int], TopicPartition]
    """The partition whose committed offset is the progress of one of the export."""


class RowWriter:
    """Writes rows.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        data: DataFiles,
        transaction: Transaction,
        route: Route,
        codec: Codec,
        mark: str = "",
    ) -> None:
        """`mark` is the metadata of the commits of progress (kctl.admin.kept_progress)."""
        self._data = data
        self._route = route
        self._transaction = transaction
        self._now_ms = client.transport.monotonic_ms
        self._committed_ms = self._now_ms()
        self._failure: KctlError | None = None
        self._producer = Producer(client, ProducerSettings(codec=codec), self._delivered, transaction=transaction)
        self._moved: dict[TopicPartition, int] = {}
        self._mark = mark
        self._rows = 0

    async def run(
        self,
        spans: Sequence[RowSpan],
        extents: Mapping[int, list[Extent]],
        records: Callable[[pa.RecordBatch], Iterable[tuple[int, dict[str, Any]]]],
        on_rows: Callable[[int], None],
    ) -> list[int]:
        """Returns the numbers of written rows.  After an exception the open transaction is aborted."""
        counts = []
        try:
            for span in spans:
                before = self._rows
                for run in due_runs(extents.get(span.partition, ()), span.start):
                    await self._write(span, run, records, on_rows)
                if span.start < span.end:
                    self._moved[self._route.progress_of(span.partition)] = span.end
                counts.append(self._rows - before)
            await self._commit()
        except BaseException:
            self._producer.abandon()
            with contextlib.suppress(TimeoutError, KctlError):
                async with asyncio.timeout(AFTER_INTERRUPT_S):
                    await self._transaction.abort()  # otherwise the coordinator aborts it after its time-out
            raise
        return counts

    async def _write(
        self,
        span: RowSpan,
        run: Sequence[Extent],
        records: Callable[[pa.RecordBatch], Iterable[tuple[int, dict[str, Any]]]],
        on_rows: Callable[[int], None],
    ) -> None:
        progress = self._route.progress_of(span.partition)
        position = self._moved.get(progress, span.start)
        groups = [one.group for one in run]
        for batch in self._data.ordered_records(groups, span.partition, span.incarnation, span.start):
            if not batch.num_rows:
                continue
            for offset, row in records(batch):
                await self._producer.send(self._route.topic, partition=self._route.partition_of(span.partition), **row)
                position = offset + 1
            self._rows += batch.num_rows
            self._moved[progress] = position
            await self._producer.flush()
            on_rows(self._rows)
            if self._now_ms() - self._committed_ms >= COMMIT_MS:
                await self._commit()

    async def _commit(self) -> None:
        """Commits the records sent so far, and the progress, in one transaction."""
        await self._producer.flush()
        if self._failure is not None:
            raise self._failure
        if self._moved:
            commits = {tp: CommittedOffset(offset, metadata=self._mark) for tp, offset in self._moved.items()}
            await self._transaction.add_offsets(GroupMetadata(self._transaction.transactional_id), commits)
        await self._transaction.commit()
        self._committed_ms = self._now_ms()

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self._failure = self._failure or delivery.error


def records_of(batch: pa.RecordBatch) -> Iterator[tuple[int, dict[str, Any]]]:
    """The offset of each row, and its record as arguments of Producer.send."""
    import pyarrow as pa  # noqa: PLC0415 - heavy

    from kctl.spark.exec.headers import entries_of  # noqa: PLC0415 - imports pyarrow

    headers: list[Any] = [None] * batch.num_rows
    if "headers" in batch.schema.names:
        headers = entries_of(batch.column("headers")).to_pylist()
    stamps = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    for offset, key, value, stamp_us, entries in zip(
        batch.column("offset").to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        stamps,
        headers,
        strict=True,
    ):
        yield (
            offset,
            {
                "key": key,
                "value": value,
                "timestamp_ms": -1 if stamp_us is None else stamp_us // 1000,
                "headers": [(entry["key"], entry["value"]) for entry in entries or ()],
            },
        )


def due_runs(extents: Iterable[Extent], start: int) -> Iterator[list[Extent]]:
    """The runs of overlapping extents with offsets from `start` on."""
    return (run for run in overlapping(extents) if run[-1].last >= start)


def overlapping(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Extents in ascending order in runs of those that overlap; the last of a run reaches furthest."""
    run: list[Extent] = []
    for extent in extents:
        if run and extent.first > run[-1].last:
            yield run
            run = []
        run.append(extent)
        run.sort(key=lambda one: one.last)
    if run:
        yield run
