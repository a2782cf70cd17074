"""ListOffsets: segment offsets by time in version 0, and the responses of a new leader in all versions."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kctl.server.handlers.list_offsets import DEBUGGING_CONSUMER, EARLIEST, LATEST, ListOffsetsHandler
from kctl.server.replication.partition import Partition
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import exchange


def play(folder: Path, scene: Callable[[Disk], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, folder)
        try:
            await scene(disk)
        finally:
            disk.close()

    simulate(main, seed=1)


def three_segments(disk: Disk) -> tuple[Partition, int]:
    """Segments from 0, 4 and 8 on, last written 3000, 2000 and 1000 ms ago; the log ends at 12."""
    partition = disk.lead("a")
    now_ms = disk.clock.now_ms()
    for _ in range(3):
        disk.append(partition, 4)
        if partition.log.log_end_offset < 12:
            partition.log.roll(now_ms)
    for age, segment in zip((3000, 2000, 1000), partition.log.segments, strict=True):
        seconds = (now_ms - age) / 1000
        os.utime(segment.path(".log"), (seconds, seconds))
    return partition, now_ms


async def offsets(disk: Disk, timestamp: int, count: int = 10, *, replica_id: int = -1) -> list[int]:
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="a", partitions=[requested])])
    handler = ListOffsetsHandler(disk.replicas, RecordWork(), disk.clock)
    response = (await exchange(handler.handle, request, 0)).topics[0].partitions[0]
    assert response.error_code == ErrorCode.NONE
    return list(response.old_style_offsets)


def test_segment_offsets_before_a_time_are_listed_newest_first(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        _, now_ms = three_segments(disk)
        assert await offsets(disk, LATEST) == [12, 8, 4, 0]
        assert await offsets(disk, EARLIEST) == [0]
        assert await offsets(disk, now_ms) == [12, 8, 4, 0]
        assert await offsets(disk, now_ms - 1) == [8, 4, 0]
        assert await offsets(disk, now_ms - 2000) == [4, 0]
        assert await offsets(disk, now_ms - 3001) == []

    play(tmp_path, scene)


@pytest.mark.parametrize("count", range(4))
def test_no_more_offsets_than_requested_are_listed(tmp_path: Path, count: int) -> None:
    async def scene(disk: Disk) -> None:
        three_segments(disk)
        assert await offsets(disk, LATEST, count) == [12, 8, 4, 0][:count]

    play(tmp_path, scene)


def test_the_oldest_listed_offset_is_the_log_start(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition, _ = three_segments(disk)
        partition.log.increment_log_start_offset(6)
        assert await offsets(disk, LATEST) == [12, 8, 6, 6]
        assert await offsets(disk, EARLIEST) == [6]

    play(tmp_path, scene)


def test_consumers_see_no_offset_above_the_high_watermark(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition, _ = three_segments(disk)
        partition.high_watermark = 6
        assert await offsets(disk, LATEST) == [6, 4, 0]
        assert await offsets(disk, LATEST, 1) == [6]
        assert await offsets(disk, LATEST, replica_id=1) == [12, 8, 4, 0]

    play(tmp_path, scene)


def test_an_empty_log_has_one_offset(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        disk.lead("a")
        assert await offsets(disk, LATEST) == [0]
        assert await offsets(disk, EARLIEST) == [0]

    play(tmp_path, scene)


async def offset(disk: Disk, timestamp: int, version: int, *, replica_id: int = -1) -> tuple[ErrorCode, int]:
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="a", partitions=[requested])])
    handler = ListOffsetsHandler(disk.replicas, RecordWork(), disk.clock)
    response = (await exchange(handler.handle, request, version)).topics[0].partitions[0]
    return ErrorCode(response.error_code), response.offset


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_does_not_return_an_end_before_the_start_of_its_epoch(
    tmp_path: Path, version: int, error: ErrorCode
) -> None:
    """KIP-207: the previous leader may have returned a larger one."""

    async def scene(disk: Disk) -> None:
        partition, now_ms = three_segments(disk)
        disk.lead("a", replicas=(0, 1))
        partition.high_watermark = 6
        assert await offset(disk, LATEST, version) == (error, -1)
        assert await offset(disk, now_ms + 1, version) == (error, -1)
        assert await offset(disk, LATEST, version, replica_id=1) == (ErrorCode.NONE, 12)
        assert await offset(disk, EARLIEST, version) == (ErrorCode.NONE, 0)
        assert await offset(disk, 0, version) == (ErrorCode.NONE, 0)
        partition.high_watermark = 12
        assert await offset(disk, LATEST, version) == (ErrorCode.NONE, 12)

    play(tmp_path, scene)


def test_followers_respond_to_debugging_consumers_with_the_end_of_their_log(tmp_path: Path) -> None:
    """As Kafka's brokers do for kafka-replica-verification (Partition.fetchOffsetForTimestamp)."""

    async def scene(disk: Disk) -> None:
        partition, _ = three_segments(disk)
        disk.lead("a", leader=1, replicas=(1, 0))
        partition.high_watermark = 6
        assert await offset(disk, LATEST, 6) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await offset(disk, LATEST, 6, replica_id=1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await offset(disk, LATEST, 6, replica_id=DEBUGGING_CONSUMER) == (ErrorCode.NONE, 12)
        assert await offset(disk, EARLIEST, 6, replica_id=DEBUGGING_CONSUMER) == (ErrorCode.NONE, 0)

    play(tmp_path, scene)
