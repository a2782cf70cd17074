"""Logs with thousands of idempotent producers: no step on the event loop takes time for each of them."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from kctl.server.handlers.describe_producers import DescribeProducersHandler
from kctl.storage import producer_snapshots
from kctl.storage.checkpoints import parse_snapshot
from kctl.storage.files import RealFiles
from kctl.storage.producer_state import SnapshotEntry
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
        assert await turns_while(world.log_tasks().expire_idle_producers()) >= SLICES
        assert not log.producer_state.producers

    play(scene)


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
    freed: list[int] = []
    for entry in log.producer_state.producers.values():
        weakref.finalize(entry.batches, freed.append, entry.producer_id)
    manager.delete(TP)
    del log, entry
    assert freed == []
    plan = manager.plan_removals(NOW_MS + manager.default_config.file_delete_delay_ms)
    assert freed == []
    plan.run()
    assert len(freed) == PRODUCERS
