"""Clean shutdown of the logs."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kctl.model import TopicPartition
from kctl.storage.files import File, RealFiles
from kctl.system.operating_system import sync_file_systems
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.manager_builder import TP, manager_on, produce


class SyncedFiles(SimFiles):
    """Records what is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        if operation in {"sync", "sync directory"}:
            self.synced.append(path)

    def synced_of(self, tp: TopicPartition) -> set[str]:
        """The names of the log's files, and "" for its directory."""
        directory = f"/data/{tp}"
        return {path[len(directory) + 1 :] for path in self.synced if f"{path}/".startswith(f"{directory}/")}


@pytest.mark.parametrize("syncs_together", [False, True])
def test_a_stop_syncs_of_each_log_what_has_changed_since_the_last_flush(syncs_together: bool) -> None:
    """Most logs of a broker with thousands of replicas have not changed: syncing them took most of the time."""
    disk = SyncedFiles()
    disk.syncs_together = syncs_together
    first = manager_on(disk)
    same, elected, written = (TopicPartition("orders", index) for index in range(3))
    for tp in (same, elected, written):
        produce(first.get_or_create(tp), 3)
    first.clean_shutdown()
    second = manager_on(disk)
    second.logs[elected].assign_epoch(1, 3)
    produce(second.logs[written])
    disk.synced.clear()
    second.clean_shutdown()
    assert disk.synced_of(same) == set()
    assert disk.synced_of(elected) == set(), "an epoch without records need not be in the file"
    files = {f"{0:020}.log", f"{0:020}.index", f"{0:020}.timeindex", f"{4:020}.snapshot.1.tmp"}
    assert disk.synced_of(written) >= files
    assert ("" in disk.synced_of(written)) is not syncs_together, "with the files, the names are synced, too"


@pytest.mark.parametrize("syncs_together", [False, True])
def test_nothing_is_lost_by_a_power_failure_after_a_stop(syncs_together: bool) -> None:
    for seed in range(10):
        disk = SimFiles()
        disk.syncs_together = syncs_together
        manager = manager_on(disk)
        for index in range(3):
            produce(manager.get_or_create(TopicPartition("orders", index)), 3)
        manager.clean_shutdown()
        disk.crash(random.Random(seed))
        logs = manager_on(disk).logs
        assert [log.log_end_offset for log in logs.values()] == [3, 3, 3]
        assert all(log.recovery_point == 3 for log in logs.values())


def test_many_files_are_synced_together(tmp_path: Path) -> None:
    """Where the system cannot, they are synced one by one; this test runs on both."""
    files = RealFiles()
    opened: list[File] = []
    for number in range(200):
        file = files.open(f"{tmp_path}/{number}", create=True)
        file.write_at(0, b"x")
        opened.append(file)
    assert not files.sync_together(opened[:20]), "few files are synced one by one"
    assert files.sync_together(opened) is sync_file_systems([opened[0].fileno()])


def test_a_stop_syncs_the_indexes_of_a_log_that_was_cut() -> None:
    """Otherwise removed names could reappear after a power failure."""
    disk = SyncedFiles()
    manager = manager_on(disk)
    log = manager.get_or_create(TP)
    produce(log, 3)
    log.flush()
    log.truncate_to(2)
    disk.synced.clear()
    manager.clean_shutdown()
    assert disk.synced_of(TP) >= {f"{0:020}.index", f"{0:020}.timeindex"}


def test_a_stop_syncs_as_many_logs_at_a_time_as_there_are_threads() -> None:
    meeting = threading.Barrier(2)

    class Meeting(SimFiles):
        """The directories of two logs are synced together or not at all."""

        def sync_directory(self, path: str) -> None:
            if path.startswith("/data/"):
                meeting.wait(timeout=60)
            super().sync_directory(path)

    disk = Meeting()
    with ThreadPoolExecutor(2) as executor:
        manager = manager_on(disk, executor=executor)
        for index in range(2):
            produce(manager.get_or_create(TopicPartition("orders", index)))
        manager.clean_shutdown()
    assert disk.exists("/data/.kafka_cleanshutdown")


def test_a_failed_sync_on_stop_leaves_no_clean_shutdown_file_and_releases_all_locks() -> None:
    class Broken(SimFiles):
        def sync_directory(self, path: str) -> None:
            if path == "/data/orders-1":
                raise OSError(5, "broken", path)
            super().sync_directory(path)

    disk = Broken()
    manager = manager_on(disk)
    for index in range(3):
        produce(manager.get_or_create(TopicPartition("orders", index)))
    manager.clean_shutdown()
    assert not manager.directories[0].is_online
    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert not disk.locks


def test_a_stop_that_fails_to_write_or_sync_leaves_no_clean_shutdown_file_of_lost_records() -> None:
    for operation in range(1, 1000):
        disk = SimFiles()
        disk.syncs_together = True
        manager = manager_on(disk)
        for index in range(2):
            produce(manager.get_or_create(TopicPartition("orders", index)))
        disk.fail_at(operation)
        manager.clean_shutdown()
        if not disk.has_failed:
            break
        assert not manager.directories[0].is_online
        if disk.exists("/data/.kafka_cleanshutdown"):  # Only its directory could not be synced.
            disk.crash(random.Random(operation))
            assert [log.log_end_offset for log in manager_on(disk).logs.values()] == [1, 1]
    assert operation > 20


def test_a_stop_syncs_leader_epochs_rebuilt_on_start() -> None:
    disk = SyncedFiles()
    manager = manager_on(disk)
    produce(manager.get_or_create(TP))
    manager.clean_shutdown()
    disk.write_atomically(f"/data/{TP}/leader-epoch-checkpoint", b"nonsense")
    again = manager_on(disk)
    disk.synced.clear()
    again.clean_shutdown()
    assert disk.synced_of(TP) == {"leader-epoch-checkpoint", ""}
