"""A disk that fails at the n-th operation, for every n, and power failures at any operation.

After each fault the directory can be opened, and contains the acknowledged records (after a crash of the process) or
the flushed ones (after a power failure), in order, once.  A fault takes the log directory offline and raises only
LogDirFailure.
"""

from __future__ import annotations

import contextlib
import errno
import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.config import LogConfig
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles
from tests.rows import for_rows
from tests.unit.storage.log_builder import NOW_MS, read_records, unload_indexes
from tests.unit.storage.manager_builder import remove_due_files

TP = TopicPartition("orders", 0)
DOOMED = TopicPartition("doomed", 3)
CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    segment_index_bytes=1200,
    retention_bytes=900,
    file_delete_delay_ms=1000,
)
CLUSTER = "d0053poFTbGwSWThjV1DEg"


@dataclass
class Seen:
    """The acknowledged records."""

    acknowledged: list[bytes] = field(default_factory=list)
    flushed: int = 0
    start: int = 0


def manager_on(disk: SimFiles, clock: ManualClock) -> LogManager:
    return LogManager(["/data"], files=disk, clock=clock, random=random.Random(1), default_config=CONFIG)


def produce(log: Log, seen: Seen, count: int) -> None:
    for _ in range(count):
        number = len(seen.acknowledged)
        value = b"value %04d" % number
        batch = build_batch(
            [Record(0, NOW_MS + number, b"k", value)], producer_id=9, producer_epoch=0, base_sequence=number
        )
        result = log.append_as_leader(bytearray(batch), leader_epoch=number // 7, now_ms=NOW_MS)
        assert result.base_offset == number
        seen.acknowledged.append(value)


def history(disk: SimFiles, seen: Seen) -> None:
    """Every operation of a broker on its logs, once."""
    clock = ManualClock(start_ms=NOW_MS)
    manager = manager_on(disk, clock)
    manager.load()
    manager.assign_identity(broker_id=1, cluster_id=CLUSTER)
    log = manager.get_or_create(TP, UUID(int=5))
    log.assign_epoch(0, 0)
    doomed = manager.get_or_create(DOOMED)
    produce(doomed, Seen(), 2)
    produce(log, seen, 12)
    log.flush()
    seen.flushed = len(seen.acknowledged)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({TP: seen.flushed})
    produce(log, seen, 5)
    log.roll(NOW_MS)
    for owner, plan in manager.plan_flushes(NOW_MS):
        plan.run()
        owner.flushed(plan, NOW_MS)
    manager.delete(DOOMED)
    manager.apply_retention(NOW_MS, lambda tp: len(seen.acknowledged))
    seen.start = log.log_start_offset
    produce(log, seen, 5)
    assert log.offset_for_timestamp(NOW_MS + 18, max_offset=1000) is not None
    unload_indexes(log)
    assert len(read_records(log, log.log_start_offset)) == len(seen.acknowledged) - seen.start
    log.increment_log_start_offset(seen.start + 1)
    seen.start += 1
    manager.checkpoints.write_log_start_offsets()
    clock.advance(5000)
    remove_due_files(manager, clock.now_ms())
    log.flush()
    seen.flushed = len(seen.acknowledged)
    manager.clean_shutdown({TP: seen.flushed})


def values_after_restart(disk: SimFiles) -> tuple[int, list[bytes]]:
    """The start offset and the values that a new process finds; it can append and shut down."""
    manager = manager_on(disk, ManualClock(start_ms=NOW_MS))
    manager.load()
    assert manager.unreadable == {}
    log = manager.get(TP)
    found: list[bytes] = []
    start = 0
    if log is not None:
        records = read_records(log, log.log_start_offset)
        start, found = log.log_start_offset, [record.value or b"" for record in records]
        assert [record.offset for record in records] == list(range(start, log.log_end_offset))
        if log.log_end_offset > log.log_start_offset:
            assert log.producer_state.producers[9].last_sequence == log.log_end_offset - 1
        fresh = Seen(acknowledged=[b""] * log.log_end_offset)
        produce(log, fresh, 3)
        end = log.log_end_offset
        manager.clean_shutdown()
        again = manager_on(disk, ManualClock(start_ms=NOW_MS))
        again.load()
        reopened = again.logs[TP]
        assert (reopened.log_end_offset, reopened.recovery_point) == (end, end)
        assert len(read_records(reopened, start)) == end - start
        again.release()
    else:
        manager.release()
    return start, found


def operations_in_all() -> int:
    disk = SimFiles()
    history(disk, Seen())
    return disk.operations


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_no_acknowledged_record_is_lost_when_the_disk_fails_at_any_operation(error: int) -> None:
    total = operations_in_all()
    assert total > 150
    for operation in range(1, total + 1):
        disk, seen = SimFiles(), Seen()
        disk.syncs_together = operation % 2 == 0
        disk.fail_at(operation, error=error)
        with contextlib.suppress(LogDirFailure, OSError, ApiError):
            history(disk, seen)
        disk.kill()
        start, found = values_after_restart(disk)
        lost = [value for value in seen.acknowledged[start:] if value not in found]
        assert not lost, f"operation {operation}: {lost}"
        assert found[: len(seen.acknowledged) - start] == seen.acknowledged[start:]
        assert start <= seen.start + 20


def test_no_flushed_record_is_lost_on_power_failure_at_any_operation() -> None:
    for operation in range(1, operations_in_all() + 1):
        disk, seen = SimFiles(), Seen()
        disk.syncs_together = operation % 2 == 0
        disk.fail_at(operation)
        with contextlib.suppress(LogDirFailure, OSError, ApiError):
            history(disk, seen)
        disk.crash(random.Random(operation))
        manager = manager_on(disk, ManualClock(start_ms=NOW_MS))
        manager.load()
        log = manager.get(TP)
        if log is None:
            assert not seen.flushed
            continue
        records = read_records(log, log.log_start_offset)
        found = {record.offset: record.value for record in records}
        assert list(found) == sorted(found)
        for offset in range(log.log_start_offset, seen.flushed):
            assert found.get(offset) == seen.acknowledged[offset], f"operation {operation}, offset {offset}"
        assert all(value.startswith(b"value") for value in found.values() if value is not None)


def test_a_failed_append_takes_only_its_log_directory_offline() -> None:
    disk = SimFiles()
    failed: list[str] = []
    manager = LogManager(
        ["/one", "/two"],
        files=disk,
        clock=ManualClock(start_ms=NOW_MS),
        random=random.Random(1),
        default_config=CONFIG,
        on_log_dir_failure=failed.append,
    )
    manager.load()
    first = manager.get_or_create(TopicPartition("a", 0))
    second = manager.get_or_create(TopicPartition("b", 0))
    assert {first.log_directory.path, second.log_directory.path} == {"/one", "/two"}
    disk.fail_at(1)
    with pytest.raises(LogDirFailure, match=first.log_directory.path):
        produce(first, Seen(), 1)
    disk.fail_at(None)
    assert failed == [first.log_directory.path]
    with pytest.raises(LogDirFailure):
        produce(first, Seen(), 1)
    with pytest.raises(LogDirFailure):
        first.read(0, 100, max_offset=0)
    produce(second, Seen(), 1)
    with pytest.raises(ApiError) as caught:
        manager.get_or_create(TopicPartition("c", 0), is_new=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.get_or_create(TopicPartition("c", 0)).log_directory is second.log_directory
    manager.clean_shutdown()
    assert disk.exists(f"{second.log_directory.path}/.kafka_cleanshutdown")
    assert not disk.exists(f"{first.log_directory.path}/.kafka_cleanshutdown")


@for_rows("keep", range(0, 200, 7))
def test_a_torn_tail_is_truncated_to_the_last_valid_batch(keep: int) -> None:
    disk = SimFiles()
    manager = manager_on(disk, ManualClock(start_ms=NOW_MS))
    manager.load()
    log = manager.get_or_create(TP, config=LogConfig())
    seen = Seen()
    produce(log, seen, 3)
    sound = log.size_bytes
    produce(log, seen, 2)
    whole = log.size_bytes
    manager.release()
    disk.kill()
    file = disk.open("/data/orders-0/00000000000000000000.log")
    file.truncate(min(sound + keep, whole - 1))
    again = manager_on(disk, ManualClock(start_ms=NOW_MS))
    again.load()
    reopened = again.logs[TP]
    count = 3 if sound + keep < (sound + whole) // 2 else 4
    assert [record.value for record in read_records(reopened, 0)] == seen.acknowledged[:count]
    assert disk.size("/data/orders-0/00000000000000000000.log") == reopened.size_bytes
