"""Log directories that fail while in use, and renames whose errors are not failures."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
from tests.unit.server.move_world import TP, Disks, MoveWorld, play

OTHER = TopicPartition("orders", 1)


def refused(world: MoveWorld, tp: TopicPartition, topic_id: UUID = ZERO_UUID) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        world.lead(tp, topic_id=topic_id)
    return caught.value.code


def test_a_replica_on_a_failed_disk_is_refused_whatever_the_epoch() -> None:
    """The controller sends the current epoch again, to get the errors of offline replicas."""

    async def scene(world: MoveWorld) -> None:
        world.lead(TP)
        world.lead(OTHER)
        world.log(TP).log_directory.fail(OSError(5, "broken"))
        world.leader_epoch -= 2
        assert refused(world, TP) is ErrorCode.KAFKA_STORAGE_ERROR
        world.leader_epoch += 5
        assert refused(world, TP) is ErrorCode.KAFKA_STORAGE_ERROR
        world.lead(OTHER)
        world.append(b"served", tp=OTHER)

    play(scene)


def test_a_disk_failure_on_becoming_leader_affects_only_its_partitions() -> None:
    disk = Disks()

    async def scene(world: MoveWorld) -> None:
        world.lead(TP)
        world.append(b"before")
        disk.fail_disk_at(1, "/one")
        assert refused(world, TP, UUID(int=7)) is ErrorCode.KAFKA_STORAGE_ERROR, "the topic id cannot be written"
        assert world.failed == ["/one"]

    play(scene, disk=disk)


def test_a_log_is_created_in_the_next_directory_when_the_first_fails() -> None:
    disk = Disks()

    async def scene(world: MoveWorld) -> None:
        disk.fail_disk_at(1, "/one")
        world.lead(TP)
        assert (world.place(TP), world.failed) == ("/two", ["/one"])

    play(scene, disk=disk)


@pytest.mark.parametrize("what", ["deleted", "moved"])
def test_renaming_a_log_during_its_sync_does_not_count_as_a_disk_failure(what: str) -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead(TP)
        world.append(*(b"value %d" % number for number in range(20)))
        log_tasks = world.log_tasks()
        if what == "moved":
            world.moves.move(TP, "/two")
            copy = world.logs.futures.logs[TP]
            while world.logs.futures.get(TP) is copy:
                flushing = asyncio.create_task(log_tasks.flush())
                await asyncio.sleep(0.0001)
                await flushing
        else:
            flushing = asyncio.create_task(log_tasks.flush())
            await asyncio.sleep(0)
            world.stop_replica(delete=True)
            await flushing
        assert world.failed == []

    play(scene)
