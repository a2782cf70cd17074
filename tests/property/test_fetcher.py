"""Whatever order responses, positions and takes come in, an application gets each record once and in order."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.consuming.fetching.batches import FetchedPartition, FetchLimits
from kctl.client.consuming.fetching.fetcher import Fetcher, Request
from kctl.client.consuming.groups.consumer import decode_records
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.metadata import Broker, ClusterMetadata, Partition, Topic
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import BatchHeader, Record
from tests.unit.client.fake_cluster import FakePartition

TPS = [TopicPartition("orders", number) for number in range(3)]
BUFFER_BYTES = 1_500
PARTITION_BYTES = 400
BATCH_BYTES_MAX = 160


class Play:
    """Three partitions on two brokers, whose leaders change, and an application that reads them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.logs = {tp: FakePartition(self.chance.randrange(2)) for tp in TPS}
        limits = FetchLimits(max_bytes=1_000, partition_max_bytes=PARTITION_BYTES)
        self.fetcher = Fetcher(
            decode_records,
            limits=limits,
            isolation=IsolationLevel.READ_UNCOMMITTED,
            buffered_bytes_max=BUFFER_BYTES,
        )
        self.fetcher.set(dict.fromkeys(TPS, 0))
        self.expected = dict.fromkeys(TPS, 0)
        self.open: dict[int, Request] = {}
        self.now_ms = 0

    def metadata(self) -> ClusterMetadata:
        brokers = {number: Broker(number, "host", 9092 + number) for number in range(2)}
        partitions = tuple(
            Partition(tp.partition, log.leader, log.leader_epoch, (0, 1), (0, 1), (), ErrorCode.NONE)
            for tp, log in self.logs.items()
        )
        topic = Topic("orders", UUID(int=1), False, partitions, ErrorCode.NONE)
        return ClusterMetadata("cluster", 0, brokers, {"orders": topic})

    def step(self) -> None:
        chance, fetcher = self.chance, self.fetcher
        tp = chance.choice(TPS)
        match chance.randrange(12):
            case 0 | 1:
                count = chance.randrange(1, 4)
                self.logs[tp].append(build_batch([Record(0, 1_000, None, b"x" * 20) for _ in range(count)]))
            case 2 | 3 | 4:
                self.send()
            case 5 | 6 | 7:
                self.respond()
            case 8 | 9:
                self.take(chance.randrange(1, 6))
            case 10:
                self.change(tp)
            case 11:
                fetcher.paused ^= {tp}
                fetcher.drop_fetched([tp])
        room = BUFFER_BYTES + 2 * BATCH_BYTES_MAX * len(TPS)  # each response has at least one batch
        assert fetcher.buffered_bytes <= room

    def change(self, tp: TopicPartition) -> None:
        if self.chance.random() < 0.5:
            self.expected[tp] = self.chance.randrange(self.logs[tp].end + 1)
            self.fetcher.set({tp: self.expected[tp]})
        else:
            self.logs[tp].elect(1 - self.logs[tp].leader)
            self.fetcher.forget_checks(self.metadata())

    def send(self) -> None:
        metadata = self.metadata()
        due = self.fetcher.to_check(metadata)
        self.fetcher.history.note_checked(metadata, due)
        for tp in due:
            self.fetcher.release(tp, is_checked=True)
        requests, _ = self.fetcher.due(metadata, self.now_ms)
        assert not requests.keys() & self.open.keys(), "one request of a broker at a time"
        self.open.update(requests)

    def respond(self) -> None:
        if not self.open:
            return
        self.now_ms += 2_000
        broker = self.chance.choice(sorted(self.open))
        request = self.open.pop(broker)
        if self.chance.random() < 0.2:
            self.fetcher.failed(broker, request, self.now_ms)
            return
        fetched = [self.fetched(broker, tp, offset) for tp, offset in request.offsets.items()]
        self.fetcher.completed(broker, request, fetched, self.now_ms)

    def fetched(self, broker: int, tp: TopicPartition, offset: int) -> FetchedPartition:
        log = self.logs[tp]
        if log.leader != broker:
            return FetchedPartition(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1, memoryview(b""))
        data = bytes(log.data)
        start = next((header.position for header in headers(data) if header.next_offset > offset), len(data))
        records = memoryview(data)[start : start + self.chance.randrange(BATCH_BYTES_MAX, PARTITION_BYTES)]
        return FetchedPartition(tp, ErrorCode.NONE, log.end, log.end, 0, records)

    def take(self, count: int) -> None:
        part = self.fetcher.next_part()
        if part is None:
            return
        assert part.tp not in self.fetcher.paused
        for record in part.records[part.taken : part.taken + count]:
            assert record.offset == self.expected[part.tp], part.tp
            self.expected[part.tp] += 1
            part.taken += 1
        assert self.fetcher.positions[part.tp] == self.expected[part.tp]

    def finish(self) -> None:
        """Without pauses and failures everything is read."""
        self.fetcher.paused.clear()
        for _ in range(400):
            self.send()
            while self.open:
                self.respond()
            self.take(10)
        assert self.expected == {tp: log.end for tp, log in self.logs.items()}
        assert self.fetcher.buffered_bytes == 0


def headers(data: bytes) -> list[BatchHeader]:
    return list(iterate_batches(data))


@given(st.integers(0, 1 << 32))
@pytest.mark.long
def test_records_come_once_and_in_order(seed: int) -> None:
    play = Play(seed)
    for _ in range(150):
        play.step()
    play.finish()
