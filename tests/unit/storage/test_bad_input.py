"""Unexpected files in a log directory: one log line each, valid logs are served, and nothing is deleted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.files import RealFiles
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from tests.unit.storage.log_builder import NOW_MS, read_records

BAD, SOUND = TopicPartition("bad", 0), TopicPartition("sound", 0)
FIRST = "00000000000000000000"
WAYS_TO_END = pytest.mark.parametrize("end", ["stopped", "killed"])


def manager_on(*folders: Path) -> LogManager:
    manager = LogManager(
        [str(folder) for folder in folders],
        files=RealFiles(),
        clock=ManualClock(start_ms=NOW_MS),
        random=random.Random(1),
    )
    manager.load()
    return manager


def with_two_logs(folder: Path, end: str = "stopped") -> None:
    manager = manager_on(folder)
    for tp in (BAD, SOUND):
        log = manager.get_or_create(tp)
        for _ in range(2):
            for _ in range(3):
                log.append_as_leader(build_batch([Record(0, NOW_MS, b"k", b"v")]), leader_epoch=0, now_ms=NOW_MS)
            log.roll(NOW_MS)
    if end == "stopped":
        manager.clean_shutdown()
    else:
        manager.release()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


@WAYS_TO_END
@pytest.mark.parametrize(
    "name",
    [
        f"{FIRST}.log",
        f"{FIRST}.index",
        f"{FIRST}.timeindex",
        "00000000000000000003.log",
        "00000000000000000006.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        f"{FIRST}.log.deleted",
        f"{FIRST}.log.cleaned",
    ],
)
def test_a_directory_in_place_of_a_file_affects_that_log_only(
    tmp_path: Path, name: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    with_two_logs(tmp_path, end)
    path = tmp_path / "bad-0" / name
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "precious").write_text("kept")
    before = {path.name for path in (tmp_path / "bad-0").iterdir()}
    manager = manager_on(tmp_path)
    (line,) = complaints(caplog)
    assert line.startswith(f"cannot load log, its partition is offline path={tmp_path}/bad-0 error={path}: ")
    assert len(read_records(manager.logs[SOUND], 0)) == 6
    with pytest.raises(ApiError) as caught:
        manager.get_or_create(BAD)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.clean_shutdown()
    assert (path / "precious").read_text() == "kept"
    assert {path.name for path in (tmp_path / "bad-0").iterdir()} >= before


@WAYS_TO_END
@pytest.mark.parametrize(
    "name", ["0.log", "orders.log", f"{FIRST}.bak", "00000000000000000099.bak", "x" * 20 + ".index", "core", ".nfs0001"]
)
def test_a_foreign_file_is_logged_and_ignored(
    tmp_path: Path, name: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    with_two_logs(tmp_path, end)
    (tmp_path / "bad-0" / name).write_bytes(b"\0\1\2")
    manager = manager_on(tmp_path)
    assert complaints(caplog) == [f"ignoring unknown file path={tmp_path}/bad-0/{name}"]
    assert len(read_records(manager.logs[BAD], 0)) == 6
    manager.clean_shutdown()
    assert (tmp_path / "bad-0" / name).read_bytes() == b"\0\1\2"


@pytest.mark.parametrize("name", ["meta.properties", ".lock", "replication-offset-checkpoint"])
def test_a_directory_in_place_of_a_file_of_the_log_directory_takes_it_offline(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    with_two_logs(bad)
    manager_on(good).clean_shutdown()
    (bad / name).unlink(missing_ok=True)
    (bad / name).mkdir()
    manager = manager_on(bad, good)
    *_, line = complaints(caplog)
    assert line.startswith(f"log directory goes offline until the broker is restarted path={bad} error={bad / name}: ")
    assert [state.path for state in manager.online_directories] == [str(good)]
    manager.clean_shutdown()
    (bad / name).rmdir()
    assert len(read_records(manager_on(bad).logs[BAD], 0)) == 6


@WAYS_TO_END
def test_a_segment_of_random_bytes_is_truncated_with_one_log_line(
    tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the last segment, after the end of the batches: such bytes contain no records."""
    with_two_logs(tmp_path, end)
    last = max((tmp_path / "bad-0").glob("*.log"))
    last.write_bytes(b"garbage" * 40)
    manager = manager_on(tmp_path)
    output = [line for line in complaints(caplog) if str(last) in line]
    assert output
    assert all("position=0" in line or "position 0" in line for line in output)
    assert len(read_records(manager.logs[BAD], 0)) == 6
    assert len(read_records(manager.logs[SOUND], 0)) == 6
    manager.clean_shutdown()
