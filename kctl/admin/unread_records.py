"""Finds the first unread record of partitions and its timestamp, by fetching a little from the committed offsets.

Control records, and records of aborted transactions, are no unread records: no reader ever commits beyond them if they
are the last ones.  Up to the last stable offset they are recognised; the records after it belong to open transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kctl.admin.lag_rules import Unread
from kctl.client.cluster import ClusterClient
from kctl.client.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.leaders import Outcomes, ask_leaders
from kctl.client.list_offsets import IsolationLevel
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.limits import LAG_FETCH_BYTES_MAX
from kctl.model import TopicPartition
from kctl.records.batch import iterate_records
from kctl.records.header import DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, BatchHeader, CorruptBatch, Record

ROUNDS = ((8 << 10, 1_000), (128 << 10, 64), (1 << 20, 8), (1 << 20, 1), (1 << 20, 1), (1 << 20, 1))
"""Bytes of a partition and partitions of a request, in each round.

A broker sends a batch that is larger than the bytes only as the first of a response, so that the last rounds ask for
one partition at a time.
"""


@dataclass(slots=True)
class Search:
    """The search in one partition, from the committed offset or the start of the log up to `end`."""

    tp: TopicPartition
    position: int
    end: int
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    oldest_timestamp_ms: int | None = None
    has_found: bool = False
    """Whether an unread record was found, which may have no timestamp."""
    count: int = 0
    is_complete: bool = False

    @property
    def is_over(self) -> bool:
        """True if more fetching would tell nothing that is needed."""
        return self.has_found or self.is_complete

    @property
    def unread(self) -> Unread:
        """What was found so far."""
        return Unread(self.oldest_timestamp_ms, self.count if self.is_complete else None)


def advance(search: Search, fetched: FetchedPartition) -> None:
    """Counts the records of one response and moves the position behind them.  Raises CorruptBatch."""
    for header, is_visible in visible_batches(fetched, search.isolation):
        if header.last_offset < search.position:
            continue
        if header.base_offset >= search.end:
            search.position = search.end
            break
        if is_visible:
            _count(search, fetched.records, header)
        search.position = header.next_offset
    if search.position >= search.end:
        search.is_complete = True
    elif search.isolation is IsolationLevel.READ_COMMITTED and search.position >= fetched.last_stable_offset >= 0:
        if search.has_found:
            search.count += search.end - search.position
            search.is_complete = True
        else:
            search.isolation = IsolationLevel.READ_UNCOMMITTED


def _count(search: Search, buffer: memoryview, header: BatchHeader) -> None:
    """Counts the unread records of a batch; decodes them only if some of them are not unread."""
    is_whole = header.base_offset >= search.position and header.last_offset < search.end
    if is_whole and header.magic == 2 and not header.attributes & DELETE_HORIZON_BIT:
        if header.record_count > 0:
            has_append_time = header.attributes & LOG_APPEND_TIME_BIT
            _found(search, header.max_timestamp if has_append_time else header.base_timestamp, header.record_count)
        return
    for record in _unread_of(search, iterate_records(buffer, header)):
        _found(search, record.timestamp, 1)


def _unread_of(search: Search, records: Iterator[Record]) -> Iterator[Record]:
    return (record for record in records if search.position <= record.offset < search.end)


def _found(search: Search, timestamp_ms: int, count: int) -> None:
    if not search.has_found:
        search.has_found = True
        search.oldest_timestamp_ms = timestamp_ms if timestamp_ms >= 0 else None
    search.count += count


async def find_unread(client: ClusterClient, searches: Sequence[Search]) -> None:
    """Advances the searches; what is not found within LAG_FETCH_BYTES_MAX stays unknown."""
    left_bytes = LAG_FETCH_BYTES_MAX
    for partition_bytes, count in ROUNDS:
        pending = [search for search in searches if not search.is_over][: left_bytes // partition_bytes]
        if not pending:
            return
        left_bytes -= await _round(client, pending, partition_bytes, count)


async def _round(client: ClusterClient, searches: Sequence[Search], partition_bytes: int, count: int) -> int:
    """Fetches once for each search; returns the bytes that were read."""
    limits = FetchLimits(
        max_wait_ms=0, min_bytes=0, max_bytes=partition_bytes * count, partition_max_bytes=partition_bytes
    )
    by_partition: dict[TopicPartition, list[Search]] = {}
    for search in searches:
        by_partition.setdefault(search.tp, []).append(search)
    read_bytes = 0

    async def fetch(connection: Connection, some: Mapping[TopicPartition, Search], isolation: IsolationLevel) -> None:
        nonlocal read_bytes
        positions = {tp: search.position for tp, search in some.items()}
        for one in await fetch_batches(connection, positions, limits=limits, isolation=isolation):
            read_bytes += len(one.records)
            errors[one.tp] = _advanced(some[one.tp], one)

    async def ask(connection: Connection, tps: list[TopicPartition]) -> Outcomes[None]:
        wanted = [search for tp in tps for search in by_partition[tp]]
        requests = [
            fetch(connection, batch, isolation)
            for isolation in IsolationLevel
            for batch in _batches([one for one in wanted if one.isolation is isolation], count)
        ]
        await client.gather(requests)
        return {tp: errors.get(tp) for tp in tps}

    errors: Outcomes[None] = {}
    # An error of a partition leaves its searches as they are: the error itself is known from ListOffsets.
    await ask_leaders(client, list(by_partition), ask)
    return read_bytes


def _batches(searches: Sequence[Search], count: int) -> list[dict[TopicPartition, Search]]:
    """The searches in groups of at most `count`, in which each partition is only once, as a Fetch request requires."""
    batches: list[dict[TopicPartition, Search]] = []
    first_open: dict[TopicPartition, int] = {}
    for search in searches:
        index = first_open.get(search.tp, 0)
        while index < len(batches) and len(batches[index]) >= count:
            index += 1
        if index == len(batches):
            batches.append({})
        batches[index][search.tp] = search
        first_open[search.tp] = index + 1
    return batches


def _advanced(search: Search, fetched: FetchedPartition) -> ApiError | None:
    if fetched.error is not ErrorCode.NONE:
        return ApiError(fetched.error)
    try:
        advance(search, fetched)
    except CorruptBatch:
        return ApiError(ErrorCode.CORRUPT_MESSAGE)
    return None
