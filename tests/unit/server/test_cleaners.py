"""The broker's log cleaner threads: parallelism, I/O limit and shutdown."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kctl.config.dynamic import ConfigView
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.loop.tasks import SystemClock
from kctl.server.replication.logs.cleaners import CleanerPace, LogCleaners, buffers
from kctl.storage.cleaning.cleaning import CleaningAborted
from kctl.storage.cleaning.pace import Account
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import LogDirectory
from kctl.storage.files import File, RealFiles
from kctl.storage.log.flushing import CheckpointPlan
from kctl.storage.log_manager import LogManager
from kctl.storage.names import LOCK
from kctl.system.steps import run_at_once
from tests.peers import probe

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_index_bytes=64 << 10
)
PATIENCE_S = 60


class MeetingFiles(RealFiles):
    """Cleaner threads that open a log wait until `expected` of them have done so."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self._barrier = threading.Barrier(expected)
        self._lock = threading.Lock()
        self._inside = 0
        self.most_at_once = 0

    def open(self, path: str, *, create: bool = False) -> File:
        if threading.current_thread().name.startswith("log-cleaner") and path.endswith(".log"):
            with self._lock:
                self._inside += 1
                self.most_at_once = max(self.most_at_once, self._inside)
            self._barrier.wait(PATIENCE_S)
            with self._lock:
                self._inside -= 1
        return super().open(path, create=create)


def dirty_logs(folder: Path, files: RealFiles, count: int) -> LogManager:
    manager = LogManager([str(folder)], files=files, clock=SystemClock(), random=random.Random(1))
    manager.load()
    for partition in range(count):
        log = manager.get_or_create(TopicPartition("table", partition), config=COMPACTED)
        for value in (b"1", b"2"):
            log.append_as_leader(bytearray(build_batch([Record(0, 1, b"k", value)])), leader_epoch=0, now_ms=1)
            log.roll(1)
        log.flush()
    return manager


def cleaners_of(manager: LogManager, **properties: str) -> LogCleaners:
    configs = ConfigView({name.replace("_", "."): value for name, value in properties.items()})
    return LogCleaners(manager, lambda log: log.log_end_offset, SystemClock(), configs=configs, random=random.Random(2))


def clean_all(manager: LogManager, **properties: str) -> None:
    async def run() -> None:
        cleaners = cleaners_of(manager, **properties)
        await cleaners.start_idle_cleaners()
        await asyncio.wait_for(cleaners.idle(), PATIENCE_S)
        assert cleaners.cleaner.uncleanable == {}
        await cleaners.stop()

    asyncio.run(run())


def test_cleaner_threads_clean_different_logs_in_parallel(tmp_path: Path) -> None:
    files = MeetingFiles(2)
    manager = dirty_logs(tmp_path, files, 4)
    clean_all(manager, log_cleaner_threads="2")
    assert files.most_at_once == 2
    assert {manager.checkpoints.cleaner_offset(tp) for tp in manager.logs} == {2}
    assert all(len(log.segments) == 2 for log in manager.logs.values())
    manager.release()


def test_the_memory_for_keys_and_the_age_of_uncleaned_records_are_measured(tmp_path: Path) -> None:
    manager = dirty_logs(tmp_path, RealFiles(), 1)
    for log in manager.logs.values():
        log.config = replace(log.config, max_compaction_lag_ms=1000)
    cleaners = cleaners_of(manager, log_cleaner_dedupe_buffer_size=str(1 << 20), log_cleaner_io_buffer_load_factor="1")
    now_ms = 5_000
    due = run_at_once(cleaners.cleaner.next(now_ms))
    assert due is not None
    assert cleaners.cleaner.overdue_max_ms == now_ms - 1000 - 1, "the timestamps of the records are 1"
    for work in cleaners.cleaner.steps(*due, now_ms):
        work()
    done = cleaners.cleaner.statistics
    assert 0 < done.keys_memory_share < 0.001
    assert done.keys == 1
    assert run_at_once(cleaners.cleaner.next(now_ms)) is None
    assert cleaners.cleaner.overdue_max_ms == 0
    manager.release()


