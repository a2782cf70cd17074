"""The first unread record, and the number of unread records, from responses of a broker."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.fetching import FetchedPartition
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.errors import ErrorCode
from kctl.lag.facts import Unread
from kctl.lag.unread_records import Search, advance, find_unread
from kctl.model import TopicPartition
from kctl.records.build import build_batch, rebuild_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record, parse_header
from tests.unit.client.fake_cluster import FakeCluster

TP = TopicPartition("orders", 0)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
PRODUCER = 7


class Log(NamedTuple):
    """A log from offset 0, and its unread records for a reader from the start."""

    data: bytes
    end: int
    aborted: list[tuple[int, int]]
    """First offset and offset of the marker of aborted transactions."""
    visible: list[tuple[int, int]]
    """Offset and timestamp of records that are neither control records nor aborted."""

    def fetched(self, position: int, isolation: IsolationLevel) -> FetchedPartition:
        """The response to a fetch of everything from the batch with this position on."""
        start, data = 0, memoryview(self.data)
        while start < len(data) and parse_header(data[start:]).last_offset < position:
            start += parse_header(data[start:]).size
        aborted = [(first, PRODUCER) for first, marker in self.aborted if marker >= position]
        aborted = aborted if isolation is COMMITTED else []
        return FetchedPartition(TP, ErrorCode.NONE, self.end, self.end, 0, data[start:], aborted=aborted)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Plain, compacted, committed, aborted and control batches in any order."""
    data, end = b"", 0
    aborted: list[tuple[int, int]] = []
    visible: list[tuple[int, int]] = []
    for kind in draw(st.lists(st.sampled_from(["plain", "compacted", "committed", "aborted"]), max_size=6)):
        count = draw(st.integers(1, 4))
        times = draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count))
        is_transactional = kind in {"committed", "aborted"}
        records = [Record(end + index, time, b"k", b"v" * 9) for index, time in enumerate(times)]
        batch = build_batch(
            records,
            base_offset=end,
            codec=draw(st.sampled_from([Codec.NONE, Codec.LZ4])),
            is_transactional=is_transactional,
            producer_id=PRODUCER if is_transactional else -1,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
        )
        if kind == "compacted":
            records = [record for record in records if draw(st.booleans())]
            batch = rebuild_batch(parse_header(batch), records)
        data += batch
        if kind == "aborted":
            aborted.append((end, end + count))
        else:
            visible += [(record.offset, record.timestamp) for record in records]
        end += count
        if is_transactional:
            type_ = ControlType.ABORT if kind == "aborted" else ControlType.COMMIT
            data += build_end_transaction_marker(
                EndTransactionMarker(type_, 0), producer_id=PRODUCER, producer_epoch=0, timestamp=5, base_offset=end
            )
            end += 1
    return Log(data, end, aborted, visible)


@given(logs(), st.lists(st.integers(0, 30), min_size=1, max_size=4))
@example(Log(b"", 0, [], []), [0])
def test_searches_find_exactly_the_records_that_a_reader_would_get(log: Log, positions: list[int]) -> None:
    starts = sorted(min(position, log.end) for position in positions)
    searches = [Search(TP, start, log.end) for start in starts if start < log.end]
    if searches:
        advance(searches, log.fetched(searches[0].position, COMMITTED), COMMITTED)
    for start, search in zip((start for start in starts if start < log.end), searches, strict=True):
        left = [record for record in log.visible if record[0] >= start]
        assert search.unread == Unread(left[0][1] if left else None, len(left))


def test_a_partial_response_gives_the_time_but_not_the_number() -> None:
    records = [Record(0, 100 + index, None, b"v") for index in range(3)]
    data = b"".join(build_batch(records, base_offset=base) for base in (0, 3))
    size = parse_header(memoryview(data)).size
    search = Search(TP, 1, 6)
    advance([search], FetchedPartition(TP, ErrorCode.NONE, 6, 6, 0, memoryview(data)[: size + 20]), COMMITTED)
    assert search.is_over
    assert search.unread == Unread(101, None)


def test_records_of_an_open_transaction_are_unread_for_readers_of_uncommitted_records() -> None:
    """Between last stable offset and high watermark there is no list of aborted transactions."""
    batch = build_batch(
        [Record(0, 42, None, b"v")], is_transactional=True, producer_id=PRODUCER, producer_epoch=0, base_sequence=0
    )
    search = Search(TP, 0, 1)
    advance([search], FetchedPartition(TP, ErrorCode.NONE, 1, 0, 0, memoryview(b"")), COMMITTED)
    assert (search.is_over, search.isolation) == (False, UNCOMMITTED)
    advance([search], FetchedPartition(TP, ErrorCode.NONE, 1, 0, 0, memoryview(batch)), UNCOMMITTED)
    assert search.unread == Unread(42, 1)


def test_records_without_a_timestamp_have_an_unknown_age() -> None:
    batch = build_batch([Record(0, -1, None, b"v")])
    search = Search(TP, 0, 1)
    advance([search], FetchedPartition(TP, ErrorCode.NONE, 1, 1, 0, memoryview(batch)), COMMITTED)
    assert search.unread == Unread(None, 1)


def test_batches_of_any_size_are_found_within_the_bounds() -> None:
    """The first requests are small; brokers cut batches that are larger."""
    with FakeCluster() as cluster:
        small, large = cluster.create("orders", 2)
        for time in range(50):
            small.append(build_batch([Record(0, 1000 + time, None, b"x" * 100)]))
        large.append(build_batch([Record(0, 77, None, b"x" * 300_000), Record(1, 78, None, b"")]))
        searches = [Search(TP, offset, 50) for offset in range(50)] + [Search(TopicPartition("orders", 1), 1, 2)]

        async def search() -> None:
            async with ClusterClient(cluster.settings(), AsyncioTransport()) as client:
                await find_unread(client, searches)

        asyncio.run(search())
    assert [search.unread.oldest_timestamp_ms for search in searches] == [*range(1000, 1050), 78]
    assert [search.unread.records for search in searches] == [*range(50, 0, -1), 1]
