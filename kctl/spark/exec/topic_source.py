"""The readers of `format("kctl")`: ranges of offsets of topics as Arrow batches, for batch and streaming queries.

Runs in Python processes of Spark, on the driver's machine and on executors.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import datasource

from kctl.client.blocking_transport import BlockingTransport, run_blocking
from kctl.client.cluster import ClusterClient
from kctl.client.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.spark.exec import source_offsets
from kctl.spark.exec.arrow_types import VARIANT_TYPE
from kctl.spark.exec.batch_decoder import BatchDecoder
from kctl.spark.exec.chunk import Memories, chunks
from kctl.spark.exec.column_types import Columns
from kctl.spark.exec.decode import decode
from kctl.spark.exec.fetch import OffsetRange, RangeReader
from kctl.spark.exec.header_form import HeaderForm
from kctl.spark.exec.headers import formed
from kctl.spark.exec.outcome import BadRecords, DataLoss
from kctl.spark.exec.source_offsets import Offsets
from kctl.spark.exec.task import first_bad


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

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The tasks for the offsets from `start` to `end`; a partition without a start begins at its beginning.

        Raises DataLoss if an end is before its start, unless such offsets are left out.
        """
        ids, first = self._ids_and_starts(set(end) - set(start))
        found = []
        for tp, stop in sorted(end.items()):
            begin = start.get(tp, first.get(tp, 0))
            if stop < begin and not self.may_skip:
                raise DataLoss(f"{tp} ends at offset {stop}, before {begin}: it was truncated or created again")
            found += [
                OffsetRange(tp, ids[tp.topic], *part, self.isolation)
                for part in source_offsets.cut(begin, stop, self.partition_offsets_max)
            ]
        return found

    def starts(self) -> dict[TopicPartition, int]:
        """The first offsets of a query."""
        if self.start == source_offsets.LATEST:
            return self.offsets(LATEST)
        return self.offsets(EARLIEST) | (self.start if isinstance(self.start, dict) else {})

    def offsets(self, moment: int) -> dict[TopicPartition, int]:
        """EARLIEST or LATEST offsets of all partitions.  Raises ApiError and ClusterUnreachable."""
        return run_blocking(self._offsets(moment))

    def read(self, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The records of a range.  Raises DataLoss, BadRecords, CorruptRecords, ApiError and ClusterUnreachable."""
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

    async def _offsets(self, moment: int) -> dict[TopicPartition, int]:
        async with ClusterClient(self.settings, BlockingTransport()) as client:
            partitions = [
                TopicPartition(name, one.partition)
                for name, topic in (await self._topics(client)).items()
                for one in topic.partitions
            ]
            return await self._listed(client, partitions, moment)

    def _ids_and_starts(self, tps: set[TopicPartition]) -> tuple[dict[str, UUID], dict[TopicPartition, int]]:
        """Topic ids, and the first offsets of some partitions."""

        async def look() -> tuple[dict[str, UUID], dict[TopicPartition, int]]:
            async with ClusterClient(self.settings, BlockingTransport()) as client:
                topics = await self._topics(client)
                first = await self._listed(client, sorted(tps), EARLIEST)
                return {name: topic.topic_id for name, topic in topics.items()}, first

        return run_blocking(look())

    async def _topics(self, client: ClusterClient) -> Mapping[str, Any]:
        """The metadata of the topics.  Raises ApiError for one that does not exist."""
        metadata = await client.metadata(self.topics)
        for name in self.topics:
            topic = metadata.topics.get(name)
            code = topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is not ErrorCode.NONE:
                raise ApiError(code, f"topic {name}: {code.description}")
        return metadata.topics

    async def _listed(self, client: ClusterClient, tps: list[TopicPartition], moment: int) -> dict[TopicPartition, int]:
        found = {}
        for tp, outcome in (await list_offsets(client, dict.fromkeys(tps, moment), isolation=self.isolation)).items():
            if isinstance(outcome, ApiError):
                raise outcome
            found[tp] = outcome.offset
        return found


def _decoded(decoder: BatchDecoder, tp: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    fitting, misfits = decoder.decode(batch)
    if misfits is not None:
        raise BadRecords(first_bad(tp, misfits))
    columns = [_for_spark(column) for column in fitting.columns]
    return pa.RecordBatch.from_arrays(columns, schema=with_spark_variants(fitting.schema))


def with_spark_variants(schema: pa.Schema) -> pa.Schema:
    """The schema with variants as PySpark has them."""
    return pa.schema([one.with_type(_SPARK_VARIANT) if one.type == VARIANT_TYPE else one for one in schema])


def _for_spark(column: pa.Array) -> pa.Array:
    if column.type != VARIANT_TYPE:
        return column
    parts = [column.field(one.name) for one in _SPARK_VARIANT]
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
        end = source.offsets(EARLIEST if source.end == source_offsets.EARLIEST else LATEST)
        if isinstance(source.end, dict):
            if beyond := {tp: one for tp, one in source.end.items() if one > end.get(tp, 0)}:
                raise UsageError(f"endingOffsets are beyond the end: {source_offsets.to_document(beyond)}")
            end |= source.end
        return [RangePartition(one) for one in source.ranges(source.starts(), end)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceReader."""
        return self._source.read(partition.value)


class TopicStream(datasource.DataSourceStreamReader, _SupportsAvailableNow):  # type: ignore[misc]
    """Reads the topics in batches, from the offsets in the checkpoint of the query."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source
        self._first: dict[TopicPartition, int] = {}
        """The first offsets of the query, if Spark has asked for them."""
        self._target: dict[TopicPartition, int] | None = None
        """With Trigger.AvailableNow, where the query ends."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        self._first = self._source.starts()
        return source_offsets.to_document(self._first)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        latest = self.latest()
        if isinstance(limit, LIMIT_TYPES.ReadMaxRows):
            before = source_offsets.from_document(start)
            if set(latest) - set(before):
                before = {**self._source.offsets(EARLIEST), **before}
            latest = source_offsets.limited(before, latest, limit.max_rows)
        return source_offsets.to_document(latest)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        offsets_max = self._source.batch_offsets_max
        return LIMIT_TYPES.ReadAllAvailable() if offsets_max is None else LIMIT_TYPES.ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """See SupportsTriggerAvailableNow."""
        self._target = self._source.offsets(LATEST)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """See DataSourceStreamReader.  Raises DataLoss, ApiError and ClusterUnreachable."""
        starts, ends = source_offsets.from_document(start), source_offsets.from_document(end)
        if self._source.start == source_offsets.LATEST and starts == self._first:
            # The checkpoint has no first offsets.  After a crash in the first batch Spark asks for them again, when
            # they may be beyond the end of that batch.
            starts = {tp: min(offset, ends.get(tp, offset)) for tp, offset in starts.items()}
        return [RangePartition(one) for one in self._source.ranges(starts, ends)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceStreamReader."""
        return self._source.read(partition.value)

    def latest(self) -> dict[TopicPartition, int]:
        """The last offsets, or those at the start of a query with Trigger.AvailableNow."""
        return self._source.offsets(LATEST) if self._target is None else self._target


class UnlimitedTopicStream(TopicStream):
    """The same for PySpark before 4.2."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - PySpark's name
        """See DataSourceStreamReader."""
        return source_offsets.to_document(self.latest())
