"""Writes the rows of an export back into a topic, each record exactly once.

Progress is the committed offset of a group, one per partition of the topic: the offset in the export of the next row.
It is committed in the transaction that contains the records (KIP-98), so both exist or neither.  Marker records in the
topic would do the same, but readers would see them, and `kctl groups describe` shows a group.  The name of the group
contains the identity of the exported topic, so that a folder can be moved and two exports do not share progress.  It is
the transactional id too, so a second import fences the first one before it reads the progress.

Groups without members lose their offsets after offsets.retention.minutes (7 days).  Therefore a topic that has records
in a partition without progress is refused.  The progress of all partitions is committed before the first record, so an
import that was interrupted at any time is not refused.  The metadata of a commit has the id of the topic that is
written: progress of a topic that was deleted and created again since is refused too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.admin.copy.kept_progress import ProgressMark, other_topic, parse_mark
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, committed_offsets
from kctl.client.consuming.groups.metadata import GroupMetadata
from kctl.client.producing.producer import Delivery, Producer, ProducerSettings
from kctl.client.producing.transaction import Transaction
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.records.compression import Codec
from kctl.tables.commits.existing import ExistingExport, ExportedTopic
from kctl.tables.exec.file_task import DEAD_LETTERS
from kctl.tables.exec.targets.files import Files
from kctl.tables.formats.kinds import TableKind
from kctl.tables.plans.live_topic import LiveLog, LiveTopic, live_topics
from kctl.tables.plans.plan import TopicPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from kctl.tables.verification.data_files import DataFiles, Extent


# Writes rows of data files into a topic, in transactions that also commit how far they were written.
#
# The progress is the committed offset of a group for a partition: the offset in the files of the next row. So both
# the records and the progress exist, or neither (KIP-98). The group is the transactional id too, so that a second
# writer fences the first one before it reads the progress.


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
        """`mark` is the metadata of the commits of progress (kctl.admin.copy.kept_progress)."""
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
        """Return the numbers of written rows.  After an exception the open transaction is aborted."""
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
        groups = [extent.group for extent in run]
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
        """Commit the records sent so far, and the progress, in one transaction."""
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
    """Yield the offset of each row, and its record as arguments of Producer.send."""
    import pyarrow as pa  # noqa: PLC0415 - heavy

    from kctl.tables.exec.selection.columns import entries_of  # noqa: PLC0415 - imports pyarrow

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
    """Return the runs of overlapping extents with offsets from `start` on."""
    return (run for run in overlapping(extents) if run[-1].last >= start)


def overlapping(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Extents in ascending order in runs of those that overlap; the last of a run reaches furthest."""
    run: list[Extent] = []
    for extent in extents:
        if run and extent.first > run[-1].last:
            yield run
            run = []
        run.append(extent)
        run.sort(key=lambda other: other.last)
    if run:
        yield run


_UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})
_NEEDED = ("key", "value", "timestamp")


class NotImportable(KctlError):
    """The files, or the topic, are not in a state in which an import would be exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Options of an import."""

    topic: str
    """The topic to write."""
    source: str | None = None
    """The exported topic; None: the one of the same name, or the only one."""
    codec: Codec = Codec.NONE
    appends: bool = False
    """Whether a partition without progress may have records."""
    is_dry_run: bool = False
    transaction_timeout_ms: int


class ImportedPartition(NamedTuple):
    """One partition: the rows from `start` on were written in this run, up to `end` (exclusive)."""

    partition: int
    start: int
    end: int
    records: int
    status: str
    """imported, complete (nothing was left to do) or planned."""


@dataclass(slots=True)
class Import:
    """The result."""

    source: str
    group: str
    partitions: list[ImportedPartition] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


