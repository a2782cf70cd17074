"""Finds the first unread record of partitions and its timestamp, by fetching a little from the committed offsets.

Control records, and records of aborted transactions, do not count as unread: no reader ever commits beyond them if they
are the last ones.  Up to the last stable offset they are recognised; the records after it belong to open transactions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ApiError, ErrorCode
from kctl.lag.facts import Unread
from kctl.limits import LAG_FETCH_BYTES_MAX
from kctl.model import TopicPartition
from kctl.records.batch import iterate_records
from kctl.records.header import DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, BatchHeader, CorruptBatch

SIZES = ((20 << 10, 500), (160 << 10, 50), (1 << 20, 8), (1 << 20, 1))
"""Bytes of a partition and partitions of a request, the smallest first.

A broker sends a batch that is larger than the bytes only as the first of a response, so that the last requests are for
one partition.
"""
NO_PROGRESS_MAX = 3
"""How often the largest size is tried for partitions whose responses have nothing but aborted records."""


@dataclass(slots=True)
class Search:
    """The search in one partition, from a committed offset or the start of the log up to `end`."""

    tp: TopicPartition
    position: int
    end: int
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    oldest_timestamp_ms: int | None = None
    has_found: bool = False
    """Whether an unread record was found, which may have no timestamp."""
    records: int = 0
    is_complete: bool = False

    @property
    def is_over(self) -> bool:
        """True if no further fetch is needed."""
        return self.has_found or self.is_complete

    @property
    def unread(self) -> Unread:
        """The result of the search so far."""
        return Unread(self.oldest_timestamp_ms, self.records if self.is_complete else None)


def advance(searches: Sequence[Search], fetched: FetchedPartition, isolation: IsolationLevel) -> None:
    """Count the records of one response, which was fetched from the first of the searches, and moves positions.

    All searches are in that partition, have this isolation level, and are sorted by position.  Raises CorruptBatch.
    """
    reached = searches[0].position
    for header, is_visible in visible_batches(fetched, isolation):
        batch = _Batch(fetched.records, header)
        for search in searches:
            # A search whose position follows an earlier batch has processed that batch, or began in it.
            if header.base_offset <= search.position <= header.last_offset or (
                reached <= search.position < header.base_offset
            ):
                _advance_one(search, batch, is_visible=is_visible)
        reached = header.next_offset
    for search in searches:
        if search.position <= reached:
            _finish(search, fetched.last_stable_offset, isolation)


def _advance_one(search: Search, batch: _Batch, *, is_visible: bool) -> None:
    header = batch.header
    if header.base_offset >= search.end:
        search.position = search.end
        return
    if is_visible:
        records, timestamp_ms = batch.from_offset(search.position, search.end)
        if records and not search.has_found:
            search.has_found = True
            search.oldest_timestamp_ms = timestamp_ms if timestamp_ms >= 0 else None
        search.records += records
    search.position = header.next_offset


def _finish(search: Search, last_stable_offset: int, isolation: IsolationLevel) -> None:
    if search.position >= search.end:
        search.is_complete = True
    elif isolation is IsolationLevel.READ_COMMITTED and search.position >= last_stable_offset >= 0:
        if search.has_found:
            search.records += search.end - search.position
            search.is_complete = True
        else:
            search.isolation = IsolationLevel.READ_UNCOMMITTED


class _Batch:
    """A batch whose records are decoded once, and only if its header is not enough."""

    def __init__(self, buffer: memoryview, header: BatchHeader) -> None:
        self.header = header
        self._buffer = buffer
        self._offsets: list[int] | None = None
        self._timestamps: list[int] = []

    def from_offset(self, first: int, end: int) -> tuple[int, int]:
        """Return the number of records from one offset up to another, and the timestamp of the first of them."""
        header = self.header
        is_whole = first <= header.base_offset and header.last_offset < end
        # In a compacted batch, the base timestamp may be that of a removed record.
        is_dense = header.magic == 2 and header.record_count == header.last_offset_delta + 1
        if is_whole and is_dense and not header.attributes & DELETE_HORIZON_BIT:
            has_append_time = header.attributes & LOG_APPEND_TIME_BIT
            return header.record_count, header.max_timestamp if has_append_time else header.base_timestamp
        if self._offsets is None:
            records = [(record.offset, record.timestamp) for record in iterate_records(self._buffer, header)]
            self._offsets = [offset for offset, _ in records]
            self._timestamps = [timestamp for _, timestamp in records]
        index = bisect_left(self._offsets, first)
        count = bisect_left(self._offsets, end) - index
        return max(0, count), self._timestamps[index] if count > 0 else -1


async def find_unread(
    client: ClusterClient,
    searches: Sequence[Search],
    *,
    bytes_max: int = LAG_FETCH_BYTES_MAX,
    known: ClusterMetadata | None = None,
) -> None:
    """Advance the searches; a search that needs more bytes ends without a result.

    One response serves all searches in a partition whose positions it covers.  Leaders are those in `known`, or are
    looked up without it.
    """
    left_bytes = bytes_max
    open_searches = sorted(searches, key=lambda search: (search.tp, search.position))
    for partition_bytes, count in (*SIZES, *(SIZES[-1:] * NO_PROGRESS_MAX)):
        stuck: list[Search] = []
        while open_searches:
            by_partition: dict[TopicPartition, list[Search]] = {}
            for search in open_searches:
                by_partition.setdefault(search.tp, []).append(search)
            if left_bytes < partition_bytes * len(by_partition):
                by_partition = dict(list(by_partition.items())[: left_bytes // partition_bytes])
            if not by_partition:
                return
            left_bytes -= await _fetch(client, by_partition, partition_bytes, count, known)
            # A partition whose first search is not over needs a larger response.
            stuck += [some[0] for some in by_partition.values() if not some[0].is_over]
            passed = {id(search) for search in stuck}
            open_searches = [search for search in open_searches if not search.is_over and id(search) not in passed]
        open_searches = sorted(stuck, key=lambda search: (search.tp, search.position))


async def _fetch(
    client: ClusterClient,
    searches: Mapping[TopicPartition, list[Search]],
    partition_bytes: int,
    count: int,
    known: ClusterMetadata | None,
) -> int:
    """Fetch once for each partition, from the position of its first search; return the bytes that were read."""
    limits = FetchLimits(
        max_wait_ms=0, min_bytes=0, max_bytes=partition_bytes * count, partition_max_bytes=partition_bytes
    )
    read_bytes = 0

    async def send(connection: Connection, tps: list[TopicPartition]) -> Outcomes[None]:
        nonlocal read_bytes
        outcomes: Outcomes[None] = {}
        for isolation in IsolationLevel:
            some = [tp for tp in tps if searches[tp][0].isolation is isolation]
            for start in range(0, len(some), count):
                positions = {tp: searches[tp][0].position for tp in some[start : start + count]}
                for batch in await fetch_batches(connection, positions, limits=limits, isolation=isolation):
                    read_bytes += len(batch.records)
                    outcomes[batch.tp] = _advanced(searches[batch.tp], batch, isolation)
        return outcomes

    # An error of a partition leaves its searches as they are: the error itself is known from ListOffsets.
    await on_leaders(client, list(searches), send, known=known)
    return read_bytes


def _advanced(searches: Sequence[Search], fetched: FetchedPartition, isolation: IsolationLevel) -> ApiError | None:
    if fetched.error is not ErrorCode.NONE:
        return ApiError(fetched.error)
    try:
        advance([search for search in searches if search.isolation is isolation], fetched, isolation)
    except CorruptBatch:
        return ApiError(ErrorCode.CORRUPT_MESSAGE)
    return None
