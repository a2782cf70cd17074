"""Takes a sample of the records that an export will read, from the beginning and the end of each range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.leaders import Outcomes, on_leaders
from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.records.batch import iterate_records
from kctl.records.header import CorruptBatch, Record
from kctl.records.old_formats.conversion import without_old_messages
from kctl.tables.plans.plan import PartitionRange

EXPORT_SAMPLE_RECORDS_MAX = bound(
    Subject.EXPORTS,
    "records per topic from which an export infers columns",
    5_000,
    "records",
    on_excess="the others are not in the sample",
)


LIMITS = FetchLimits(max_wait_ms=0, max_bytes=8 << 20, partition_max_bytes=256 << 10)
PARTITIONS_MAX = 50
"""Partitions of each topic in the sample; the others are left out."""
END_OFFSETS = 200
"""The second part of a sample begins this many offsets before the end of the range."""

RecordSample = dict[TopicPartition, list[Record]]


async def take_records(
    client: ClusterClient, ranges: Sequence[PartitionRange], isolation: IsolationLevel
) -> RecordSample:
    """Return the records of each range in the order of offsets.  Raises ApiError for errors of leaders, and
    ClusterUnreachable.

    Batches that cannot be read are left out; the export reports them.
    """
    chosen = _chosen(ranges)
    found: dict[TopicPartition, dict[int, Record]] = {tp: {} for tp in chosen}
    for is_end in (False, True):
        offsets = {
            tp: max(range_.start, range_.end - END_OFFSETS) if is_end else range_.start
            for tp, range_ in chosen.items()
            if not is_end or max(found[tp], default=range_.end) < range_.end - 1
        }

        async def send_to(
            connection: Connection, some: list[TopicPartition], offsets: Mapping[TopicPartition, int] = offsets
        ) -> Outcomes[FetchedPartition]:
            positions = {tp: offsets[tp] for tp in some}
            fetched = await fetch_batches(connection, positions, limits=LIMITS, isolation=isolation)
            return {partition.tp: partition for partition in fetched}

        for tp, outcome in (await on_leaders(client, offsets, send_to)).items():
            if isinstance(outcome, ApiError):
                raise outcome
            if outcome.error not in {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}:
                raise ApiError(outcome.error, f"{tp}: {outcome.error.description}")
            room = _room(tp, chosen) // 2
            found[tp] |= {record.offset: record for record in _records(outcome, chosen[tp], isolation, room)}
    return {tp: [records[offset] for offset in sorted(records)] for tp, records in found.items()}


def _chosen(ranges: Sequence[PartitionRange]) -> dict[TopicPartition, PartitionRange]:
    chosen: dict[TopicPartition, PartitionRange] = {}
    for range_ in ranges:
        if range_.start < range_.end and sum(tp.topic == range_.tp.topic for tp in chosen) < PARTITIONS_MAX:
            chosen[range_.tp] = range_
    return chosen


def _room(tp: TopicPartition, chosen: Mapping[TopicPartition, PartitionRange]) -> int:
    """Return how many records of a partition may be in the sample."""
    return EXPORT_SAMPLE_RECORDS_MAX // sum(other.topic == tp.topic for other in chosen)


def _records(
    fetched: FetchedPartition, range_: PartitionRange, isolation: IsolationLevel, count_max: int
) -> list[Record]:
    fetched.records = without_old_messages(fetched.records)
    found: list[Record] = []
    try:
        for batch, is_visible in visible_batches(fetched, isolation):
            for record in iterate_records(fetched.records, batch) if is_visible else ():
                if len(found) == count_max:
                    return found
                if range_.start <= record.offset < range_.end:
                    found.append(record)
    except CorruptBatch:
        pass
    return found
