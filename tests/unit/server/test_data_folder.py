"""The lock of a data folder says whether its broker runs; the note says where."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kctl.server.data_folder import DataFolder, DataFolderError, RunningBroker

RUNNING = RunningBroker(pid=1, host="127.0.0.1", port=9092, broker_id=0, zookeeper="127.0.0.1:2181", started_ms=5)


def test_tells_who_runs_until_it_is_released(tmp_path: Path) -> None:
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


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    first, second = DataFolder(tmp_path), DataFolder(tmp_path)
    first.acquire()
    first.announce(RUNNING)
    with pytest.raises(DataFolderError, match=r"in use by the broker at 127.0.0.1:9092 .*kctl broker stop"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_somebody_who_looks_all_the_time_does_not_keep_an_owner_out(tmp_path: Path) -> None:
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


def test_a_folder_that_cannot_be_made_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match=r"cannot be written: .*--data-dir"):
        DataFolder(tmp_path / "file" / "data").acquire()


def test_a_note_left_by_a_killed_broker_is_not_believed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.acquire()
    folder.announce(RUNNING)
    note = (tmp_path / "broker.json").read_text()
    folder.release()
    (tmp_path / "broker.json").write_text(note)
    assert folder.running() is None
