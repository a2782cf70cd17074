"""The readers of `format("kctl")`: ranges of offsets of topics as Arrow batches, for batch and streaming queries.

Runs in Python processes of Spark, on the driver's machine and on executors.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa
from pyspark.sql import datasource

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, OffsetAt, list_offsets
from kctl.client.leaders import Outcomes
from kctl.client.metadata import ClusterMetadata
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import ZERO_UUID, TopicPartition
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.decoding.decode import decode
from kctl.tables.exec.outcome import BadRecords, DataLoss
from kctl.tables.exec.reading import source_offsets
from kctl.tables.exec.reading.chunk import Memories, chunks
from kctl.tables.exec.reading.fetch import OffsetRange, RangeReader
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY, affects, find_divergences, history_of
from kctl.tables.exec.reading.source_offsets import Progress, progress_from_document, progress_to_document
from kctl.tables.exec.schema.arrow_types import VARIANT_TYPE
from kctl.tables.exec.schema.column_types import Columns
from kctl.tables.exec.selection.columns import formed
from kctl.tables.exec.selection.row_selection import HeaderForm
from kctl.tables.exec.task import first_bad

T = TypeVar("T")


def _limit_types() -> Any:
    try:
        return importlib.import_module("pyspark.sql.streaming.datasource")
    except ImportError:
        return None


LIMIT_TYPES = _limit_types()
"""The types with which sources limit a batch, and end it at the offsets of the start of a query; None before PySpark
4.2."""
_SPARK_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
"""The type that PySpark takes for a variant (pyspark.sql.pandas.types.is_variant)."""
_SupportsAvailableNow: Any = LIMIT_TYPES.SupportsTriggerAvailableNow if LIMIT_TYPES else object


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """The topics to read, and the options of the query."""

    settings: ClientSettings
    topics: tuple[str, ...]
    """Empty with a pattern."""
    start: str | dict[TopicPartition, int]
    """Where to start: earliest, latest, or offsets; other partitions start at their beginning."""
    end: str | dict[TopicPartition, int]
    """Where a batch query ends; partitions that are not named end at their last offset."""
    isolation: IsolationLevel
    include_headers: bool
    headers: HeaderForm
    columns: Columns
    may_skip: bool
    """Whether offsets that are gone are left out; else they end the query."""
    partition_offsets_max: int | None
    """Offsets of one task."""
    batch_offsets_max: int | None
    """Offsets of one batch of a streaming query."""
    pattern: str = ""
    """A regular expression of the names of topics, of which each batch reads those that exist."""
    start_times: int | dict[TopicPartition, int] | None = None
    """Start at the first record at or after a time, in milliseconds since 1970, instead of `start`."""
    end_times: int | dict[TopicPartition, int] | None = None
    """The same for the end, where partitions without such a record end at their last offset."""
    starts_late: bool = False
    """Whether partitions without a record at or after the time start at their end; else they end the query."""
    tasks_min: int | None = None
    """Tasks of a query or batch, if there are as many offsets."""

    def ranges(self, start: Progress, end: Progress) -> list[OffsetRange]:
        """Return the tasks for the offsets from `start` to `end`; a partition without a start begins at its beginning.

        Raises DataLoss if an end is before its start, or if the log does not have the records before a start any more;
        if losses are tolerated, the first offsets are left out, and the second read from where the histories part.
        """
        ranges = []
        begins, ids = self.resumed(start, set(end.offsets))
        if gone := sorted({tp.topic for tp in end.offsets} - ids.keys()):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ApiError(code, f"topic {gone[0]}: {code.description}")
        widths = [max(stop - begins[tp], 0) for tp, stop in end.offsets.items()]
        offsets_max = source_offsets.task_offsets(widths, self.partition_offsets_max, self.tasks_min)
        for tp, stop in sorted(end.offsets.items()):
            begin = begins[tp]
            if stop < begin and not self.may_skip:
                raise DataLoss(f"{tp} ends at offset {stop}, before {begin}: it was truncated or created again")
            history = end.histories.get(tp, UNKNOWN_HISTORY)
            ranges += [
                OffsetRange(tp, ids[tp.topic], *part, self.isolation, history)
                for part in source_offsets.cut(begin, stop, offsets_max)
            ]
        return ranges

    def starts(self) -> Progress:
        """Return the first offsets of a query.  Raises UsageError without records of --startingTimestamp."""
        if self.start_times is not None:
            return self._starts_at(self.start_times)
        if self.start == source_offsets.LATEST:
            return self.latest()
        earliest = self.earliest()
        return earliest.with_offsets(earliest.offsets | (self.start if isinstance(self.start, dict) else {}))

    def _starts_at(self, times: int | dict[TopicPartition, int]) -> Progress:
        earliest = self.earliest()
        found = self.at_times(times, earliest.offsets)
        if missing := sorted(tp for tp, offset in found.items() if offset is None):
            if not self.starts_late:
                raise UsageError(
                    f"{missing[0]} has no record at or after the time to start at: set "
                    "startingOffsetsByTimestampStrategy to latest to start at its end"
                )
            ends = self.latest().offsets
            found |= {tp: ends[tp] for tp in missing}
        return earliest.with_offsets(earliest.offsets | {tp: at for tp, at in found.items() if at is not None})

    def at_times(
        self, times: int | dict[TopicPartition, int], tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time of the partitions that have one; None without such a record."""
        wanted = dict.fromkeys(tps, times) if isinstance(times, int) else times
        if unknown := sorted(set(wanted) - set(tps)):
            raise UsageError(f"{unknown[0]}, for which there is a time, is not a partition of the topics")

        async def list_times(client: ClusterClient) -> dict[TopicPartition, int | None]:
            listed = _found(await list_offsets(client, wanted, isolation=self.isolation)) if wanted else {}
            return {tp: at.offset if at.offset >= 0 else None for tp, at in listed.items()}

        return self._run(list_times)

    def earliest(self) -> Progress:
        """Return the first offsets of all partitions, without histories.  Raises ApiError and ClusterUnreachable."""
        return self._run(self._earliest)

    def latest(self) -> Progress:
        """Return the end of all partitions.  Raises ApiError and ClusterUnreachable."""
        return self._run(self._latest)

    def resumed(
        self, start: Progress, tps: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[str, UUID]]:
        """Return where partitions go on after `start`, and the topic ids: at the beginning if they have no offset
        there.

        Raises DataLoss as `ranges`.
        """
        return self._run(lambda client: self._resumed(client, start, tps))

    async def _resumed(
        self, client: ClusterClient, start: Progress, tps: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[str, UUID]]:
        metadata = await self._metadata(client)
        names = self._names(metadata)
        ids = {name: metadata.topics[name].topic_id for name in names}
        begins = {tp: offset for tp, offset in start.offsets.items() if tp.topic in ids}
        losses = []
        for name in sorted(ids.keys() & start.topic_ids.keys()):
            if ids[name] != start.topic_ids[name] and ZERO_UUID not in {ids[name], start.topic_ids[name]}:
                losses.append(f"topic {name} was deleted and created again since its records were read")
                begins = {tp: offset for tp, offset in begins.items() if tp.topic != name}
        epochs = {
            TopicPartition(name, partition.partition): partition.leader_epoch
            for name in names
            for partition in metadata.topics[name].partitions
        }
        histories = {tp: history for tp, history in start.histories.items() if tp in begins}
        for tp, divergence in (await find_divergences(client, histories, epochs)).items():
            if isinstance(divergence, ApiError):
                raise ApiError(divergence.code, f"{tp}: {divergence}")
            if not affects(divergence, begins[tp]):
                continue
            losses.append(str(replace(divergence, position=divergence.position._replace(offset=begins[tp]))))
            if divergence.end_offset is None:
                del begins[tp]
            else:
                begins[tp] = divergence.end_offset
        if losses and not self.may_skip:
            raise DataLoss(f"{'; '.join(losses)}; failOnDataLoss=false goes on where the logs differ")
        absent = sorted(tp for tp in set(tps) - begins.keys() if tp.topic in ids)
        return begins | await self._listed(client, absent, EARLIEST), ids

    def read(self, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises DataLoss, BadRecords, CorruptRecords, ApiError and ClusterUnreachable.
        """
        decoder = BatchDecoder(self.columns) if self.columns.are_typed else None
        client = ClusterClient(self.settings, BlockingTransport())
        memories = Memories()
        try:
            with RangeReader(client, range_, may_skip=self.may_skip) as reader:
                for fetched in reader.responses():
                    for chunk in chunks(fetched.data, fetched.batches, memories=memories):
                        batch = decode(
                            chunk,
                            topic=range_.tp.topic,
                            partition=range_.tp.partition,
                            start=range_.start,
                            end=range_.end,
                            include_headers=self.include_headers,
                        )
                        yield formed(batch if decoder is None else _decoded(decoder, range_.tp, batch), self.headers)
        except DataLoss:  # not before the start of the log, which the reader skips, but beyond its end
            if not self.may_skip:
                raise
        finally:
            run_blocking(client.close())

    def _run(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Perform the work with connections to the cluster."""

        async def send_to() -> T:
            async with ClusterClient(self.settings, BlockingTransport()) as client:
                return await work(client)

        return run_blocking(send_to())

    async def _earliest(self, client: ClusterClient) -> Progress:
        metadata = await self._metadata(client)
        offsets = await self._listed(client, self._partitions(metadata), EARLIEST)
        return Progress(offsets, topic_ids=self._ids(metadata))

    async def _latest(self, client: ClusterClient) -> Progress:
        metadata = await self._metadata(client)
        tps = self._partitions(metadata)
        ends = _found(await list_offsets(client, dict.fromkeys(tps, LATEST)))
        offsets = {tp: end.offset for tp, end in ends.items()}
        if self.isolation is IsolationLevel.READ_COMMITTED:
            stable = await self._listed(client, tps, LATEST)
            offsets = {tp: min(offset, stable[tp]) for tp, offset in offsets.items()}  # which the histories have
        histories = {tp: history_of(end.offset, end.leader_epoch) for tp, end in ends.items()}
        return Progress(
            offsets,
            {tp: history for tp, history in histories.items() if history != UNKNOWN_HISTORY},
            self._ids(metadata),
        )

    async def _metadata(self, client: ClusterClient) -> ClusterMetadata:
        """Return the metadata of the topics.  Raises ApiError for one that does not exist."""
        metadata = await client.metadata(None if self.pattern else self.topics)
        for name in self.topics:
            topic = metadata.topics.get(name)
            code = topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is not ErrorCode.NONE:
                raise ApiError(code, f"topic {name}: {code.description}")
        return metadata

    def _names(self, metadata: ClusterMetadata) -> list[str]:
        return matching(metadata, self.pattern) if self.pattern else list(self.topics)

    def names(self) -> list[str]:
        """Return the topics that exist."""
        return self._run(self._names_now)

    async def _names_now(self, client: ClusterClient) -> list[str]:
        return self._names(await self._metadata(client))

    def _partitions(self, metadata: ClusterMetadata) -> list[TopicPartition]:
        return [
            TopicPartition(name, partition.partition)
            for name in self._names(metadata)
            for partition in metadata.topics[name].partitions
        ]

    def _ids(self, metadata: ClusterMetadata) -> dict[str, UUID]:
        ids = {name: metadata.topics[name].topic_id for name in self._names(metadata)}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}

    async def _listed(
        self, client: ClusterClient, tps: Collection[TopicPartition], moment: int
    ) -> dict[TopicPartition, int]:
        listed = await list_offsets(client, dict.fromkeys(tps, moment), isolation=self.isolation) if tps else {}
        return {tp: listed_offset.offset for tp, listed_offset in _found(listed).items()}