async def import_export(
    client: ClusterClient,
    files: Files,
    existing: ExistingExport,
    request: ImportRequest,
    on_rows: Callable[[int], None],
) -> Import:
    """Write all rows that are not in the topic yet; `on_rows` is called with the number of rows written so far.

    All rows that it would write are read once before the transactional id is used, so that an import that is refused
    writes nothing, and does not fence another one.  Raises UsageError, NotImportable, UnreadableFile, TableFailed,
    ApiError and ClusterUnreachable; an open transaction is aborted then, and the next import continues after the last
    committed one.
    """
    from kctl.tables.verification.data_files import DataFiles  # noqa: PLC0415 - imports pyarrow

    if existing.options.upsert:
        raise NotImportable(
            f"{files.location} has the current state by key (--mode upsert), not the records of a topic: import an "
            "export without --mode upsert"
        )
    exported = existing.topic(_source(existing, request))
    data = DataFiles(files, exported.paths, exported.topic, is_table=exported.kind is not TableKind.PARQUET)
    if exported.is_set_back:
        raise NotImportable(f"the table of {exported.topic} was set back to an earlier state: set it forward again")
    letters = f"{DEAD_LETTERS}/"  # are not imported
    if missing := [*data.missing, *(path for path, _ in exported.missing if not path.startswith(letters))]:
        raise NotImportable(f"{missing[0]}, a file of the export, does not exist: restore it first")
    if exported.unknown:
        raise NotImportable(f"no commit names {exported.unknown[0]}: remove it, or adopt it with 'kctl export --adopt'")
    if lacking := [name for name in _NEEDED if name not in data.columns and name not in data.raws]:
        raise NotImportable(
            f"the files do not have the column {lacking[0]} as it is in a record: export with --keep-raw for that"
        )
    live = await _live_topic(client, request.topic, exported.position)
    imported = Import(exported.topic, import_group(request.topic, exported.position))
    starts = await _starts(client, request, imported.group, exported.position, live, may_be_unstable=True)
    incarnations = {partition: at.incarnation for partition, at in exported.position.partitions.items()}
    extents = data.extents(incarnations)
    _check_order(exported, extents)
    await _check_rows(data, exported, starts, extents)
    if any(incarnations.values()):
        imported.warnings.append("rows of earlier topics of this name, or from before a truncation, are left out")
    if exported.dead_letters:
        letters_data = DataFiles(files, exported.dead_letters, exported.topic, is_table=data.is_table)
        count = sum(group.rows for group in letters_data.groups)
        place = f"in {files.location}/{DEAD_LETTERS}"
        imported.warnings.append(counted(count, f"record {place} is not imported", f"records {place} are not imported"))
    if not data.header_form.is_list:
        imported.warnings.append(f"headers are imported as far as the export has them ({data.header_form.text})")
    if request.is_dry_run:
        imported.partitions = [
            _result(number, starts[number], at.offset, 0, "planned") for number, at in _positions(exported)
        ]
        return imported
    transaction = await Transaction.begin(client, imported.group, timeout_ms=request.transaction_timeout_ms)
    # Again: an earlier import may have been active until it was fenced.
    live = await _live_topic(client, request.topic, exported.position)
    starts = await _starts(client, request, imported.group, exported.position, live)
    await transaction.add_offsets(
        GroupMetadata(imported.group),
        {
            TopicPartition(request.topic, number): CommittedOffset(start, metadata=_mark(live).text())
            for number, start in starts.items()
        },
    )
    await transaction.commit()
    spans = [RowSpan(number, at.incarnation, starts[number], at.offset) for number, at in _positions(exported)]
    route = Route(request.topic, lambda number: number, lambda number: TopicPartition(request.topic, number))
    writer = RowWriter(client, data, transaction, route, request.codec, _mark(live).text())
    counts = await writer.run(spans, extents, records_of, on_rows)
    imported.partitions = [
        _result(span.partition, span.start, span.end, count, "imported" if span.start < span.end else "complete")
        for span, count in zip(spans, counts, strict=True)
    ]
    return imported


def import_group(topic: str, position: TopicPosition) -> str:
    """Return the group with the progress of imports of an exported topic into `topic`, and their transactional id."""
    return f"kctl-import.{topic}.{position.topic_id if position.topic_id.int else position.cluster_id}"


