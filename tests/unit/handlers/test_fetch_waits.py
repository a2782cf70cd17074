"""Cases of Kafka's DelayedFetch in which a fetch with less than min_bytes is completed at once.

The tests check the purgatory and the type of the result, not a clock.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import HEADER_SIZE, Record
from kctl.server.replication.partition import Partition
from kctl.storage.log.lookup import RecordsSlice
from tests.unit.handlers.test_fetch_replicas import CONSUMER, FOLLOWER, Scene, play
from tests.unit.handlers.world import context

MIN_BYTES = 100_000
WAIT_MS = 30_000


def call(
    scene: Scene,
    offset: int,
    *topics: str,
    min_bytes: int = MIN_BYTES,
    max_bytes: int = 1 << 20,
    replica_id: int = CONSUMER,
    version: int = 11,
    is_committed_only: bool = False,
) -> FetchResponse | asyncio.Future[FetchResponse]:
    requested = [
        FetchTopic(
            topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )
        for topic in topics or ("a",)
    ]
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(is_committed_only),
        topics=requested,
    )
    return scene.handler.handle(request, context(version))


def offsets(response: object) -> list[int]:
    """The base offsets in a response that was complete at once."""
    assert isinstance(response, FetchResponse)
    records = response.responses[0].partitions[0].records
    data = records.read() if isinstance(records, RecordsSlice) else records
    assert data is None or isinstance(data, (memoryview, bytes))
    return [header.base_offset for header in iterate_batches(data or b"")]


def error_of(response: FetchResponse) -> int:
    return response.responses[0].partitions[0].error_code


def waiting(scene: Scene) -> int:
    return len(scene.disk.replicas._fetch_purgatory)


def segments(scene: Scene, *counts: int) -> Partition:
    """A led partition with so many records in each segment; 0 leaves the last one empty."""
    partition = scene.disk.lead("a")
    for number, count in enumerate(counts):
        if number:
            partition.log.roll(scene.disk.clock.now_ms())
        scene.disk.append(partition, count)
    return partition


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("version", [1, 3, 4, 11])
def test_fetch_from_an_older_segment_returns_what_the_segment_holds(tmp_path: Path, offset: int, version: int) -> None:
    async def scene(scene: Scene) -> None:
        segments(scene, 3, 2)
        before_ms = scene.disk.clock.monotonic_ms()
        response = call(scene, offset, version=version)
        if version < 4:
            # The records are converted first; time is simulated, so a wait for more of them would be detected.
            assert isinstance(response, asyncio.Future)
            response = await response
            assert scene.disk.clock.monotonic_ms() - before_ms < WAIT_MS
        assert isinstance(response, FetchResponse)
        if version >= 4:
            assert offsets(response) == list(range(offset, 3))
        assert waiting(scene) == 0

    play(tmp_path, scene)


def test_fetch_from_the_last_segment_waits_for_min_bytes(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        segments(scene, 3, 2)
        assert isinstance(call(scene, 3), asyncio.Future)
        assert waiting(scene) == 1

    play(tmp_path, scene)


def test_fetch_from_a_segment_that_was_rolled_completes_although_nothing_follows(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        segments(scene, 3, 0)
        assert offsets(call(scene, 1)) == [1, 2]

    play(tmp_path, scene)


def test_fetch_at_the_end_of_the_log_waits_though_it_was_rolled(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        segments(scene, 3, 0)
        assert isinstance(call(scene, 3), asyncio.Future)

    play(tmp_path, scene)


def test_fetch_that_waits_completes_when_its_segment_is_rolled(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partition = segments(scene, 3)
        response = call(scene, 1)
        assert isinstance(response, asyncio.Future)
        partition.log.roll(scene.disk.clock.now_ms())
        scene.disk.append(partition, 1)
        scene.disk.replicas.partition_moved(partition.topic_partition)
        assert offsets(await response) == [1, 2]
        assert waiting(scene) == 0

    play(tmp_path, scene)


def test_a_waiting_fetch_gets_all_records_of_an_iteration_of_the_loop(tmp_path: Path) -> None:
    """It got the records of the first of several requests that arrived together, and each other one cost a fetch."""

    async def scene(scene: Scene) -> None:
        partition = segments(scene, 1)
        response = call(scene, 1, min_bytes=1)
        assert isinstance(response, asyncio.Future)
        for _ in range(3):
            scene.disk.append(partition, 1)
            scene.disk.replicas.partition_moved(partition.topic_partition)
        assert offsets(await response) == [1, 2, 3]

    play(tmp_path, scene)


def test_one_partition_on_an_older_segment_completes_the_fetch(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        scene.disk.append(scene.disk.lead("b"), 1)
        segments(scene, 3, 2)
        assert isinstance(call(scene, 0, "b", "a"), FetchResponse)

    play(tmp_path, scene)


def test_fetch_of_a_follower_on_an_older_segment_completes_at_once(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, FOLLOWER))
        scene.disk.append(partition, 3)
        partition.log.roll(scene.disk.clock.now_ms())
        scene.disk.append(partition, 2)
        assert offsets(call(scene, 1, replica_id=FOLLOWER)) == [1, 2]

    play(tmp_path, scene)


def test_upper_bound_of_the_reader_decides_which_segment_is_older(tmp_path: Path) -> None:
    """Only followers read beyond the high watermark, so for consumers the first segment is the last one."""

    async def scene(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, FOLLOWER))
        scene.disk.append(partition, 3)
        partition.log.roll(scene.disk.clock.now_ms())
        scene.disk.append(partition, 2)
        partition.record_fetch(FOLLOWER, 2, 0, scene.disk.clock.monotonic_ms())
        assert partition.high_watermark == 2
        assert isinstance(call(scene, 0), asyncio.Future)
        assert isinstance(call(scene, 0, is_committed_only=True), asyncio.Future)

    play(tmp_path, scene)


def test_throttled_follower_on_an_older_segment_waits(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        scene.throttle("a", 1)
        partition = scene.disk.lead("a", replicas=(0, FOLLOWER), isr=(0,))
        scene.disk.append(partition, 3)
        partition.log.roll(scene.disk.clock.now_ms())
        scene.disk.append(partition, 2)
        assert isinstance(call(scene, 0, replica_id=FOLLOWER), FetchResponse)
        assert isinstance(call(scene, 0, replica_id=FOLLOWER), asyncio.Future)

    play(tmp_path, scene)


def test_fetch_with_max_bytes_available_does_not_wait(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        segments(scene, 50)
        assert isinstance(call(scene, 0, max_bytes=500), FetchResponse)

    play(tmp_path, scene)


def test_waiting_fetch_gets_an_error_when_its_log_directory_fails(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partition = segments(scene, 1)
        response = call(scene, 1)
        assert isinstance(response, asyncio.Future)
        failure = partition.log.log_directory.fail(OSError("the disk is gone"))
        scene.disk.replicas.log_dir_failed(failure)
        assert error_of(await response) == ErrorCode.KAFKA_STORAGE_ERROR

    play(tmp_path, scene)


def compacted_batch(records_kept: int, last_offset: int) -> bytes:
    """The result of compacting a batch from offset 0 to `last_offset`: its last records are removed, or all of them."""
    batch = bytearray(build_batch([Record(offset, 1000, b"k%d" % offset, b"v") for offset in range(records_kept or 1)]))
    if not records_kept:
        del batch[HEADER_SIZE:]
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, last_offset)
    struct.pack_into(">i", batch, 57, records_kept)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("offset", [0, 4, 9])
@pytest.mark.parametrize("records_kept", [4, 0])
def test_fetch_inside_of_a_compacted_batch_completes_at_once(tmp_path: Path, offset: int, records_kept: int) -> None:
    """A reader that continues at the offset after the last record requests the same batch again.

    If that response came only after max_wait_ms, a client that treats it as a timeout would never get past the batch.
    """

    async def scene(scene: Scene) -> None:
        log = scene.disk.lead("a", leader=1, replicas=(0, 1)).log
        log.append_as_follower(memoryview(compacted_batch(records_kept, 9)), now_ms=0)
        log.roll(0)
        log.append_as_follower(memoryview(build_batch([Record(10, 1000, b"k", b"v")], base_offset=10)), now_ms=0)
        scene.disk.lead("a")
        assert offsets(call(scene, offset)) == [0]
        assert waiting(scene) == 0

    play(tmp_path, scene)


def test_fetch_behind_the_last_batch_that_compaction_left_gets_the_next_segment(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        log = scene.disk.lead("a", leader=1, replicas=(0, 1)).log
        log.append_as_follower(memoryview(compacted_batch(4, 9)), now_ms=0)
        log.roll(0)
        for base_offset in (20, 30):
            batch = build_batch([Record(0, 1000, b"k", b"v")], base_offset=base_offset)
            log.append_as_follower(memoryview(batch), now_ms=0)
            log.roll(0)
        scene.disk.lead("a")
        assert offsets(call(scene, 10)) == [20]
        assert waiting(scene) == 0

    play(tmp_path, scene)


class CountedPartitions(dict[TopicPartition, Partition]):
    """Counts how often a partition is looked up."""

    lookups = 0

    def get(self, key: TopicPartition, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(key, default)


def test_a_change_of_a_partition_examines_only_that_partition(tmp_path: Path) -> None:
    """A follower's fetch of 5,000 partitions, each of which changed, was examined for 24 s without a pause."""
    topics = [f"t-{number}" for number in range(60)]

    async def scene(scene: Scene) -> None:
        replicas = scene.disk.replicas
        partitions = [scene.disk.lead(topic) for topic in topics]
        scene.disk.append(partitions[0], 1)
        batch_bytes = partitions[0].log.size_bytes
        replicas.partitions = counted = CountedPartitions(replicas.partitions)
        response = call(scene, 0, *topics, min_bytes=batch_bytes * len(topics))
        assert isinstance(response, asyncio.Future)
        counted.lookups = 0
        for partition in partitions[1:-1]:
            scene.disk.append(partition, 1)
            replicas.partition_moved(partition.topic_partition)
            replicas.partition_moved(partition.topic_partition)
            await asyncio.sleep(0)
        assert not response.done()
        assert counted.lookups < 20 * len(topics)
        scene.disk.append(partitions[-1], 1)
        replicas.partition_moved(partitions[-1].topic_partition)
        answers = (await response).responses
        assert [len(answer.partitions[0].records or b"") for answer in answers] == [batch_bytes] * len(topics)

    play(tmp_path, scene)
