"""The last records of several partitions together, in the order of their timestamps.

Partitions are read backwards in windows of offsets, each twice as large as the one before.  Offsets have gaps, from
compaction, transaction markers and aborted records, and a filter may select few records; so a window can contain fewer
records than offsets.  Each offset is read at most once.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from kctl.admin.topics.offsets import offset_ranges
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.positions import Position
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.limits import Subject, bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.fetching.batches import FetchLimits
    from kctl.client.consuming.list_offsets import IsolationLevel
    from kctl.model import TopicPartition
    from kctl.records.header import Record

LAST_RECORDS_MAX = bound(
    Subject.COMMANDS, "records of `kctl consume --last`", 100_000, "records", on_excess="the command fails"
)
LAST_BYTES_MAX = bound(
    Subject.COMMANDS,
    "keys, values and headers that `kctl consume --last` holds: the last N records of each partition",
    256 << 20,
    "bytes",
    on_excess="the command fails",
)
FIRST_WINDOW_MIN = 64
"""Offsets: a batch is fetched whole, so that smaller windows save nothing."""


def merge_last(
    records_by_partition: Mapping[TopicPartition, Sequence[Record]], count: int
) -> list[tuple[TopicPartition, Record]]:
    """Return the last `count` records by timestamp, and by partition where timestamps are equal.

    Records of a partition stay in the order of their offsets, also where their timestamps are not in order.
    """
    partitions = sorted(tp for tp, records in records_by_partition.items() if records)
    latest = [
        (-records_by_partition[tp][-1].timestamp, -index, len(records_by_partition[tp]) - 1)
        for index, tp in enumerate(partitions)
    ]
    heapify(latest)
    chosen: list[tuple[TopicPartition, Record]] = []
    while latest and len(chosen) < count:
        _, index, place = latest[0]
        tp = partitions[-index]
        records = records_by_partition[tp]
        chosen.append((tp, records[place]))
        if place:
            heapreplace(latest, (-records[place - 1].timestamp, index, place - 1))
        else:
            heappop(latest)
    return chosen[::-1]


async def read_last(
    client: ClusterClient,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    count: int,
    is_selected: Callable[[TopicPartition, Record], bool],
    *,
    limits: FetchLimits,
    isolation: IsolationLevel,
) -> list[tuple[TopicPartition, Record]]:
    """Return the last `count` selected records within the offsets [start, end) of the partitions.

    Raises UsageError when the records take more than LAST_BYTES_MAX, and what Consumer.poll raises.
    """
    held: dict[TopicPartition, deque[Record]] = {tp: deque() for tp in bounds}
    held_bytes = 0
    size = max(count, FIRST_WINDOW_MIN)
    window_ends = {tp: end for tp, (start, end) in bounds.items() if start < end and count}
    while window_ends:
        starts = {tp: max(bounds[tp][0], end - size) for tp, end in window_ends.items()}
        size *= 2
        consumer = Consumer(client, starts, limits=limits, isolation=isolation)
        window: dict[TopicPartition, deque[Record]] = {tp: deque(maxlen=count - len(held[tp])) for tp in window_ends}
        while consumer.positions:
            for tp, records in await _poll(client, consumer, isolation):
                taken = window[tp]
                for record in records:
                    if record.offset < window_ends[tp] and is_selected(tp, record):
                        held_bytes += record_bytes(record) - (
                            record_bytes(taken[0]) if len(taken) == taken.maxlen else 0
                        )
                        taken.append(record)
                if held_bytes > LAST_BYTES_MAX:
                    raise UsageError(
                        f"--last {count} would hold more than {LAST_BYTES_MAX >> 20} MiB of records: use a smaller"
                        " number, or --partition"
                    )
            for tp, end in window_ends.items():
                if consumer.positions.get(tp, -1) >= end:
                    consumer.drop(tp)
        for tp, records_of_window in window.items():
            held[tp].extendleft(reversed(records_of_window))
        window_ends = {tp: start for tp, start in starts.items() if start > bounds[tp][0] and len(held[tp]) < count}
    return merge_last({tp: list(records) for tp, records in held.items()}, count)


def record_bytes(record: Record) -> int:
    """Return the bytes of key, value and headers."""
    return sum(map(len, _parts(record)))


def _parts(record: Record) -> Iterable[bytes | str]:
    yield record.key or b""
    yield record.value or b""
    for name, value in record.headers:
        yield name
        yield value or b""


async def _poll(
    client: ClusterClient, consumer: Consumer, isolation: IsolationLevel
) -> list[tuple[TopicPartition, list[Record]]]:
    """Return the next records; where retention has deleted the records at a position, continue at the new start."""
    try:
        return await consumer.poll()
    except ApiError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        ranges = await offset_ranges(client, consumer.positions, isolation=isolation)
        moved = {
            tp: Position(ranges[tp].start) for tp, position in consumer.positions.items() if position < ranges[tp].start
        }
        if not moved:
            raise
        consumer.restart(moved)
        return []