def _source(existing: ExistingExport, request: ImportRequest) -> str:
    topics = existing.state().topics
    if request.source is not None or request.topic in topics or len(topics) != 1:
        return request.source or request.topic
    return next(iter(topics))


async def _live_topic(client: ClusterClient, topic: str, position: TopicPosition) -> LiveTopic:
    """Return the topic to write.  Raises ApiError if it does not exist, UsageError if it has too few partitions."""
    live = (await live_topics(client, [topic]))[topic]
    if isinstance(live, ApiError):
        raise live
    needed = max(position.partitions, default=-1) + 1
    if len(live.logs) < needed:
        raise UsageError(
            f"topic {topic} has {counted(len(live.logs), 'partition')}, and the export {needed}: add partitions"
        )
    return live


async def _starts(
    client: ClusterClient,
    request: ImportRequest,
    group: str,
    position: TopicPosition,
    live: LiveTopic,
    *,
    may_be_unstable: bool = False,
) -> dict[int, int]:
    """Return the offset in the export from which each partition is continued.

    `may_be_unstable`: without the open transaction of another import.  Raises NotImportable for a partition with
    records but without progress, unless records are appended.
    """
    tps = [TopicPartition(request.topic, number) for number in position.partitions]

    async def look_up(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
        return await committed_offsets(connection, group, tps, may_be_unstable=may_be_unstable)

    committed = await client.on_coordinator(group, look_up, codes=_UNSTABLE)
    now = _mark(live)
    for tp in tps:
        commit = committed.get(tp)
        mark = None if commit is None else parse_mark(commit.metadata)
        if mark is not None and (problem := other_topic(mark, now)) is not None:
            raise NotImportable(
                f"{tp}: {problem}.  The committed offsets of group {group} are of the old topic: delete the group with "
                f"'kctl groups delete {group}' to import all rows again"
            )
        log = live.logs[tp.partition]
        if isinstance(log, ApiError):
            raise ApiError(log.code, f"{tp}: {log}")
        if tp not in committed and not request.appends and _has_records(log):
            raise NotImportable(
                f"{tp} has records, and group {group} no progress of an import: import into an empty topic, or use "
                "--append if these records are not from this export"
            )
    return {tp.partition: committed[tp].offset if tp in committed else 0 for tp in tps}


def _mark(live: LiveTopic) -> ProgressMark:
    """Return the identity of the topic that is written; that of the export is in the name of the group."""
    return ProgressMark.of(target=live.topic_id, target_cluster=live.cluster_id)


def _has_records(log: LiveLog) -> bool:
    return log.high_watermark > log.start


def _check_order(exported: ExportedTopic, extents: Mapping[int, list[Extent]]) -> None:
    for partition, extents_of_partition in extents.items():
        for run in overlapping(extents_of_partition):
            for before, after in itertools.pairwise(run):
                if before.group.path != after.group.path:
                    raise NotImportable(
                        f"{before.group.path} and {after.group.path} overlap in the offsets of "
                        f"{exported.topic}-{partition}"
                    )


async def _check_rows(
    data: DataFiles, exported: ExportedTopic, starts: Mapping[int, int], extents: Mapping[int, list[Extent]]
) -> None:
    """Read all rows that would be written.  Raises NotImportable for an offset that is there twice, UnreadableFile."""
    for number, at in _positions(exported):
        position = starts[number]
        for run in due_runs(extents.get(number, ()), starts[number]):
            groups = [extent.group for extent in run]
            for batch in data.ordered_records(groups, number, at.incarnation, starts[number]):
                for offset in batch.column("offset").to_pylist():
                    if offset < position:
                        path = groups[0].path
                        raise NotImportable(f"{path}: offset {offset} of partition {number} is there twice")
                    position = offset + 1
                await asyncio.sleep(0)  # for an interrupt


def _positions(exported: ExportedTopic) -> list[tuple[int, Any]]:
    return sorted(exported.position.partitions.items())


def _result(partition: int, start: int, end: int, records: int, status: str) -> ImportedPartition:
    return ImportedPartition(partition, start, max(start, end), records, status)
