"""The lock of a data folder shows whether its broker runs; broker.json contains the address."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kctl.server.process.data_folder import DataFolder, DataFolderError, RunningBroker

RUNNING = RunningBroker(pid=1, host="127.0.0.1", port=9092, broker_id=0, zookeeper="127.0.0.1:2181", started_ms=5)


def test_the_running_broker_is_recorded_until_release(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    assert folder.running() is None
    folder.acquire()
    assert folder.is_locked()
    assert folder.running() is None
    folder.announce(RUNNING)
    assert DataFolder(tmp_path / "data").running() == RUNNING
    folder.release()
    assert not folder.is_locked()
    assert folder.running() is None


def test_a_second_broker_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    first, second = DataFolder(tmp_path), DataFolder(tmp_path)
    first.acquire()
    first.announce(RUNNING)
    with pytest.raises(DataFolderError, match=r"in use by the broker at 127.0.0.1:9092 .*kctl broker stop"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_repeated_status_checks_do_not_block_a_broker_from_locking(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.acquire()
    folder.release()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            DataFolder(tmp_path).is_locked()

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(200):
            folder.acquire()
            folder.release()
    finally:
        stop.set()
        watcher.join()


def test_the_error_for_an_uncreatable_folder_names_it_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match=r"cannot be written: .*--data-dir"):
        DataFolder(tmp_path / "file" / "data").acquire()


def test_the_pid_file_of_a_killed_broker_is_ignored(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.acquire()
    folder.announce(RUNNING)
    note = (tmp_path / "broker.json").read_text()
    folder.release()
    (tmp_path / "broker.json").write_text(note)
    assert folder.running() is None
