"""The log of a coordinator: waiting until what was read from it is replicated."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kctl.model import GROUP_METADATA_TOPIC
from kctl.server.cluster.topics.internal import InternalLog
from kctl.server.replication.partition import Partition
from tests.unit.handlers.test_fetch_replicas import FOLLOWER, Scene, play

RECORDS = 3


def waiting(scene: Scene) -> tuple[Partition, asyncio.Task[None]]:
    """A led partition whose records the follower does not have, and the wait for their replication."""
    partition = scene.disk.lead(GROUP_METADATA_TOPIC, replicas=(0, FOLLOWER))
    scene.disk.append(partition, RECORDS)
    log = InternalLog(scene.disk.replicas, scene.disk.metadata, scene.disk.purgatory, load_buffer_bytes=1_000)
    return partition, asyncio.get_running_loop().create_task(log.until_replicated(0))


def test_wait_ends_when_the_followers_have_all_records(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partition, wait = waiting(scene)
        for offset in range(RECORDS):
            await scene.fetch(GROUP_METADATA_TOPIC, offset=offset, replica_id=FOLLOWER)
            await asyncio.sleep(100)
            assert not wait.done()
        await scene.fetch(GROUP_METADATA_TOPIC, offset=RECORDS, replica_id=FOLLOWER)
        await wait
        assert partition.high_watermark == RECORDS

    play(tmp_path, scene)


def test_wait_leaves_nothing_behind_when_it_is_cancelled(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        _, wait = waiting(scene)
        await asyncio.sleep(0)
        assert len(scene.disk.purgatory) == 1
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        await asyncio.sleep(0)
        assert len(scene.disk.purgatory) == 0

    play(tmp_path, scene)


def test_a_broker_without_followers_does_not_wait(tmp_path: Path) -> None:
    async def scene(scene: Scene) -> None:
        partition = scene.disk.lead(GROUP_METADATA_TOPIC)
        scene.disk.append(partition, RECORDS)
        log = InternalLog(scene.disk.replicas, scene.disk.metadata, scene.disk.purgatory, load_buffer_bytes=1_000)
        await log.until_replicated(0)

    play(tmp_path, scene)
