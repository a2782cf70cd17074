"""DescribeLogDirs: logs by directory, with their sizes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.protocol import codec
from kctl.protocol.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kctl.server.handlers.describe_log_dirs import DescribeLogDirsHandler
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import context

Requested = dict[str, list[int]]


def play(scene: Callable[[Disk], Awaitable[None]], *folders: Path) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, *folders)
        try:
            await scene(disk)
        finally:
            disk.close()

    simulate(main, seed=1)


async def describe(disk: Disk, requested: Requested | None = None, *, version: int = 2) -> Any:
    topics = (
        None if requested is None else [DescribableLogDirTopic(topic=t, partitions=p) for t, p in requested.items()]
    )
    handler = DescribeLogDirsHandler(disk.logs, disk.replicas)
    response = await handler.handle(DescribeLogDirsRequest(topics=topics), context(version))
    return codec.decode(type(response), codec.encode_bytes(response, version), version)[0]


def sizes(response: Any) -> dict[str, dict[tuple[str, int], int]]:
    return {
        result.log_dir: {
            (topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in response.results
    }


@pytest.mark.parametrize("version", range(4))
def test_every_log_is_described_with_its_directory_and_size(tmp_path: Path, version: int) -> None:
    async def scene(disk: Disk) -> None:
        disk.append(disk.lead("a", 0), 3)
        disk.lead("a", 1)
        reported = sizes(await describe(disk, version=version))
        assert {entry for found in reported.values() for entry in found} == {("a", 0), ("a", 1)}
        assert len(reported[str(tmp_path / "one")]) == len(reported[str(tmp_path / "two")]) == 1
        written = {entry: size for found in reported.values() for entry, size in found.items()}
        stored = [file.stat().st_size for file in tmp_path.glob("*/a-0/*.log")]  # noqa: ASYNC240
        assert written["a", 0] == sum(stored) > 0
        assert written["a", 1] == 0

    play(scene, tmp_path / "one", tmp_path / "two")


def test_only_requested_partitions_are_described(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        disk.lead("a", 0)
        disk.lead("a", 1)
        disk.lead("b", 0)
        reported = sizes(await describe(disk, {"a": [1, 7], "nope": [0]}))
        assert reported == {str(tmp_path): {("a", 1): 0}}
        assert sizes(await describe(disk, {})) == {str(tmp_path): {}}

    play(scene, tmp_path)


def test_a_log_that_is_behind_its_high_watermark_has_a_lag(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        partition = disk.lead("a")
        disk.append(partition, 2)
        partition.high_watermark = 9
        (entry,) = (await describe(disk)).results[0].topics[0].partitions
        assert (entry.offset_lag, entry.is_future_key) == (7, False)

    play(scene, tmp_path)


def test_an_offline_directory_lists_no_replicas(tmp_path: Path) -> None:
    async def scene(disk: Disk) -> None:
        disk.lead("a")
        disk.logs.directories[0].fail(OSError(5, "Input/output error"))
        (result,) = (await describe(disk)).results
        assert (ErrorCode(result.error_code), result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])

    play(scene, tmp_path)
