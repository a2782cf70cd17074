"""Replica moves between log directories: completion and early ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.names import REPLACED_MARK
from kctl.testing.sim_files import SimFiles
from kctl.testing.sim_loop import SimLoop
from tests.rows import for_rows
from tests.unit.server.move_world import CONFIG, TP, Disks, MoveWorld, play, run, until
from tests.unit.storage.manager_builder import remove_due_files

OTHER = TopicPartition("orders", 1)


def values(count: int, first: int = 0) -> list[bytes]:
    return [b"value %04d" % number for number in range(first, first + count)]


def code_of(world: MoveWorld, tp: TopicPartition, path: str) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        world.moves.move(tp, path)
    return caught.value.code


def test_a_replica_moves_with_all_its_records_and_the_old_files_go_later() -> None:
    async def scene(world: MoveWorld) -> None:
        partition = world.lead()
        world.append(*values(40))
        assert world.place() == "/one"
        old = world.log()
        segments = [segment.base_offset for segment in old.segments]
        world.moves.move(TP, "/two")
        assert world.place() == "/one", "the old directory serves it until the copy is complete"
        await world.settled()
        assert world.place() == "/two"
        assert partition.log is world.log() is not old
        assert world.values() == values(40)
        assert [segment.base_offset for segment in world.log().segments] == segments
        assert world.names("/two") == ["orders-0"]
        assert [name.endswith("-delete") for name in world.names("/one")] == [True]
        remove_due_files(world.logs, world.clock.now_ms() + 1000)
        assert world.names("/one") == []
        world.append(*values(5, 40))
        world.logs.clean_shutdown()

    play(scene)


def test_records_appended_during_a_move_are_copied() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(40))
        world.moves.move(TP, "/two")
        written = 40

        def goes_on() -> bool:
            nonlocal written
            if len(world.moves):
                world.append(*values(1, written))
                written += 1
            return not len(world.moves)

        await until(goes_on)
        assert written > 45
        world.append(*values(3, written))
        assert (world.place(), world.values()) == ("/two", values(written + 3))

    play(scene)


def test_the_same_bytes_are_in_the_files() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(30))
        names = [entry.name for entry in world.disk.list("/one/orders-0") if entry.name.endswith(".log")]
        before = {name: world.disk.read(f"/one/orders-0/{name}") for name in names}
        world.moves.move(TP, "/two")
        await world.settled()
        assert {name: world.disk.read(f"/two/orders-0/{name}") for name in names} == before

    play(scene)


def test_leader_epochs_without_records_are_copied() -> None:
    async def scene(world: MoveWorld) -> None:
        for _ in range(3):
            world.lead()
            world.append(*values(4))
        world.lead()
        epochs = world.log().leader_epochs.entries
        assert len(epochs) == 4
        world.moves.move(TP, "/two")
        await world.settled()
        assert (world.place(), world.log().leader_epochs.entries) == ("/two", epochs)

    play(scene)


def test_idempotent_producers_continue_after_a_move() -> None:
    async def scene(world: MoveWorld) -> None:
        partition = world.lead()

        def put(sequence: int) -> None:
            batch = build_batch([Record(0, 1, b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=sequence)
            world.replicas.append(partition, memoryview(bytearray(batch)), required_acks=1, request_version=9)

        for sequence in range(4):
            put(sequence)
        world.moves.move(TP, "/two")
        await world.settled()
        put(3)
        assert partition.log.log_end_offset == 4, "the duplicate is detected"
        put(4)
        assert partition.log.log_end_offset == 5

    play(scene)


def test_a_move_to_the_current_directory_cancels_the_running_move() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(40))
        world.moves.move(TP, "/two")
        assert [name.endswith("-future") for name in world.names("/two")] == [True]
        world.moves.move(TP, "/one")
        assert len(world.moves) == 0
        assert world.logs.futures.get(TP) is None
        assert [name.endswith("-delete") for name in world.names("/two")] == [True]
        await until(lambda: world.clock.monotonic_ms() > 5000)
        assert (world.place(), world.values()) == ("/one", values(40))

    play(scene)


def test_a_move_with_a_new_target_restarts_there() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(20))
        world.moves.move(TP, "/two")
        world.moves.move(TP, "/three")
        await world.settled()
        assert world.place() == "/three"
        assert all(name.endswith("-delete") for name in world.names("/two"))

    play(scene, log_dirs=("/one", "/two", "/three"))


def test_a_repeated_move_request_changes_nothing() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(20))
        world.moves.move(TP, "/two")
        names = world.names("/two")
        world.moves.move(TP, "/two")
        assert world.names("/two") == names
        await world.settled()

    play(scene)


def test_a_replica_not_yet_on_this_broker_is_created_in_the_requested_directory() -> None:
    async def scene(world: MoveWorld) -> None:
        assert code_of(world, TP, "/two") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.lead(OTHER)
        world.lead(TP)
        assert (world.place(OTHER), world.place(TP)) == ("/one", "/two")
        third = TopicPartition("orders", 2)
        world.lead(third)
        assert world.place(third) == "/one", "others are created in the directory with the fewest logs"

    play(scene)


def test_impossible_moves_are_refused_with_kafkas_errors() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        assert code_of(world, TP, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert code_of(world, TP, "/two/") is ErrorCode.LOG_DIR_NOT_FOUND
        long_name = TopicPartition("t" * 220, 0)
        assert code_of(world, long_name, "/two") is ErrorCode.INVALID_TOPIC_EXCEPTION
        world.logs.directories[1].fail(OSError(5, "broken"))
        assert code_of(world, TP, "/two") is ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(world, TP, "/three") is ErrorCode.KAFKA_STORAGE_ERROR, "no moves while a directory is offline"
        assert world.names("/three") == []

    play(scene, log_dirs=("/one", "/two", "/three"))


def test_copies_count_when_a_directory_is_chosen_for_a_new_log() -> None:
    async def scene(world: MoveWorld) -> None:
        world.bytes_per_second = 1
        for partition in range(2):
            world.lead(TopicPartition("orders", partition))
        world.append(*values(10))
        world.moves.move(TP, "/two")
        for partition in (2, 3):
            world.lead(TopicPartition("orders", partition))
        assert [world.place(TopicPartition("orders", partition)) for partition in (2, 3)] == ["/one", "/one"]

    play(scene)


def test_a_move_resumes_after_a_restart_from_the_existing_copy() -> None:
    async def main(loop: SimLoop) -> None:
        world = MoveWorld(loop, bytes_per_second=1)
        world.lead()
        world.append(*values(40))
        world.moves.start()
        world.moves.move(TP, "/two")
        await until(lambda: world.logs.futures.logs[TP].log_end_offset > 0)
        await world.moves.close()
        world.logs.clean_shutdown({TP: 40})
        again = MoveWorld(loop, world.disk, leader_epoch=1)
        has = again.logs.futures.logs[TP].log_end_offset
        assert 0 < has < 40
        assert (again.place(), len(again.moves)) == ("/one", 0)
        again.lead()
        again.moves.start()
        assert again.logs.futures.logs[TP].log_end_offset == has
        await again.settled()
        await again.moves.close()
        assert (again.place(), again.values()) == ("/two", values(40))
        again.logs.clean_shutdown({TP: 40})
        assert MoveWorld(loop, again.disk).values() == values(40)

    run(main)


def test_a_throttle_slows_the_copy_and_can_be_removed_during_the_move() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(100))
        size, started_ms = world.log().size_bytes, world.clock.monotonic_ms()
        world.moves.move(TP, "/two")
        await world.settled()
        took_ms = world.clock.monotonic_ms() - started_ms
        assert took_ms >= (size - 1000) * 1000 / 1000 - 1000, "the credit of a second and one piece are not delayed"
        await world.begin_slow_move("/one")
        world.bytes_per_second = 1e18
        started_ms = world.clock.monotonic_ms()
        await world.settled()
        assert world.clock.monotonic_ms() - started_ms < 5_000

    play(scene, bytes_per_second=1000)


def test_truncating_a_follower_truncates_the_copy() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(30))
        world.bytes_per_second = 1e18
        world.moves.move(TP, "/two")
        copy = world.logs.futures.logs[TP]
        await until(lambda: copy.log_end_offset > 20)
        partition = world.lead(leader=1, replicas=(0, 1))
        partition.log.truncate_to(12)
        for value in (b"other 0", b"other 1", *values(20, 100)):
            batch = build_batch([Record(0, 1, b"key", value)], base_offset=partition.log.log_end_offset, leader_epoch=2)
            partition.log.append_as_follower(batch)
        await world.settled()
        assert partition.log is copy
        assert world.values() == [*values(12), b"other 0", b"other 1", *values(20, 100)]
        assert world.log().leader_epochs.entries == ((1, 0), (2, 12))

    play(scene)


def test_the_copy_follows_a_log_restarted_at_another_offset() -> None:
    async def scene(world: MoveWorld) -> None:
        partition = world.lead(leader=1, replicas=(0, 1))
        for value in values(10):
            partition.log.append_as_follower(
                build_batch([Record(0, 1, b"key", value)], base_offset=partition.log.log_end_offset)
            )
        await world.begin_slow_move("/two")
        partition.log.truncate_fully_and_start_at(500)
        partition.log.append_as_follower(build_batch([Record(0, 1, b"key", b"new")], base_offset=500))
        world.bytes_per_second = 1e18
        await world.settled()
        assert (world.place(), world.log().log_start_offset, world.values()) == ("/two", 500, [b"new"])

    play(scene)


@pytest.mark.parametrize("start", [3, 14, 15, 20])
def test_delete_records_inside_a_batch_is_kept_by_the_move(start: int) -> None:
    async def scene(world: MoveWorld) -> None:
        partition = world.lead()
        for number in range(5):
            records = [Record(delta, 1, b"k", b"%d" % (number * 4 + delta)) for delta in range(4)]
            batch = memoryview(bytearray(build_batch(records)))
            world.replicas.append(partition, batch, required_acks=1, request_version=9)
        partition.log.increment_log_start_offset(2)
        await world.begin_slow_move("/two")
        partition.log.increment_log_start_offset(start)
        world.bytes_per_second = 1e18
        await world.settled()
        assert (world.place(), world.log().log_start_offset, world.log().log_end_offset) == ("/two", start, 20)
        assert world.values() == [b"%d" % number for number in range(start, 20)]
        world.logs.release()
        world.disk.kill()

    play(scene)


def test_a_move_does_not_wait_for_segments_deleted_by_retention() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(60))
        await world.begin_slow_move("/two")
        world.log().config = replace(CONFIG, retention_bytes=600)
        deleted = world.logs.apply_retention(world.clock.now_ms(), world.replicas.high_watermark_of)
        assert deleted > 3
        start = world.log().log_start_offset
        world.bytes_per_second = 1e18
        await world.settled()
        assert (world.place(), world.values()) == ("/two", values(60 - start, start))

    play(scene)


def test_retention_deletes_nothing_from_a_copy() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(60))
        world.moves.move(TP, "/two")
        copy = world.logs.futures.logs[TP]
        copy.config = replace(CONFIG, retention_bytes=0, retention_ms=0)
        await until(lambda: len(copy.segments) > 3)
        assert world.logs.apply_retention(world.clock.now_ms() + 1_000_000, lambda _: 60) == 0
        await world.settled()
        assert world.values() == values(60)

    play(scene)


def test_deleting_a_topic_deletes_the_copy() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(30))
        await world.begin_slow_move("/two")
        world.stop_replica(delete=True)
        assert (dict(world.logs.logs), dict(world.logs.futures.logs), len(world.moves)) == ({}, {}, 0)
        assert all(name.endswith("-delete") for at in ("/one", "/two") for name in world.names(at))
        world.lead()
        world.append(b"of a new topic")
        assert world.values() == [b"of a new topic"]

    play(scene)


@pytest.mark.long
def test_the_move_of_a_stopped_replica_pauses_until_it_has_a_role() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(30))
        await world.begin_slow_move("/two")
        world.stop_replica()
        world.bytes_per_second = 1e18
        await until(lambda: world.clock.monotonic_ms() > 60_000)
        assert world.place() == "/one"
        world.lead()
        await world.settled()
        assert (world.place(), world.values()) == ("/two", values(30))

    play(scene)


def test_a_failed_target_directory_ends_the_move_and_the_replica_stays_online() -> None:
    disk = Disks()

    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(30))
        await world.begin_slow_move("/two")
        disk.fail_disk_at(1, "/two")
        world.bytes_per_second = 1e18
        await world.settled()
        assert world.failed == ["/two"]
        assert world.logs.futures.get(TP) is None
        world.append(*values(3, 30))
        assert (world.place(), world.values()) == ("/one", values(33))

    play(scene, disk=disk)


def test_a_failed_source_directory_takes_the_replica_offline_and_keeps_the_copy() -> None:
    disk = Disks()

    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.append(*values(30))
        await world.begin_slow_move("/two")
        disk.fail_disk_at(1, "/one")
        world.bytes_per_second = 1e18
        await world.settled()
        assert world.failed == ["/one"]
        with pytest.raises(ApiError) as caught:
            world.append(b"more")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(world, TP, "/two") is ErrorCode.KAFKA_STORAGE_ERROR
        assert [name.endswith("-future") for name in world.names("/two")] == [True]

    play(scene, disk=disk)


def test_one_mover_thread_finishes_one_replica_before_the_next() -> None:
    async def scene(world: MoveWorld) -> None:
        partitions = [TopicPartition("orders", number) for number in range(3)]
        for tp in partitions:
            world.lead(tp)
            world.append(*values(20), tp=tp)
        for tp in partitions:
            world.moves.move(tp, "/two" if world.place(tp) == "/one" else "/one")
        seen: list[int] = []

        def look() -> bool:
            seen.append(sum(log.log_end_offset > 0 for log in world.logs.futures.logs.values()))
            return not len(world.moves)

        await until(look)
        assert max(seen) == 1

    play(scene, workers=1)


class MarkCounter(SimFiles):
    """Counts how often a log was marked as replaced."""

    marked = 0

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        self.marked += operation == "rename" and path.endswith(f"/{REPLACED_MARK}.tmp")


@for_rows("iterations", range(1, 9))
def test_a_new_role_during_a_move_never_has_two_workers_for_a_partition(iterations: int) -> None:
    disk = MarkCounter()

    async def scene(world: MoveWorld) -> None:
        world.lead()
        world.moves.move(TP, "/two")
        for _ in range(iterations):
            await asyncio.sleep(0)
        world.lead()  # As after a reassignment to the same brokers.
        await world.settled()
        assert world.place() == "/two"

    play(scene, disk=disk)
    assert disk.marked == 1, "two threads that write one mark at once fail, and the log directory goes offline"


def test_checkpoints_are_read_from_the_directory_of_the_log() -> None:
    async def main(loop: SimLoop) -> None:
        world = MoveWorld(loop)
        partition = world.lead()
        world.append(*values(20))
        partition.log.increment_log_start_offset(7)
        world.logs.checkpoints.write_high_watermarks({TP: 9})
        world.logs.checkpoints.write_log_start_offsets()
        world.moves.start()
        world.moves.move(TP, "/two")
        await world.settled()
        await world.moves.close()
        world.logs.checkpoints.write_high_watermarks({TP: 15})
        world.disk.write_atomically("/one/replication-offset-checkpoint", b"0\n1\norders 0 9\n")
        world.logs.release()
        world.disk.kill()
        for log_dirs in (("/one", "/two"), ("/two", "/one")):
            again = MoveWorld(loop, world.disk, log_dirs=log_dirs)
            assert again.logs.high_watermarks[TP] == 15
            assert (again.place(), again.log().log_start_offset, again.values()) == ("/two", 7, values(13, 7))
            again.logs.release()
            world.disk.kill()

    run(main)
