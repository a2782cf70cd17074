"""The offset checkpoints of the logs, and handling of damaged ones."""

from __future__ import annotations

import pytest

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.storage import checkpointing
from kctl.storage.config import LogConfig
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.log_builder import NOW_MS, read_records
from tests.unit.storage.manager_builder import TP, manager_on, produce

DAMAGE = pytest.mark.parametrize(
    "text", [b"0\n1\n", b"7\n0\n", b"0\n1\norders zero 5\n", b"0\n1\norders 0\n", b"\xff", b"\0" * 20]
)


@DAMAGE
@pytest.mark.parametrize("name", ["recovery-point", "cleaner"])
def test_a_damaged_checkpoint_that_can_be_rebuilt_loses_no_records(name: str, text: bytes) -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    produce(manager.get_or_create(TP), 5)
    manager.clean_shutdown({TP: 5})
    disk.write_atomically(f"/data/{name}-offset-checkpoint", text)
    again = manager_on(disk)
    assert len(read_records(again.logs[TP], 0)) == 5


@DAMAGE
@pytest.mark.parametrize("name", ["replication", "log-start"])
def test_a_damaged_checkpoint_without_another_source_takes_its_directory_offline(
    name: str, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimFiles()
    manager = manager_on(disk, "/one", "/two")
    for partition in range(2):
        produce(manager.get_or_create(TopicPartition("orders", partition)), 5)
        manager.logs[TopicPartition("orders", partition)].increment_log_start_offset(3)
    manager.clean_shutdown({TP: 4})
    path = f"/one/{name}-offset-checkpoint"
    sound = disk.read(path)
    disk.write_atomically(path, text)
    with caplog.at_level("ERROR"):
        again = manager_on(disk, "/one", "/two")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        f"log directory goes offline until the broker is restarted path=/one error={path} at position "
    )
    assert [state.path for state in again.online_directories] == ["/two"]
    (served,) = again.logs
    assert again.logs[served].log_start_offset == 3
    lost = TopicPartition("orders", 1 - served.partition)
    with pytest.raises(ApiError) as caught:
        again.get_or_create(lost, is_new=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    again.clean_shutdown()

    disk.write_atomically(path, sound)
    repaired = manager_on(disk, "/one", "/two")
    assert repaired.logs[lost].log_start_offset == 3
    assert len(read_records(repaired.logs[lost], 3)) == 2


def test_a_broker_without_a_directory_with_valid_checkpoints_does_not_start() -> None:
    disk = SimFiles()
    manager_on(disk).clean_shutdown()
    disk.write_atomically("/data/replication-offset-checkpoint", b"0\n1\n")
    with pytest.raises(LogDirFailure, match=r"/data/replication-offset-checkpoint at position 4: 0 entries"):
        manager_on(disk)


def test_an_empty_checkpoint_has_no_entries() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    produce(manager.get_or_create(TP), 5)
    manager.clean_shutdown({TP: 5})
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        disk.write_atomically(f"/data/{name}-offset-checkpoint", b"")
    assert len(read_records(manager_on(disk).logs[TP], 0)) == 5


def test_checkpoints_keep_values_that_segments_lack() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    for partition in range(2):
        produce(manager.get_or_create(TopicPartition("orders", partition)), 4)
    manager.logs[TP].increment_log_start_offset(3)
    manager.logs[TP].flush()
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_start_offsets()
    manager.checkpoints.write_high_watermarks({TP: 2})
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n2\norders 0 4\norders 1 0\n"
    assert disk.read("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 3\n"
    assert disk.read("/data/replication-offset-checkpoint") == b"0\n1\norders 0 2\n"
    disk.kill()
    again = manager_on(disk)
    assert (again.logs[TP].log_start_offset, again.high_watermarks[TP]) == (3, 2)


def test_a_checkpoint_begun_before_a_deletion_has_no_entry_of_the_deleted_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is created again under the name would begin with the recovery point of the old one."""
    monkeypatch.setattr(checkpointing, "SLICE_OBJECTS", 2)
    disk = SimFiles()
    manager = manager_on(disk)
    for partition in range(5):
        produce(manager.get_or_create(TopicPartition("orders", partition)), 4)
        manager.logs[TopicPartition("orders", partition)].flush()
    steps = manager.checkpoints.plan_recovery_points()
    next(steps)
    next(steps)
    manager.delete(TP)
    with pytest.raises(StopIteration) as end:
        next(steps)
    end.value.value.run()
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"".join(
        [b"0\n4\n", *(b"orders %d 4\n" % partition for partition in range(1, 5))]
    )


def test_periodic_work_leaves_out_logs_that_were_deleted_meanwhile() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    produce(manager.get_or_create(TP, config=LogConfig(retention_bytes=0, segment_bytes=100, flush_ms=0)), 4)
    logs = manager.all()
    manager.delete(TP)
    assert list(manager.plan_flushes(NOW_MS, logs)) == []
    assert manager.apply_retention(NOW_MS, lambda _: 4, logs) == 0
    assert manager.online_directories
