"""Batches that are small on the network and expensive to decompress, iterate or convert, produced or stored.

Long work does not run on the event loop: the handler returns an awaitable before the records are processed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import struct
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.limits import DECOMPRESSED_BATCH_BYTES_MAX, RECORD_WORK_BYTES_MAX, RECORDS_PER_BATCH_MAX
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.allowance import INLINE_RECORDS_MAX, WALKED_RECORDS_PER_RECORD
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record, parse_header, seal
from kctl.records.old_formats.legacy import build_messages
from kctl.server.handlers.fetch import FetchHandler
from kctl.server.handlers.list_offsets import ListOffsetsHandler
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.loop.timer import WheelTimer
from kctl.server.replication.fetching.fetch_session import FetchSessionCache
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.partition import Partition
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import context, exchange

TO_GZIP = {"compression.type": "gzip"}
COMPACTED = {"log.cleanup.policy": "compact"}
LONG = [Record(0, 5, b"k", b"v")] * ((INLINE_RECORDS_MAX + 1) * WALKED_RECORDS_PER_RECORD)
BOMB = build_batch([Record(0, 5, b"k", bytes(17 << 20))], codec=Codec.ZSTD)
LARGE = build_batch([Record(0, 5, b"k", bytes(1 << 20))], codec=Codec.ZSTD)
LARGE_OF_LZ4 = build_batch([Record(0, 5, b"k", bytes(1 << 20))], codec=Codec.LZ4)


class NoIsrChanges:
    def may_expand(self, partition: Partition, replica_id: int) -> None:
        """No followers."""


def play(
    folder: Path, scene: Callable[[Disk, RecordWork], Awaitable[None]], properties: Mapping[str, str] | None = None
) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, folder, properties=properties)
        try:
            await scene(disk, RecordWork())
        finally:
            disk.close()

    simulate(main, seed=1)


def producer(disk: Disk, work: RecordWork) -> Callable[..., Any]:
    """Calls the handler as the dispatcher does; the buffers of the records are overwritten when it has returned."""
    handler = ProduceHandler(
        disk.replicas, Purgatory(WheelTimer(disk.clock, disk.loop)), work, disk.clock, disk.metadata
    )

    def produce(*batches: bytes, topic: str = "a", version: int = 9, acks: int = 1) -> object:
        buffers = [bytearray(batch) for batch in batches]
        data = [PartitionProduceData(index=0, records=memoryview(buffer)) for buffer in buffers]
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        result = handler.handle(request, context(version))
        for buffer in buffers:
            buffer[:] = bytes(len(buffer))
        return result

    return produce


def results(response: object) -> list[PartitionProduceResponse]:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses


async def results_later(result: object) -> list[PartitionProduceResponse]:
    assert isinstance(result, Awaitable), "the work was done on the event loop"
    return results(await result)


def stored(partition: Partition) -> list[Record]:
    data = partition.log.read(0, 1 << 30, max_offset=partition.log.log_end_offset).read()
    return [record for header in iterate_batches(data) for record in iterate_records(data, header)]


# Produce


@pytest.mark.parametrize("codec", list(Codec))
def test_a_small_batch_is_checked_and_appended_at_once(tmp_path: Path, codec: Codec) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        disk.lead("a")
        (reply,) = results(producer(disk, work)(build_batch(LONG[:10], codec=codec)))
        assert (reply.error_code, reply.base_offset) == (ErrorCode.NONE, 0)

    play(tmp_path, scene)


def test_messages_of_an_old_format_count_as_conversions(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        produce = producer(disk, work)
        assert results(produce(build_batch(LONG[:1])))[0].error_code == ErrorCode.NONE
        assert partition.traffic.produce_conversions == 0
        old = build_messages(LONG[:1], magic=1)
        assert results(produce(old, version=2))[0].error_code == ErrorCode.NONE
        assert partition.traffic.produce_conversions == 1

    play(tmp_path, scene)


def test_a_small_batch_is_converted_at_once(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        (reply,) = results(producer(disk, work)(build_batch(LONG[:10])))
        assert reply.error_code == ErrorCode.NONE
        assert parse_header(partition.log.read(0, 1000, max_offset=10).read()).codec is Codec.GZIP

    play(tmp_path, scene, TO_GZIP)


@pytest.mark.parametrize(
    ("properties", "batch", "count"),
    [
        (TO_GZIP, LARGE, 1),
        (COMPACTED, build_batch(LONG, codec=Codec.LZ4), len(LONG)),
        (COMPACTED, build_batch(LONG), len(LONG)),
    ],
    ids=["recompressed", "compressed keys", "keys"],
)
def test_a_batch_that_takes_long_leaves_the_event_loop(
    tmp_path: Path, properties: Mapping[str, str], batch: bytes, count: int
) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        (reply,) = await results_later(producer(disk, work)(batch))
        assert (reply.error_code, reply.base_offset) == (ErrorCode.NONE, 0)
        assert [record.key for record in stored(partition)] == [b"k"] * count
        assert work.used_bytes == 0

    play(tmp_path, scene, properties)


def test_many_small_batches_of_one_request_share_the_allowance_of_the_event_loop(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        disk.lead("a")
        batch = build_batch(LONG[: INLINE_RECORDS_MAX * WALKED_RECORDS_PER_RECORD // 4])
        assert len(results(producer(disk, work)(*[batch] * 4))) == 4
        later = await results_later(producer(disk, work)(*[batch] * 5))
        assert [reply.error_code for reply in later] == [ErrorCode.NONE] * 5

    play(tmp_path, scene, COMPACTED)


def test_a_bomb_is_refused_with_the_bound_in_the_message(tmp_path: Path) -> None:
    """CVE-2026-111073: only the compressed size of a payload was checked, before decompression."""

    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        (reply,) = await results_later(producer(disk, work)(BOMB))
        assert reply.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert f"more than {16 << 20} bytes" in (reply.error_message or "")
        assert partition.log.log_end_offset == 0
        assert work.used_bytes == 0

    play(tmp_path, scene, TO_GZIP)


def test_a_leader_that_resigns_during_the_validation_appends_nothing(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        result = producer(disk, work)(LARGE)
        task = asyncio.ensure_future(result)
        await asyncio.sleep(0)
        disk.lead("a", leader=1, replicas=(0, 1))
        (reply,) = results(await task)
        assert reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 0

    play(tmp_path, scene, TO_GZIP)


def test_batches_of_one_partition_keep_their_order_when_the_first_takes_long(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        first = build_batch(LONG, producer_id=7, producer_epoch=0, base_sequence=0)
        second = build_batch(LONG[:1], producer_id=7, producer_epoch=0, base_sequence=len(LONG))
        produced = await results_later(producer(disk, work)(first, second))
        assert [reply.error_code for reply in produced] == [ErrorCode.NONE] * 2
        assert [reply.base_offset for reply in produced] == [0, len(LONG)]
        assert partition.log.log_end_offset == len(LONG) + 1

    play(tmp_path, scene, COMPACTED)


def test_a_batch_that_is_sent_again_during_its_validation_is_a_duplicate(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        batch = build_batch(LONG, producer_id=7, producer_epoch=0, base_sequence=0)
        produce = producer(disk, work)
        both = await asyncio.gather(results_later(produce(batch)), results_later(produce(batch)))
        assert [(reply.error_code, reply.base_offset) for (reply,) in both] == [(ErrorCode.NONE, 0)] * 2
        assert partition.log.log_end_offset == len(LONG)

    play(tmp_path, scene, COMPACTED)


def test_requests_that_wait_may_keep_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    async def scene(disk: Disk, _: RecordWork) -> None:
        disk.lead("a")
        work = RecordWork(waiting_bytes_max=len(LARGE))
        produce = producer(disk, work)
        first = produce(LARGE)
        (refused,) = results(produce(LARGE))
        assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert f"more than {len(LARGE)} bytes" in (refused.error_message or "")
        (reply,) = await results_later(first)
        assert reply.error_code == ErrorCode.NONE
        (reply,) = await results_later(produce(LARGE))
        assert reply.error_code == ErrorCode.NONE

    play(tmp_path, scene, TO_GZIP)


# The limit for all requests together


def test_work_of_all_requests_shares_the_bytes_and_waits_in_order() -> None:
    async def main(_: SimLoop) -> None:
        work = RecordWork(bytes_max=100)
        used: list[int] = []
        done: list[int] = []

        async def run(number: int, size: int) -> None:
            await work.run(size, lambda: used.append(work.used_bytes))
            done.append(number)

        sizes = [60, 60, 10, 100, 1000, 5]
        await asyncio.gather(*(run(number, size) for number, size in enumerate(sizes)))
        assert max(used) <= 100
        assert sorted(done) == list(range(6))
        assert done.index(3) < done.index(4) < done.index(5)
        assert work.used_bytes == 0

    simulate(main, seed=1)


def test_a_request_that_is_cancelled_leaves_the_queue_and_keeps_its_bytes_until_its_thread_is_done() -> None:
    async def main(_: SimLoop) -> None:
        work = RecordWork(bytes_max=100)
        running = asyncio.ensure_future(work.run(80, lambda: 1))
        waiting = asyncio.ensure_future(work.run(80, lambda: 2))
        third = asyncio.ensure_future(work.run(20, lambda: 3))
        await asyncio.sleep(0)
        running.cancel()
        waiting.cancel()
        await asyncio.sleep(0)
        assert work.used_bytes >= 80
        assert await third == 3
        await asyncio.sleep(10)
        assert work.used_bytes == 0

    simulate(main, seed=1)


def test_a_broker_that_stops_gives_no_result_of_work_to_its_requests() -> None:
    async def main(_: SimLoop) -> None:
        work = RecordWork(bytes_max=100)
        tasks = [asyncio.ensure_future(work.run(80, lambda: 1)) for _ in range(3)]
        await asyncio.sleep(0)
        await work.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(
            isinstance(outcome, ApiError) and outcome.code is ErrorCode.NOT_LEADER_OR_FOLLOWER for outcome in outcomes
        )

    simulate(main, seed=1)


def test_work_that_fails_frees_its_memory_without_a_garbage_collection() -> None:
    class Plain:
        """Represents decompressed bytes in a variable of the work."""

    freed: list[weakref.ref[Plain]] = []

    def refuse() -> None:
        plain = Plain()
        freed.append(weakref.ref(plain))
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)

    async def main() -> None:
        with suppress(ApiError):
            await RecordWork().run(1, refuse)
        async with asyncio.timeout(10):
            while freed[0]() is not None:  # noqa: ASYNC110 - the thread releases it shortly after its result.
                await asyncio.sleep(0.001)

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_two_of_the_largest_batches_fit_the_bytes_of_all_requests() -> None:
    assert RECORD_WORK_BYTES_MAX >= 2 * DECOMPRESSED_BATCH_BYTES_MAX


# ListOffsets


async def offset_of(disk: Disk, work: RecordWork, timestamp: int) -> tuple[bool, ListOffsetsPartitionResponse]:
    """Whether the search left the event loop, and its result."""
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=[requested])])
    result = ListOffsetsHandler(disk.replicas, work, disk.clock).handle(request, context(5))
    is_long = isinstance(result, Awaitable)
    response = await result if isinstance(result, Awaitable) else result
    return is_long, response.topics[0].partitions[0]


def claiming(batch: bytes, *, max_timestamp: int | None = None, count: int | None = None) -> bytes:
    changed = bytearray(batch)
    if max_timestamp is not None:
        struct.pack_into(">q", changed, 35, max_timestamp)
    if count is not None:
        struct.pack_into(">i", changed, 23, count - 1)
        struct.pack_into(">i", changed, 57, count)
    seal(changed, parse_header(changed))
    return bytes(changed)


def put(partition: Partition, batch: bytes) -> None:
    """Appended to the log, as an earlier version of the broker or another leader may have done."""
    changed = bytearray(batch)
    struct.pack_into(">q", changed, 0, partition.log.log_end_offset)
    partition.log.append_as_follower(bytes(changed))
    partition.advance_high_watermark(0)


def test_a_search_in_large_batches_with_false_timestamps_leaves_the_event_loop(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        for _ in range(3):
            put(partition, claiming(LARGE, max_timestamp=1000))
        put(partition, build_batch([Record(0, 100, b"k", b"v")]))
        is_long, reply = await offset_of(disk, work, 50)
        assert is_long
        assert (reply.error_code, reply.offset, reply.timestamp) == (ErrorCode.NONE, 3, 100)
        is_long, reply = await offset_of(disk, work, 5)
        assert (reply.error_code, reply.offset, reply.timestamp) == (ErrorCode.NONE, 0, 5)

    play(tmp_path, scene)


def test_a_search_in_small_batches_completes_at_once_until_the_allowance_is_used_up(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        batch = claiming(build_batch(LONG[:300]), max_timestamp=1000)
        for _ in range(3):
            put(partition, batch)
        assert (await offset_of(disk, work, 5))[0] is False
        is_long, reply = await offset_of(disk, work, 900)
        assert (is_long, reply.offset) == (False, -1)
        put(partition, batch)
        is_long, reply = await offset_of(disk, work, 900)
        assert (is_long, reply.error_code, reply.offset) == (True, ErrorCode.NONE, -1)

    play(tmp_path, scene)


@pytest.mark.parametrize("batch", [BOMB, claiming(LARGE, count=RECORDS_PER_BATCH_MAX + 1)], ids=["bytes", "records"])
def test_a_search_in_a_stored_bomb_is_an_error_of_its_partition(tmp_path: Path, batch: bytes) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        put(disk.lead("a"), batch)
        _, reply = await offset_of(disk, work, 3)
        assert reply.error_code == ErrorCode.CORRUPT_MESSAGE

    play(tmp_path, scene)


def test_a_search_on_a_failed_disk_is_a_storage_error(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        partition = disk.lead("a")
        put(partition, LARGE)
        result = asyncio.ensure_future(offset_of(disk, work, 3))
        await asyncio.sleep(0)
        partition.log.log_directory.fail(OSError("gone"))
        _, reply = await result
        assert reply.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    play(tmp_path, scene)


# Fetch of old versions


async def fetch(disk: Disk, work: RecordWork, topics: list[str], max_bytes: int = 1 << 20) -> dict[str, PartitionData]:
    handler = FetchHandler(
        disk.replicas,
        disk.replicas._fetch_purgatory,
        FetchSessionCache(10),
        NoIsrChanges(),  # type: ignore[arg-type]
        throttles=ReplicationThrottles(0, disk.configs),
        selector=ReplicaSelector(disk.metadata, None),
        clock=disk.clock,
        random=random.Random(1),
        work=work,
        fetch_max_bytes=1 << 20,
        metadata=disk.metadata,
    )
    requested = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
        for topic in topics
    ]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=requested)
    response: FetchResponse = await exchange(handler.handle, request, 3)
    return {topic.topic: topic.partitions[0] for topic in response.responses}


@pytest.mark.parametrize(
    "batch",
    [
        claiming(LARGE_OF_LZ4, count=RECORDS_PER_BATCH_MAX + 1),
        build_batch([Record(0, 5, b"k", bytes(130 << 20))], codec=Codec.GZIP),
    ],
    ids=["records", "bytes"],
)
def test_a_conversion_of_a_stored_bomb_is_an_error_of_its_partition(tmp_path: Path, batch: bytes) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        put(disk.lead("a"), batch)
        put(disk.lead("b"), build_batch(LONG[:3]))
        found = await fetch(disk, work, ["a", "b"])
        assert found["a"].error_code == ErrorCode.CORRUPT_MESSAGE
        records = found["b"].records
        assert isinstance(records, (memoryview, bytes))
        assert len(list(iterate_batches(records))) == 3
        assert work.used_bytes == 0

    play(tmp_path, scene)


def test_a_conversion_reads_partitions_until_the_response_is_full(tmp_path: Path) -> None:
    async def scene(disk: Disk, work: RecordWork) -> None:
        for topic in "abc":
            put(disk.lead(topic), build_batch([Record(0, 5, None, b"v" * 1000)], codec=Codec.GZIP))
        sizes = [len(reply.records or b"") for reply in (await fetch(disk, work, ["a", "b", "c"], 40)).values()]
        assert sizes[0] > 0
        assert sizes[1:] == [0, 0]

    play(tmp_path, scene)
