"""A Produce request for many partitions is appended in slices, with the result of one that is appended at once."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ErrorCode, UnansweredRequestFailed
from kctl.limits import HANDLED_AT_ONCE_BYTES_MAX
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records import validate
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.handlers import produce
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import context

SLICE = 5
PARTITIONS = 18
UNKNOWN = 3


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "APPENDS_PER_SLICE_MAX", SLICE)


def request(buffer: bytearray, *, acks: int) -> ProduceRequest:
    """One batch for each partition, for those that do not exist too, and a second one for partition 0."""
    batch = build_batch([Record(0, 0, b"key", b"value", ())])
    indexes = [*range(PARTITIONS + UNKNOWN), 0]
    buffer[:] = batch * len(indexes)
    view = memoryview(buffer)
    data = [
        PartitionProduceData(index=index, records=view[at * len(batch) : (at + 1) * len(batch)])
        for at, index in enumerate(indexes)
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=data)])


class Session:
    """A fetch session that has a partition and does not fetch."""

    is_watching = True

    def moved(self) -> bool:
        return False

    def high_watermark_moved(self) -> bool:
        return False


def play(
    folder: Path, *, acks: int, is_decoded_off_loop: bool = False, sessions: int = 0
) -> tuple[ProduceResponse | None, list[int]]:
    """The response, and how many batches had been appended in each iteration of the event loop."""
    found: list[ProduceResponse | None] = []
    appended: list[int] = []

    async def main(loop: SimLoop) -> None:
        disk, work, buffer = Disk(loop, folder), RecordWork(), bytearray()
        partitions = [disk.lead("orders", index) for index in range(PARTITIONS)]
        for partition in partitions:
            for _ in range(sessions):
                partition.watchers.add(Session())
        handler = ProduceHandler(disk.replicas, disk.purgatory, work, disk.clock, MetadataCache())
        result: Any
        if is_decoded_off_loop:
            result = handler.handle_long(request(buffer, acks=acks), context(9))
        else:
            result = handler.handle(request(buffer, acks=acks), context(9))
            buffer[:] = bytes(len(buffer))  # The connection reuses its buffer once the handler has returned.
        assert not isinstance(result, ProduceResponse)
        assert result is not None
        waiting = asyncio.ensure_future(result)
        try:
            while True:
                appended.append(sum(partition.log.log_end_offset for partition in partitions))
                if waiting.done():
                    break
                await asyncio.sleep(0)
            found.append(waiting.result())
        finally:
            disk.close()

    simulate(main, seed=1)
    return found[0], appended


@pytest.mark.parametrize("is_decoded_off_loop", [False, True])
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.long
def test_many_partitions_are_appended_to_in_slices(tmp_path: Path, acks: int, is_decoded_off_loop: bool) -> None:
    response, appended = play(tmp_path, acks=acks, is_decoded_off_loop=is_decoded_off_loop)
    assert response is not None
    assert len(response.responses) == 1
    results = response.responses[0].partition_responses
    assert [(result.index, result.error_code, result.base_offset) for result in results] == [
        *((index, ErrorCode.NONE, 0) for index in range(PARTITIONS)),
        *((PARTITIONS + index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1) for index in range(UNKNOWN)),
        (0, ErrorCode.NONE, 1),
    ]
    assert appended[0] == (0 if is_decoded_off_loop else SLICE)
    assert appended[-1] == PARTITIONS + 1
    steps = [after - before for before, after in pairwise(appended)]
    assert max(steps) == SLICE


@pytest.mark.parametrize("is_decoded_off_loop", [False, True])
@pytest.mark.long
def test_slices_are_shorter_if_many_fetch_sessions_are_notified(tmp_path: Path, is_decoded_off_loop: bool) -> None:
    """Before, a request for 200 partitions, with 1,000 sessions each, took 440 ms at once."""
    response, appended = play(tmp_path, acks=1, is_decoded_off_loop=is_decoded_off_loop, sessions=25)
    assert response is not None
    assert appended[-1] == PARTITIONS + 1
    assert max(after - before for before, after in pairwise([0, *appended])) == 2


@pytest.mark.parametrize("is_decoded_off_loop", [False, True])
def test_without_acks_the_failures_of_all_slices_are_reported(tmp_path: Path, is_decoded_off_loop: bool) -> None:
    with pytest.raises(UnansweredRequestFailed, match=rf"orders-{PARTITIONS}: UNKNOWN_TOPIC_OR_PARTITION"):
        play(tmp_path, acks=0, is_decoded_off_loop=is_decoded_off_loop)


@pytest.mark.parametrize("partitions", [[1] * 12, [12], [4, 4, 4], [0, 7, 0, 1]])
def test_slices_have_all_partitions_in_order(partitions: list[int]) -> None:
    topics = [
        TopicProduceData(
            name=f"t{number}",
            partition_data=[PartitionProduceData(index=index, records=None) for index in range(count)],
        )
        for number, count in enumerate(partitions)
    ]
    slices = [*produce._slices(topics)]
    assert max(sum(len(topic.partition_data) for topic in some) for some in slices) <= SLICE
    flat = [(topic.name, data.index) for some in slices for topic in some for data in topic.partition_data]
    assert flat == [(topic.name, data.index) for topic in topics for data in topic.partition_data]
    assert {topic.name for some in slices for topic in some} == {topic.name for topic in topics}


def test_slices_end_after_some_megabytes_of_records() -> None:
    records = memoryview(bytes(HANDLED_AT_ONCE_BYTES_MAX // 4))
    data = [PartitionProduceData(index=index, records=records) for index in range(5)]
    slices = [*produce._slices([TopicProduceData(name="t", partition_data=data)])]
    assert [[partition.index for partition in some[0].partition_data] for some in slices] == [[0, 1], [2, 3], [4]]


def test_a_large_batch_is_written_by_a_thread_and_a_refused_one_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (produce, validate):
        monkeypatch.setattr(module, "APPENDED_INLINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(produce, "HANDLED_AT_ONCE_BYTES_MAX", 1_000)

    async def main(loop: SimLoop) -> None:
        disk, work = Disk(loop, tmp_path), RecordWork(waiting_bytes_max=100_000)
        partition = disk.lead("orders", 0)
        handler = ProduceHandler(disk.replicas, disk.purgatory, work, disk.clock, MetadataCache())

        async def send(size: int, sequence: int) -> tuple[int, str | None]:
            record = Record(0, 0, b"key", bytes(size))
            batch = build_batch([record], producer_id=1, producer_epoch=0, base_sequence=sequence)
            data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
            sent = ProduceRequest(
                acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
            )
            response = await handler.handle_long(sent, context(9))
            assert response is not None
            (result,) = response.responses[0].partition_responses
            return result.error_code, result.error_message

        assert (await send(10, 0))[0] == ErrorCode.NONE
        assert (await send(5_000, 1))[0] == ErrorCode.NONE
        assert (await send(5_000, 9))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        code, message = await send(100_000, 2)
        assert code == ErrorCode.MESSAGE_TOO_LARGE
        assert "limit of 100000 bytes" in (message or "")
        assert partition.log.log_end_offset == 2
        disk.close()
        await work.close()

    simulate(main, seed=1)
    assert {path.name for path in tmp_path.glob("orders-0/*.log")} == {f"{offset:020}.log" for offset in (0, 1)}
    assert not list(tmp_path.glob("*/*.tmp"))
