"""Fetches record batches from one broker, and filters out those invisible to a reader."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kctl.client.connections.transport import Connection
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.control import ControlType, control_type
from kctl.records.header import BatchHeader

NO_REPLICA = -1
ANY_EPOCH = -1


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a Fetch request, with Kafka's names and meanings."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 4 << 20


CHUNKS = FetchLimits(max_bytes=8 << 20, partition_max_bytes=1 << 20)
"""For readers of whole ranges: decoded small records take about ten times the memory of their bytes."""


@dataclass(slots=True)
class FetchedPartition:
    """Response of one partition: batches from the one with the fetch offset on; the last may be truncated."""

    tp: TopicPartition
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    preferred_read_replica: int = NO_REPLICA
    """The broker to fetch from instead (KIP-392); `records` is empty then."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(first offset, producer id) of aborted transactions; only with READ_COMMITTED."""


async def fetch_batches(
    connection: Connection,
    positions: Mapping[TopicPartition, int],
    *,
    limits: FetchLimits,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    rack: str = "",
    replica_id: int = NO_REPLICA,
    current_leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> list[FetchedPartition]:
    """Fetch record batches from the given positions.  Raises ApiError, ConnectionLost.

    Partitions with another leader epoch than the one in `current_leader_epochs`, if they have one there, get the
    error FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH (KIP-320).

    Without a `rack` the leader names no preferred read replica.  `replica_id` is NO_REPLICA or, to read from
    any replica, DEBUGGING_CONSUMER.
    """
    topics: dict[str, FetchTopic] = {}
    epochs = current_leader_epochs or {}
    for tp, offset in positions.items():
        topic = topics.setdefault(tp.topic, FetchTopic(topic=tp.topic, partitions=[]))
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=epochs.get(tp, ANY_EPOCH),
                fetch_offset=offset,
                partition_max_bytes=limits.partition_max_bytes,
            )
        )
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=isolation,
        rack_id=rack,
        topics=list(topics.values()),
    )
    response = await connection.send(request, FetchResponse)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code))
    return [
        _fetched(TopicPartition(topic.topic, partition.partition_index), partition)
        for topic in response.responses
        for partition in topic.partitions
    ]


def visible_batches(fetched: FetchedPartition, isolation: IsolationLevel) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield each batch, and whether its records are visible: those of control batches and aborted transactions are not.

    A transaction of a producer is aborted from its first offset up to its ABORT marker.  KIP-98; Java's Fetcher.
    """
    pending = list(fetched.aborted)
    heapq.heapify(pending)
    aborting: set[int] = set()
    for header in iterate_batches(fetched.records):
        if isolation is IsolationLevel.READ_COMMITTED and header.has_producer_id:
            while pending and pending[0][0] <= header.last_offset:
                aborting.add(heapq.heappop(pending)[1])
            if header.is_control:
                if _is_abort(fetched.records, header):
                    aborting.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborting:
                yield header, False
                continue
        yield header, not header.is_control


def _is_abort(records: memoryview, header: BatchHeader) -> bool:
    marker = next(iterate_records(records, header), None)
    return marker is not None and control_type(marker) is ControlType.ABORT


def _fetched(tp: TopicPartition, partition: PartitionData) -> FetchedPartition:
    records = partition.records
    return FetchedPartition(
        tp=tp,
        error=ErrorCode.of(partition.error_code),
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        preferred_read_replica=partition.preferred_read_replica,
        records=records
        if isinstance(records, memoryview)
        else memoryview(records if isinstance(records, bytes) else b""),
        aborted=[
            (transaction.first_offset, transaction.producer_id) for transaction in partition.aborted_transactions or []
        ],
    )
