"""DeleteRecords: allowed log start offsets, and waiting for the replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition
from kctl.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kctl.server.handlers.delete_records import DeleteRecordsHandler
from kctl.server.loop.timer import WheelTimer
from kctl.server.requests.purgatory import DelayedOperation, Purgatory
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import exchange

Response = tuple[int, ErrorCode]
"""The low watermark and the error."""


def play(
    folder: Path,
    scene: Callable[[Disk], Awaitable[None]],
    *,
    live: tuple[int, ...] = (0,),
    properties: Mapping[str, str] | None = None,
) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, folder, live=live, properties=properties)
        try:
            await scene(disk)
        finally:
            disk.close()

    simulate(main, seed=1)


async def delete(
    disk: Disk, topic: str, offset: int, *, index: int = 0, version: int = 2, timeout_ms: int = 5000
) -> Response:
    handler = DeleteRecordsHandler(disk.replicas, disk.metadata, disk.configs, disk.purgatory)
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=timeout_ms
    )
    response: Any = await exchange(handler.handle, request, version)
    result = response.topics[0].partitions[0]
    return result.low_watermark, ErrorCode(result.error_code)


@pytest.mark.parametrize("version", range(3))
def test_the_log_start_offset_is_the_requested_one(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        disk.append(partition, 10)
        assert await delete(disk, "a", 4, version=version) == (4, ErrorCode.NONE)
        assert partition.log.log_start_offset == 4

    play(tmp_path, scene)


def test_minus_one_stands_for_the_high_watermark(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        disk.append(partition, 10)
        assert await delete(disk, "a", -1) == (10, ErrorCode.NONE)

    play(tmp_path, scene)


def test_an_offset_before_the_start_changes_nothing(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        disk.append(partition, 10)
        await delete(disk, "a", 6)
        assert await delete(disk, "a", 2) == (6, ErrorCode.NONE)

    play(tmp_path, scene)


@pytest.mark.parametrize("offset", [-2, 11])
def test_beyond_the_high_watermark_nothing_is_deleted(tmp_path: Path, offset: int) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        disk.append(partition, 10)
        assert await delete(disk, "a", offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert partition.log.log_start_offset == 0

    play(tmp_path, scene)


def test_compacted_and_internal_topics_keep_their_records(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        disk.configs.set_topic("compacted", {"cleanup.policy": "compact"})
        disk.configs.set_topic("both", {"cleanup.policy": "compact,delete"})
        for topic in ("compacted", "both", GROUP_METADATA_TOPIC):
            disk.append(disk.lead(topic), 1) if topic == "both" else disk.lead(topic)
        assert await delete(disk, "compacted", 0) == (-1, ErrorCode.POLICY_VIOLATION)
        assert await delete(disk, "both", 1) == (1, ErrorCode.NONE)
        assert await delete(disk, GROUP_METADATA_TOPIC, 0) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)

    play(tmp_path, scene)


def test_only_the_leader_of_a_known_partition_deletes(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        disk.lead("a", leader=1, replicas=(0, 1))
        assert await delete(disk, "a", 0) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await delete(disk, "a", 0, index=1) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    play(tmp_path, scene, live=(0, 1))


def test_the_response_waits_for_the_live_replicas(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a", replicas=(0, 1, 2))
        disk.append(partition, 10)
        for follower in (1, 2):
            partition.record_fetch(follower, 10, 0, disk.clock.now_ms())
        waiting = asyncio.ensure_future(delete(disk, "a", 4))
        await asyncio.sleep(1)
        assert not waiting.done()
        # Broker 2 is not alive, so its replica is not waited for.
        if partition.record_fetch(1, 10, 4, disk.clock.now_ms()):
            disk.replicas.partition_moved(partition.topic_partition)
        assert await waiting == (4, ErrorCode.NONE)
        assert disk.loop.time() < 2

    play(tmp_path, scene, live=(0, 1))


def test_slow_replicas_time_the_request_out(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a", replicas=(0, 1))
        disk.append(partition, 10)
        partition.record_fetch(1, 10, 0, disk.clock.now_ms())
        assert await delete(disk, "a", 4, timeout_ms=2000) == (-1, ErrorCode.REQUEST_TIMED_OUT)
        assert disk.loop.time() == pytest.approx(2, abs=0.1)

    play(tmp_path, scene, live=(0, 1))


def test_a_leader_that_resigns_meanwhile_responds_not_leader(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a", replicas=(0, 1))
        disk.append(partition, 10)
        partition.record_fetch(1, 10, 0, disk.clock.now_ms())
        waiting = asyncio.ensure_future(delete(disk, "a", 4))
        await asyncio.sleep(0.1)
        disk.lead("a", leader=1, replicas=(0, 1))
        assert await waiting == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    play(tmp_path, scene, live=(0, 1))


class Watched(Purgatory[TopicPartition]):
    """Notes how many partitions each waiting request has."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(WheelTimer(disk.clock, asyncio.get_running_loop()))
        self.sizes: list[int] = []

    def complete_or_watch(
        self, operation: DelayedOperation[TopicPartition], keys: Iterable[TopicPartition], timeout_ms: int
    ) -> None:
        watched = list(keys)
        self.sizes.append(len(watched))
        super().complete_or_watch(operation, watched, timeout_ms)


def test_a_request_for_thousands_of_partitions_waits_for_some_at_a_time(tmp_path: Path) -> None:
    """Checking 10,000 partitions at once took 23 ms."""

    async def scene(disk: Disk) -> None:
        disk.append(disk.lead("a"), 10)
        purgatory = Watched(disk)
        handler = DeleteRecordsHandler(disk.replicas, disk.metadata, disk.configs, purgatory)
        count = 2 * REQUEST_ELEMENTS_PER_SLICE_MAX + 1
        partitions = [DeleteRecordsPartition(partition_index=0, offset=4)] * count
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=partitions)], timeout_ms=5000)
        response: Any = await exchange(handler.handle, request, 2)
        assert [partition.low_watermark for partition in response.topics[0].partitions] == [4] * count
        assert purgatory.sizes == [REQUEST_ELEMENTS_PER_SLICE_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX, 1]

    play(tmp_path, scene)
