"""Logs with thousands of idempotent producers: no step on the event loop takes time for each of them."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.handlers.describe_producers import DescribeProducersHandler
from kctl.server.replication.logs import producer_expiry
from kctl.server.replication.logs.broker_logs import LogTasks
from kctl.server.replication.logs.producer_expiry import IDLE_MIN_S, ROUND_S, early_cutoff
from kctl.storage.files import RealFiles
from kctl.storage.state import producer_snapshots
from kctl.storage.state.checkpoints import parse_snapshot
from kctl.storage.state.producer_state import ProducerEntry, ProducerState, SnapshotEntry
from kctl.testing.sim_files import SimFiles
from tests.hostile.test_amplification import turns_while
from tests.unit.handlers.world import context
from tests.unit.server.move_world import TP, MoveWorld, play
from tests.unit.storage.log_builder import NOW_MS, LogOnDisk
from tests.unit.storage.manager_builder import manager_on

SLICES = 4
PRODUCERS = SLICES * SLICE_OBJECTS
CALLS_MAX = 300
"""Of Python functions while a segment is rolled, however many producers there are."""


def calls_of(step: Callable[[], object]) -> int:
    """How many Python functions the step calls."""
    calls = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(former)
    return calls


def known_producers(count: int, end_offset: int, timestamp: int = 0) -> list[SnapshotEntry]:
    return [SnapshotEntry(number, 0, 0, end_offset - 1, 0, timestamp, 0, -1) for number in range(count)]


def machine_with_producers() -> LogOnDisk:
    machine = LogOnDisk()
    machine.append(b"v")
    machine.log.flush()
    machine.log.producer_state.load(known_producers(PRODUCERS, 1), 1)
    return machine


def snapshots(machine: LogOnDisk) -> list[str]:
    return [name for name in machine.file_names() if name.endswith(".snapshot")]


def test_a_roll_captures_the_producers_and_a_thread_writes_them() -> None:
    machine = machine_with_producers()
    assert calls_of(lambda: machine.log.roll(machine.now_ms)) < CALLS_MAX
    assert snapshots(machine) == []
    plan = machine.log.plan_due_flush(machine.now_ms)
    assert plan is not None
    machine.append(b"v", producer_id=7, sequence=1)
    plan.run()
    assert snapshots(machine) == []
    assert calls_of(lambda: machine.log.flushed(plan)) < CALLS_MAX
    (name,) = snapshots(machine)
    written = parse_snapshot(machine.files.read(f"{machine.directory}/{name}"), name)
    assert written == known_producers(PRODUCERS, 1)


def test_a_stop_captures_the_producers_and_a_thread_writes_them() -> None:
    machine = machine_with_producers()
    state = machine.log.producer_state
    calls = calls_of(machine.log.plan_close)
    assert calls < CALLS_MAX
    machine = machine_with_producers()
    machine.close_and_reopen()
    assert len(machine.log.producer_state.producers) == len(state.producers)


def test_many_rolls_between_two_flushes_keep_the_producers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_snapshots, "PRODUCERS_PER_PARTITION_MAX", PRODUCERS)
    machine = machine_with_producers()
    for number in range(20):
        machine.append(b"v", producer_id=7, sequence=number + 1)
        machine.log.roll(machine.now_ms)
    assert sum(draft.producer_count for draft in machine.log.plan_flush().drafts) == PRODUCERS


def test_a_roll_after_the_producers_were_written_captures_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_snapshots, "PRODUCERS_PER_PARTITION_MAX", PRODUCERS)
    machine = machine_with_producers()
    for number in range(3):
        machine.append(b"v", producer_id=7, sequence=number + 1)
        machine.log.roll(machine.now_ms)
        machine.log.flush()
    assert len(snapshots(machine)) == 3


def test_written_snapshots_have_no_open_file(tmp_path: Path) -> None:
    machine = LogOnDisk(files=RealFiles(), at=str(tmp_path))
    machine.append(b"v", producer_id=7)
    machine.log.roll(machine.now_ms)
    plan = machine.log.plan_flush()
    (draft,) = plan.drafts
    assert open_files(draft.path) == 1
    plan.run()
    assert open_files(draft.path) == 0
    machine.log.flushed(plan)
    machine.close()


def open_files(path: str) -> int:
    """How many descriptors of this process are of that file."""
    status = os.stat(path)
    count = 0
    for descriptor in range(4_096):
        with contextlib.suppress(OSError):
            other = os.fstat(descriptor)
            count += (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino)
    return count


def test_a_flush_that_ends_after_the_deletion_of_its_log_leaves_a_new_one_of_that_name_alone() -> None:
    machine = machine_with_producers()
    deleted = machine.log
    deleted.roll(machine.now_ms)
    plan = deleted.plan_flush()
    plan.run()
    deleted.release()
    machine.files.remove_tree(machine.directory)
    machine.open()
    machine.append(b"v")
    machine.log.roll(machine.now_ms)
    machine.log.plan_flush().run()
    before = machine.file_names()
    deleted.flushed(plan)
    assert machine.file_names() == before


def test_idle_producers_of_one_log_are_removed_in_slices() -> None:
    async def scene(world: MoveWorld) -> None:
        log = world.lead().log
        log.producer_state.load(known_producers(PRODUCERS, 1), 1)
        tasks = world.log_tasks()
        await rounds(tasks, IDLE_MIN_S // ROUND_S + 2)
        assert await turns_while(tasks.expire_idle_producers()) >= SLICES
        assert not log.producer_state.producers

    play(scene)


async def rounds(tasks: LogTasks, number: int) -> None:
    for _ in range(number):
        await tasks.producers.count()


def test_the_bound_on_all_producers_removes_only_idle_ones_and_refuses_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_expiry, "PRODUCERS_MAX", 10)

    def batch(producer_id: int, sequence: int) -> bytearray:
        return bytearray(
            build_batch([Record(0, 1, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        )

    async def scene(world: MoveWorld) -> None:
        log, tasks = world.lead().log, world.log_tasks()
        log.producer_state.load(known_producers(20, 1), 1)
        await rounds(tasks, 2)
        assert len(log.producer_state.producers) == 20, "they may have written just before"
        with pytest.raises(ApiError, match="cannot accept") as refused:
            log.append_as_leader(batch(99, 0), leader_epoch=0, now_ms=0)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        for number in range(IDLE_MIN_S // ROUND_S + 2):
            log.append_as_leader(batch(7, number + 1), leader_epoch=0, now_ms=0)
            await rounds(tasks, 1)
        assert list(log.producer_state.producers) == [7], "it was in use, with old timestamps"
        await tasks.expire_idle_producers()
        assert list(log.producer_state.producers) == [7]
        log.append_as_leader(batch(99, 0), leader_epoch=0, now_ms=0)

    play(scene)


def test_a_state_that_was_read_again_counts_as_written_then() -> None:
    state = ProducerState()
    state.load(known_producers(3, 1), 1)
    state.begin_round(1_000)
    assert state.expire(range(3), 1_000) == 0
    assert state.expire(range(3), 1_001) == 3


@pytest.mark.parametrize(
    ("by_round", "excess", "cutoff"),
    [
        ({1: 5, 2: 5, 3: 5}, 5, 2),
        ({1: 5, 2: 5, 3: 5}, 6, 3),
        ({1: 5, 999: 5}, 8, 999),
        ({999: 5}, 8, 999),
        ({1: 5}, 8, 911),
    ],
)
def test_those_that_were_idle_the_longest_are_removed_first(by_round: dict[int, int], excess: int, cutoff: int) -> None:
    assert early_cutoff(Counter(by_round), excess, 1_000) == cutoff


def test_producers_of_one_partition_are_described_in_slices() -> None:
    async def scene(world: MoveWorld) -> None:
        world.lead().log.producer_state.load(known_producers(PRODUCERS, 1), 1)
        handler = DescribeProducersHandler(world.replicas)
        topics = [TopicRequest(name=TP.topic, partition_indexes=[TP.partition])]
        turns = await turns_while(handler.handle(DescribeProducersRequest(topics=topics), context(0)))
        assert turns >= SLICES

    play(scene)


def test_the_producers_of_a_deleted_log_are_freed_in_a_thread() -> None:
    manager = manager_on(SimFiles())
    log = manager.get_or_create(TP)
    log.producer_state.load(known_producers(PRODUCERS, 1), 1)
    manager.delete(TP)
    del log
    before = sum(isinstance(found, ProducerEntry) for found in gc.get_objects())
    plan = manager.plan_removals(NOW_MS + manager.default_config.file_delete_delay_ms)
    assert sum(isinstance(found, ProducerEntry) for found in gc.get_objects()) == before >= PRODUCERS
    plan.run()
    assert sum(isinstance(found, ProducerEntry) for found in gc.get_objects()) == before - PRODUCERS
