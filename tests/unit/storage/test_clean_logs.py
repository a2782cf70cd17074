"""Logs that are opened from what a clean shutdown has noted, without reading their files."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from kctl.errors import LogDirFailure
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.files import File
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.storage.names import CLEAN_LOGS
from kctl.storage.recovery.loading import LoadingStopped
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.log_builder import NOW_MS, read_records
from tests.unit.storage.manager_builder import TP, manager_on, produce

LOG = f"/data/{TP}"
LISTED = f"/data/{CLEAN_LOGS}"
BATCHES = f"{LOG}/{0:020d}.log"


class CountedFiles(SimFiles):
    """Notes which files of logs are opened or read, and calls `on_stamp` when the first log is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[str] = []
        self.on_stamp: Callable[[], None] = lambda: None

    def stamp(self, path: str) -> tuple[int, int]:
        self.on_stamp()
        return super().stamp(path)

    def read(self, path: str) -> bytes:
        self.used.append(path)
        return super().read(path)

    def open(self, path: str, *, create: bool = False) -> File:
        self.used.append(path)
        return super().open(path, create=create)


def state_of(log: Log) -> object:
    """What a log knows of itself."""
    segments = [(segment.base_offset, segment.size, segment.largest_timestamp) for segment in log.segments]
    producers = [(entry.producer_id, entry.epoch, entry.batches) for entry in log.producer_state.producers.values()]
    offsets = (log.log_start_offset, log.log_end_offset, log.recovery_point, log.topic_id)
    return offsets, segments, producers, log.leader_epochs.entries, read_records(log, log.log_start_offset)


def idempotent(log: Log, sequence: int) -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")], producer_id=7, producer_epoch=1, base_sequence=sequence)
    log.append_as_leader(batch, leader_epoch=3, now_ms=NOW_MS)


def stopped(*, with_producers: bool) -> CountedFiles:
    """The disk of a manager with a log of three segments and an empty log."""
    disk = CountedFiles()
    manager = manager_on(disk)
    manager.get_or_create(TopicPartition("orders", 9))
    log = manager.get_or_create(TP)
    for number in range(3):
        produce(log, 2)
        if with_producers:
            idempotent(log, number)
        if number < 2:
            log.roll(NOW_MS)
    log.increment_log_start_offset(1)
    log.assign_epoch(8, log.log_end_offset)
    manager.clean_shutdown()
    disk.used.clear()
    return disk


@pytest.mark.parametrize("with_producers", [False, True])
def test_a_log_is_the_same_as_one_that_is_opened_from_its_files(with_producers: bool) -> None:
    disk = stopped(with_producers=with_producers)
    first = manager_on(disk)
    from_list = state_of(first.logs[TP])
    first.clean_shutdown()
    disk.remove(LISTED)
    assert state_of(manager_on(disk).logs[TP]) == from_list


def test_no_file_of_a_log_is_read_before_it_is_used() -> None:
    disk = stopped(with_producers=False)
    again = manager_on(disk)
    assert not [path for path in disk.used if path.startswith("/data/orders-")]
    assert not disk.exists(LISTED)
    produce(again.logs[TP])
    again.clean_shutdown()
    assert manager_on(disk).logs[TP].log_end_offset == 7


def test_the_first_append_of_a_plain_batch_opens_the_segment() -> None:
    """It failed, and so did every further one, because nothing had read the indexes."""
    log = manager_on(stopped(with_producers=False)).logs[TP]

    def append_plain() -> int:
        batch = bytearray(build_batch([Record(0, NOW_MS, b"k", b"v")]))
        return log.append_plain(memoryview(batch), len(batch), 1, NOW_MS, leader_epoch=8, now_ms=NOW_MS)

    log.assign_epoch(8, 6)
    assert append_plain() == -1
    produce(log)
    assert append_plain() == 7
    assert len(read_records(log, 6)) == 2


def cut(disk: SimFiles) -> None:
    disk.open(BATCHES).truncate(disk.size(BATCHES) - 1)


