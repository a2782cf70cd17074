"""Writes the dead letters of an export into a topic, each once, after the batch with them was committed.

The files of dead letters are part of the commits, and the topic is derived from them: a transaction of the cluster
cannot include the commit of a table.  A run that ends between the two leaves letters outstanding, and the next one
writes them.  The progress, the offset in the exported topic after the last letter, is committed with the records (see
row_writer), so nothing is written twice.

A marker per topic, `_kctl/dead_letters/DEAD-LETTER-TOPIC/TOPIC/BATCH`, names the last batch whose letters are written.
It only saves reading the files of earlier batches again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import committed_offsets
from kctl.client.producing.transaction import TRANSACTION_TIMEOUT_MS, Transaction
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.records.compression import Codec
from kctl.tables.commits import layout
from kctl.tables.commits.existing import ExistingExport, OutstandingLetters
from kctl.tables.exec.targets.files import Files
from kctl.tables.exports.importing import Route, RowSpan, RowWriter, due_runs, records_of
from kctl.tables.plans.live_topic import live_topics
from kctl.tables.plans.plan import TopicPosition
from kctl.tables.plans.request import ExportRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from kctl.tables.verification.data_files import DataFiles, Extent

MARKERS = f"{layout.LOG_DIRECTORY}/dead_letters"
HEADER_TOPIC, HEADER_PARTITION, HEADER_OFFSET, HEADER_REASON = (
    f"kctl.dead-letter.{name}" for name in ("topic", "partition", "offset", "reason")
)
_UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})


def check_dead_letter_topic(request: ExportRequest) -> None:
    """Raise ApiError if the topic does not exist, ClusterUnreachable."""

    async def look() -> None:
        async with ClusterClient(request.client, BlockingTransport()) as client:
            await _partition_count(client, request.dead_letter_topic)

    run_blocking(look())


def write_dead_letters(request: ExportRequest, files: Files) -> int:
    """Write the outstanding letters of the exported topics; return their number.

    Raises ApiError, ClusterUnreachable and UnreadableFile; the next call goes on after the last transaction.
    """
    table = request.table
    existing = ExistingExport(files, catalog=table.catalog, namespace=table.namespace)
    due: dict[str, OutstandingLetters] = {}
    for topic in request.selection.topics:
        marker = _Marker(files, request.dead_letter_topic, topic)
        found = existing.outstanding_letters(topic, after=marker.batch)
        if found and found.paths:
            due[topic] = found
        elif found:
            marker.move(found.batch)
    if not due:
        return 0

    async def work() -> int:
        async with ClusterClient(request.client, AsyncioTransport()) as client:
            count = 0
            partitions = await _partition_count(client, request.dead_letter_topic)
            for topic, found in due.items():
                letters = _Letters(client, files, topic, found, request.dead_letter_topic, partitions)
                count += await letters.write()
                _Marker(files, request.dead_letter_topic, topic).move(found.batch)
            return count

    return asyncio.run(work())


def letters_group(dead_letter_topic: str, position: TopicPosition, incarnation: int) -> str:
    """Return the group with the progress of an exported topic, and its transactional id.

    Partitions of a later incarnation use offsets again, so they have a group of their own.
    """
    identity = position.topic_id if position.topic_id.int else position.cluster_id
    return f"kctl-dead-letters.{dead_letter_topic}.{identity}" + (f".r{incarnation}" if incarnation else "")


class _Marker:
    """The last batch of a topic whose letters were written."""

    def __init__(self, files: Files, dead_letter_topic: str, topic: str) -> None:
        self._files = files
        self._directory = f"{MARKERS}/{dead_letter_topic}/{layout.topic_directory(topic)}"
        self._held = [name for name in files.names(self._directory) if name.isdecimal()]

    @property
    def batch(self) -> int:
        """-1 if there is none."""
        return max(map(int, self._held), default=-1)

    def move(self, batch: int) -> None:
        """Replace the marker."""
        if batch <= self.batch:
            return
        self._files.create(f"{self._directory}/{batch:012d}", b"")
        for name in self._held:
            self._files.remove(f"{self._directory}/{name}")


class _Letters:
    """The outstanding letters of one topic."""

    def __init__(
        self,
        client: ClusterClient,
        files: Files,
        topic: str,
        found: OutstandingLetters,
        dead_letter_topic: str,
        partitions: int,
    ) -> None:
        from kctl.tables.verification.data_files import DataFiles  # noqa: PLC0415 - imports pyarrow

        self._client = client
        self._topic = topic
        self._position = found.position
        self._dead_letter_topic = dead_letter_topic
        self._route = Route(
            dead_letter_topic, lambda number: number % partitions, lambda number: TopicPartition(topic, number)
        )
        self._data: DataFiles = DataFiles(
            files, found.paths, topic, is_table=found.is_table, more=("headers", "reason")
        )
        if self._data.missing:
            raise KctlError(f"{files.location}/{self._data.missing[0]}, a file of dead letters, does not exist")

    async def write(self) -> int:
        """Write them; return their number."""
        by_incarnation: dict[int, list[int]] = {}
        for number, at in self._position.partitions.items():
            by_incarnation.setdefault(at.incarnation, []).append(number)
        return sum(
            [
                await self._write_incarnation(incarnation, numbers)
                for incarnation, numbers in sorted(by_incarnation.items())
            ]
        )

    async def _write_incarnation(self, incarnation: int, numbers: Collection[int]) -> int:
        extents = self._data.extents(dict.fromkeys(numbers, incarnation))
        group = letters_group(self._dead_letter_topic, self._position, incarnation)
        if not self._spans(extents, incarnation, await self._progress(group, extents, may_be_unstable=True)):
            return 0
        transaction = await Transaction.begin(self._client, group, timeout_ms=TRANSACTION_TIMEOUT_MS)
        # Again: another export may have been active until it was fenced.
        spans = self._spans(extents, incarnation, await self._progress(group, extents))
        writer = RowWriter(self._client, self._data, transaction, self._route, Codec.NONE)
        return sum(await writer.run(spans, extents, partial(_with_origin, topic=self._topic), lambda rows: None))

    def _spans(
        self, extents: Mapping[int, list[Extent]], incarnation: int, progress: Mapping[TopicPartition, int]
    ) -> list[RowSpan]:
        starts = {number: progress.get(TopicPartition(self._topic, number), 0) for number in extents}
        return [
            RowSpan(number, incarnation, starts[number], self._position.partitions[number].offset)
            for number in sorted(extents)
            if any(due_runs(extents[number], starts[number]))
        ]

    async def _progress(
        self, group: str, numbers: Iterable[int], *, may_be_unstable: bool = False
    ) -> dict[TopicPartition, int]:
        tps = [TopicPartition(self._topic, number) for number in numbers]

        async def look_up(connection: Connection) -> dict[TopicPartition, int]:
            found = await committed_offsets(connection, group, tps, may_be_unstable=may_be_unstable)
            return {tp: commit.offset for tp, commit in found.items()}

        return await self._client.on_coordinator(group, look_up, codes=_UNSTABLE)


def _with_origin(batch: pa.RecordBatch, *, topic: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records with headers that say where they are from, and why they are here."""
    partitions, reasons = (batch.column(name).to_pylist() for name in ("partition", "reason"))
    for (offset, row), partition, reason in zip(records_of(batch), partitions, reasons, strict=True):
        origin = {
            HEADER_TOPIC: topic,
            HEADER_PARTITION: str(partition),
            HEADER_OFFSET: str(offset),
            HEADER_REASON: reason or "",
        }
        row["headers"] += [(name, text.encode()) for name, text in origin.items()]
        yield offset, row


async def _partition_count(client: ClusterClient, topic: str) -> int:
    live = (await live_topics(client, [topic]))[topic]
    if isinstance(live, ApiError):
        raise ApiError(live.code, f"--dead-letter-topic: {live}")
    return len(live.logs)