def matching(metadata: ClusterMetadata, pattern: str) -> list[str]:
    """Return the topics whose whole name matches, without internal ones."""
    return sorted(
        name
        for name, topic in metadata.topics.items()
        if re.fullmatch(pattern, name) and topic.error is ErrorCode.NONE and not topic.is_internal
    )


def _found(outcomes: Outcomes[OffsetAt]) -> dict[TopicPartition, OffsetAt]:
    """Return the offsets.  Raises the first error."""
    offsets = {}
    for tp, outcome in outcomes.items():
        if isinstance(outcome, ApiError):
            raise outcome
        offsets[tp] = outcome
    return offsets


def _decoded(decoder: BatchDecoder, tp: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    fitting, misfits, _ = decoder.decode(batch)
    if misfits is not None:
        raise BadRecords(first_bad(tp, misfits))
    columns = [_for_spark(column) for column in fitting.columns]
    return pa.RecordBatch.from_arrays(columns, schema=with_spark_variants(fitting.schema))


def with_spark_variants(schema: pa.Schema) -> pa.Schema:
    """Return the schema with variants as PySpark has them."""
    return pa.schema([field.with_type(_SPARK_VARIANT) if field.type == VARIANT_TYPE else field for field in schema])


def _for_spark(column: pa.Array) -> pa.Array:
    if column.type != VARIANT_TYPE:
        return column
    parts = [column.field(field.name) for field in _SPARK_VARIANT]
    return pa.StructArray.from_arrays(parts, fields=list(_SPARK_VARIANT), mask=column.is_null())


class RangePartition(datasource.InputPartition):
    """A task."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)


class TopicReader(datasource.DataSourceReader):
    """Reads the topics once, up to the offsets that they have when the query is planned."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source

    def partitions(self) -> list[RangePartition]:
        """See DataSourceReader.  Raises DataLoss, ApiError and ClusterUnreachable."""
        source = self._source
        end = source.earliest() if source.end == source_offsets.EARLIEST else source.latest()
        if isinstance(source.end, dict):
            if beyond := {tp: offset for tp, offset in source.end.items() if offset > end.offsets.get(tp, 0)}:
                raise UsageError(f"endingOffsets are beyond the end: {source_offsets.to_document(beyond)}")
            end = end.with_offsets(end.offsets | source.end)
        if source.end_times is not None:
            found = source.at_times(source.end_times, end.offsets)
            end = end.with_offsets(end.offsets | {tp: at for tp, at in found.items() if at is not None})
        return [RangePartition(range_) for range_ in source.ranges(source.starts(), end)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceReader."""
        return self._source.read(partition.value)


class TopicStream(datasource.DataSourceStreamReader, _SupportsAvailableNow):  # type: ignore[misc]
    """Reads the topics in batches, from the offsets in the checkpoint of the query."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source
        self._first: dict[TopicPartition, int] = {}
        """The first offsets of the query, if Spark has asked for them."""
        self._target: Progress | None = None
        """With Trigger.AvailableNow, where the query ends."""
        self._last: Progress | None = None
        """What the query was told last."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        first = self._source.starts()
        self._first = first.offsets
        return progress_to_document(first)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader.  Raises DataLoss if the logs do not have the records before `start` any more."""
        latest = self.latest()
        before = progress_from_document(start)
        begins, _ = self._source.resumed(before, set(latest.offsets))
        if isinstance(limit, LIMIT_TYPES.ReadMaxRows):
            latest = latest.with_offsets(source_offsets.limited(begins, latest.offsets, limit.max_rows))
        return progress_to_document(latest.since(before))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        offsets_max = self._source.batch_offsets_max
        return LIMIT_TYPES.ReadAllAvailable() if offsets_max is None else LIMIT_TYPES.ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """See SupportsTriggerAvailableNow."""
        self._target = self._source.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """See DataSourceStreamReader.  Raises DataLoss, ApiError and ClusterUnreachable."""
        starts, ends = progress_from_document(start), progress_from_document(end)
        if self._source.start == source_offsets.LATEST and starts.offsets == self._first:
            # The checkpoint has no first offsets.  After a crash in the first batch Spark asks for them again, when
            # they may be beyond the end of that batch.
            starts = starts.with_offsets(
                {tp: min(offset, ends.offsets.get(tp, offset)) for tp, offset in starts.offsets.items()}
            )
        return [RangePartition(range_) for range_ in self._source.ranges(starts, ends)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceStreamReader."""
        return self._source.read(partition.value)

    def latest(self) -> Progress:
        """Return the last offsets, or those at the start of a query with Trigger.AvailableNow."""
        self._last = (self._target or self._source.latest()).since(self._last)
        return self._last


class UnlimitedTopicStream(TopicStream):
    """The same for PySpark before 4.2."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        return progress_to_document(self.latest())