def replace_epochs(disk: SimFiles) -> None:
    disk.write_atomically(f"{LOG}/leader-epoch-checkpoint", b"0\n1\n5 0\n")


def remove_index(disk: SimFiles) -> None:
    disk.remove(f"{LOG}/{0:020d}.index")


def damage_list(disk: SimFiles) -> None:
    disk.write_atomically(LISTED, disk.read(LISTED)[:-1])


@pytest.mark.parametrize("change", [cut, replace_epochs, remove_index, damage_list])
def test_a_log_that_was_changed_meanwhile_is_opened_from_its_files(
    change: Callable[[SimFiles], None], caplog: pytest.LogCaptureFixture
) -> None:
    disk = stopped(with_producers=False)
    change(disk)
    disk.used.clear()
    with caplog.at_level(logging.WARNING):
        manager_on(disk)
    assert f"{LOG}/leader-epoch-checkpoint" in disk.used
    assert ("ignoring damaged list of logs" in caplog.text) is (change is damage_list)


def stop_while_loading(disk: CountedFiles, executor: Executor | None = None) -> None:
    """Start, and stop as soon as the first log is opened."""
    manager = LogManager(
        ["/data"], files=disk, clock=ManualClock(start_ms=NOW_MS), random=random.Random(1), executor=executor
    )
    disk.on_stamp = manager.stop_loading
    with pytest.raises(LoadingStopped):
        manager.load()
    manager.release()
    disk.on_stamp = lambda: None


@pytest.mark.parametrize("with_threads", [False, True])
def test_a_stop_while_logs_are_opened_leaves_the_list_for_the_next_start(with_threads: bool) -> None:
    disk = stopped(with_producers=False)
    marks = [entry.name for entry in disk.list("/data")]
    listed = disk.read(LISTED)
    with ThreadPoolExecutor(2) as executor:
        stop_while_loading(disk, executor if with_threads else None)
    disk.crash(random.Random(1))
    assert ([entry.name for entry in disk.list("/data")], disk.read(LISTED)) == (marks, listed)
    disk.used.clear()
    logs = manager_on(disk).logs
    assert [log.log_end_offset for _, log in sorted(logs.items())] == [6, 0]
    assert not [path for path in disk.used if path.startswith("/data/orders-")]


def test_a_log_that_was_repaired_before_such_a_stop_is_opened_from_its_files() -> None:
    disk = stopped(with_producers=False)
    damage_epochs(disk)
    stop_while_loading(disk)
    disk.used.clear()
    assert manager_on(disk).logs[TP].log_end_offset == 6
    assert f"{LOG}/leader-epoch-checkpoint" in disk.used


def test_a_stop_while_logs_are_recovered_leaves_no_mark() -> None:
    disk = stopped(with_producers=False)
    manager_on(disk)
    disk.kill()
    names = [entry.name for entry in disk.list("/data")]
    manager = LogManager(["/data"], files=disk, clock=ManualClock(start_ms=NOW_MS), random=random.Random(1))
    manager.stop_loading()
    with pytest.raises(LoadingStopped):
        manager.load()
    manager.release()
    assert [entry.name for entry in disk.list("/data")] == names
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_disk_that_fails_during_such_a_stop_leaves_no_mark_of_lost_files() -> None:
    for operation in range(1, 100):
        disk = stopped(with_producers=False)
        damage_epochs(disk)
        disk.fail_at(operation)
        with contextlib.suppress(LogDirFailure, LoadingStopped):
            stop_while_loading(disk)
        if not disk.has_failed:
            break
        disk.crash(random.Random(operation))
        assert manager_on(disk).logs[TP].log_end_offset == 6
    assert operation > 5


def damage_epochs(disk: SimFiles) -> None:
    disk.write_atomically(f"{LOG}/leader-epoch-checkpoint", b"nonsense")


def test_after_a_crash_the_list_of_the_last_clean_shutdown_is_gone() -> None:
    disk = stopped(with_producers=False)
    manager_on(disk)
    disk.kill()
    assert not disk.exists(LISTED)
    disk.used.clear()
    manager_on(disk)
    assert f"{LOG}/{4:020d}.log" in disk.used
