"""Clean shutdown of the logs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from kctl.model import TopicPartition
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


def test_a_stop_syncs_of_each_log_what_has_changed_since_the_last_flush() -> None:
    """Most logs of a broker with thousands of replicas have not changed: syncing them took most of the time."""
    disk = SyncedFiles()
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
    assert disk.synced_of(written) >= {
        f"{0:020}.log",
        f"{0:020}.index",
        f"{0:020}.timeindex",
        f"{4:020}.snapshot.1.tmp",
        "",
    }


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