@pytest.mark.long
def test_the_memory_for_many_keys_is_returned_to_the_system(tmp_path: Path) -> None:
    program = """
import asyncio
import random
import sys
from kctl.config.dynamic import ConfigView
from kctl.model import TopicPartition
from kctl.system.operating_system import limit_freed_memory, resident_bytes
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.replication.logs.cleaners import LogCleaners
from kctl.server.loop.tasks import SystemClock
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.log_manager import LogManager

BATCHES, RECORDS = 100, 1_000

assert limit_freed_memory()
config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_index_bytes=1 << 16)
manager = LogManager([sys.argv[1]], files=RealFiles(), clock=SystemClock(), random=random.Random(1))
manager.load()

def fill(partition, batches):
    log = manager.get_or_create(TopicPartition("table", partition), config=config)
    for number in range(batches):
        records = [Record(at, 1, b"%d %d" % (number, at), b"") for at in range(RECORDS)]
        log.append_as_leader(bytearray(build_batch(records)), leader_epoch=0, now_ms=1)
    log.roll(1)
    log.flush()

async def clean():
    await cleaners.start_idle_cleaners()
    await asyncio.wait_for(cleaners.idle(), 60)
    assert cleaners.cleaner.uncleanable == {}

async def main():
    global cleaners
    configs = ConfigView({})
    cleaners = LogCleaners(
        manager, lambda log: log.log_end_offset, SystemClock(), configs=configs, random=random.Random(2)
    )
    fill(0, 1)
    await clean()  # Imports modules and starts a thread.
    fill(1, BATCHES)
    before = resident_bytes()
    await clean()
    assert cleaners.cleaner.statistics.keys == RECORDS * BATCHES
    await cleaners.stop()  # Waits for the threads.
    print(resident_bytes() - before)

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 3_000_000


def test_one_cleaner_thread_cleans_logs_one_after_the_other(tmp_path: Path) -> None:
    files = MeetingFiles(1)
    manager = dirty_logs(tmp_path, files, 3)
    clean_all(manager, log_cleaner_threads="1")
    assert files.most_at_once == 1
    assert {manager.checkpoints.cleaner_offset(tp) for tp in manager.logs} == {2}
    manager.release()


def test_no_log_is_cleaned_without_cleaner_threads(tmp_path: Path) -> None:
    manager = dirty_logs(tmp_path, RealFiles(), 1)
    clean_all(manager, log_cleaner_threads="0")
    assert manager.checkpoints.cleaner_offset(TopicPartition("table", 0)) is None
    manager.release()


def test_stopping_ends_throttled_cleanings_and_removes_their_temporary_files(tmp_path: Path) -> None:
    manager = dirty_logs(tmp_path, RealFiles(), 2)

    async def run() -> None:
        cleaners = cleaners_of(manager, **{"log.cleaner.io.max.bytes.per.second": "0.001", "log.cleaner.threads": "2"})
        await cleaners.start_idle_cleaners()
        await asyncio.wait_for(cleaners.stop(), PATIENCE_S)
        await cleaners.start_idle_cleaners()
        await asyncio.wait_for(cleaners.idle(), PATIENCE_S)

    asyncio.run(run())
    assert manager.checkpoints.cleaner_offset(TopicPartition("table", 0)) is None
    assert not list(tmp_path.rglob("*.cleaned"))
    manager.release()


@pytest.mark.parametrize("at_start_ms", ["0", "3600000"])
def test_logs_are_checked_every_backoff_also_if_a_change_shortens_it(tmp_path: Path, at_start_ms: str) -> None:
    manager = dirty_logs(tmp_path, RealFiles(), 1)
    tp = TopicPartition("table", 0)

    async def run() -> None:
        configs = ConfigView({"log.cleaner.backoff.ms": at_start_ms})
        cleaners = LogCleaners(
            manager, lambda log: log.log_end_offset, SystemClock(), configs=configs, random=random.Random(2)
        )
        cleaners.start()
        await asyncio.sleep(0)
        assert configs.set_dynamic_default({"log.cleaner.backoff.ms": "0"}) == []
        await asyncio.to_thread(
            probe.wait_until,
            lambda: manager.checkpoints.cleaner_offset(tp) is not None,
            what="a checkpoint of the cleaner",
            timeout_s=PATIENCE_S,
        )
        await cleaners.stop()

    asyncio.run(run())
    assert manager.checkpoints.cleaner_offset(tp) == 2
    manager.release()


def test_the_dedupe_buffer_is_divided_among_the_threads() -> None:
    view = ConfigView(
        {
            "log.cleaner.threads": "4",
            "log.cleaner.dedupe.buffer.size": str(64 << 20),
            "log.cleaner.io.buffer.size": str(1 << 20),
            "log.cleaner.io.buffer.load.factor": "0.5",
        }
    )
    assert buffers(view) == (8 << 20, 128 << 10)


def test_the_io_limit_delays_by_the_bytes_that_were_used() -> None:
    account = Account()
    assert account.spend(0, now_ms=10_000, bytes_per_second=1000) == -1000
    assert account.spend(1000, now_ms=10_000, bytes_per_second=1000) == 0
    assert account.spend(500, now_ms=10_000, bytes_per_second=1000) == 500
    assert account.spend(500, now_ms=10_500, bytes_per_second=100) == 5000, "the rate may change"
    assert account.spend(0, now_ms=15_500, bytes_per_second=100) == 0


def test_unused_io_allowance_is_kept_for_a_second_at_most() -> None:
    account = Account()
    account.spend(0, now_ms=0, bytes_per_second=1000)
    assert account.spend(1500, now_ms=3_600_000, bytes_per_second=1000) == 500


def test_without_an_io_limit_nothing_is_delayed_but_a_stop_is_noticed() -> None:
    pace = CleanerPace(SystemClock(), lambda: ConfigView({}).current.log_cleaner_io_max_bytes_per_second)
    for _ in range(100):
        pace.spend(1 << 30)
    pace.stop()
    with pytest.raises(CleaningAborted):
        pace.spend(0)


def test_an_outdated_cleaner_checkpoint_is_not_written(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    (tmp_path / LOCK).touch()
    directory = LogDirectory(str(tmp_path))
    older = CheckpointPlan(RealFiles(), [(directory, path, lambda: b"older")])
    newer = CheckpointPlan(RealFiles(), [(directory, path, lambda: b"newer")])
    newer.run()
    older.run()
    assert Path(path).read_bytes() == b"newer"
    assert not older.failures
    CheckpointPlan(RealFiles(), [(directory, path, lambda: b"newest")]).run()
    assert Path(path).read_bytes() == b"newest"
