"""All logs of a broker: directories, identity, creation, deletion, and periodic tasks."""

from __future__ import annotations

from uuid import UUID

import pytest

from kctl.errors import ApiError, ConfigError, ErrorCode
from kctl.model import TopicPartition
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_creation import CreationPlan, NewLog
from kctl.storage.directories.log_directories import LogDirectoryLocked
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.log_builder import NOW_MS
from tests.unit.storage.manager_builder import TP, manager_on, produce, remove_due_files

CLUSTER = "d0053poFTbGwSWThjV1DEg"


def test_a_log_directory_belongs_to_one_process() -> None:
    disk = SimFiles()
    first = manager_on(disk)
    with pytest.raises(LogDirectoryLocked, match=r"/data.*another broker"):
        manager_on(disk)
    first.clean_shutdown()
    manager_on(disk).release()


def test_a_log_directory_belongs_to_one_broker_of_one_cluster() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    assert (manager.broker_id, manager.cluster_id) == (None, None)
    manager.assign_identity(broker_id=3, cluster_id=CLUSTER)
    assert disk.read("/data/meta.properties").decode().splitlines()[1:] == [
        "version=0",
        "broker.id=3",
        f"cluster.id={CLUSTER}",
    ]
    manager.clean_shutdown()
    again = manager_on(disk)
    assert (again.broker_id, again.cluster_id) == (3, CLUSTER)
    with pytest.raises(ConfigError, match=r"broker\.id=4"):
        again.assign_identity(broker_id=4, cluster_id=CLUSTER)
    with pytest.raises(ConfigError, match="cluster"):
        again.assign_identity(broker_id=3, cluster_id="other")


@pytest.mark.parametrize("text", [b"", b"version=1\nnode.id=3\n", b"version=0\nbroker.id=x\n", b"\xff\xfe"])
def test_a_directory_with_malformed_meta_properties_is_refused(text: bytes) -> None:
    disk = SimFiles()
    disk.make_directory("/data")
    disk.write_atomically("/data/meta.properties", text)
    with pytest.raises(ConfigError, match=r"meta\.properties"):
        manager_on(disk)


def test_directories_of_different_clusters_are_refused() -> None:
    disk = SimFiles()
    for at, cluster in (("/one", "a" * 22), ("/two", "b" * 22)):
        manager = manager_on(disk, at)
        manager.assign_identity(broker_id=1, cluster_id=cluster)
        manager.clean_shutdown()
    with pytest.raises(ConfigError, match=r"cluster\.id"):
        manager_on(disk, "/one", "/two")


def test_new_logs_are_placed_in_the_directory_with_the_fewest() -> None:
    manager = manager_on(SimFiles(), "/one", "/two", "/three")
    for partition in range(9):
        manager.get_or_create(TopicPartition("orders", partition))
    counts = [log.log_directory.path for log in manager.logs.values()]
    assert {at: counts.count(at) for at in counts} == {"/one": 3, "/two": 3, "/three": 3}


def test_the_topic_id_is_kept_and_compared() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    manager.get_or_create(TP)
    assert manager.get_or_create(TP, UUID(int=5)).topic_id == UUID(int=5)
    assert disk.read("/data/orders-0/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ"
    manager.get_or_create(TP, UUID(int=0))
    manager.clean_shutdown()
    again = manager_on(disk)
    assert again.logs[TP].topic_id == UUID(int=5)
    with pytest.raises(ApiError) as caught:
        again.get_or_create(TP, UUID(int=6))
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_deleted_log_is_renamed_at_once_and_removed_later() -> None:
    disk, clock = SimFiles(), ManualClock(start_ms=NOW_MS)
    manager = manager_on(disk, clock=clock, default_config=LogConfig(file_delete_delay_ms=1000))
    log = manager.get_or_create(TP)
    produce(log, 3)
    log.increment_log_start_offset(2)
    manager.checkpoints.write_log_start_offsets()
    part = log.read(2, 100, max_offset=3)
    manager.delete(TP, TopicPartition("unknown", 1))
    (name,) = [entry.name for entry in disk.list("/data") if entry.is_directory]
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    assert len(part.read()) == len(part)
    assert manager.get_or_create(TP).log_end_offset == 0
    remove_due_files(manager, clock.now_ms())
    assert disk.exists(f"/data/{name}")
    clock.advance(1000)
    remove_due_files(manager, clock.now_ms())
    assert not disk.exists(f"/data/{name}")
    manager.release()
    disk.kill()
    assert manager_on(disk).logs[TP].log_start_offset == 0, "no checkpoint of the old log hits the new one"


def test_logs_pending_deletion_are_removed_after_a_restart() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    manager.get_or_create(TP)
    manager.delete(TP)
    manager.clean_shutdown()
    again = manager_on(disk)
    remove_due_files(again, NOW_MS)
    assert [entry.name for entry in disk.list("/data") if entry.is_directory] == []


def test_retention_and_flushes_go_over_all_logs() -> None:
    disk = SimFiles()
    config = LogConfig(segment_bytes=100, retention_ms=10, file_delete_delay_ms=0)
    manager = manager_on(disk, default_config=config)
    for partition in range(3):
        produce(manager.get_or_create(TopicPartition("orders", partition)), 4)
    plans = list(manager.plan_flushes(NOW_MS))
    assert len(plans) == 3
    for log, plan in plans:
        plan.run()
        log.flushed(plan, NOW_MS)
    assert list(manager.plan_flushes(NOW_MS)) == []
    assert manager.apply_retention(NOW_MS + 11, lambda tp: tp.partition) == 3
    assert len(manager.plan_removals(NOW_MS + 11)) > 3


def created(manager: LogManager, partitions: int, *, config: LogConfig | None = None) -> CreationPlan:
    """New logs of a topic, created as in a thread."""
    wanted = [NewLog(TopicPartition("orders", number), config or LogConfig()) for number in range(partitions)]
    plan = manager.creation.plan(wanted)
    plan.run()
    manager.creation.take(plan)
    return plan


def test_logs_created_in_a_thread_are_spread_and_adopted_with_the_present_configuration() -> None:
    disk = SimFiles()
    manager = manager_on(disk, "/a", "/b")
    logs = created(manager, 4).created
    assert [log.log_directory.path for log in logs] == ["/a", "/b", "/a", "/b"]
    config = LogConfig(segment_bytes=12_345)
    operations = disk.operations
    assert [manager.get_or_create(log.topic_partition, config=config) for log in logs] == logs
    assert {log.config for log in logs} == {config}
    assert disk.operations == operations


def test_a_log_whose_directory_changed_while_it_was_created_is_created_again() -> None:
    disk = SimFiles()
    manager = manager_on(disk, "/a", "/b")
    created(manager, 1)
    manager.futures.prefer(TopicPartition("orders", 0), "/b")
    assert manager.get_or_create(TopicPartition("orders", 0)).log_directory.path == "/b"
    assert not disk.exists("/a/orders-0")
    manager.clean_shutdown()
    assert set(manager_on(disk, "/a", "/b").logs) == {TopicPartition("orders", 0)}


def test_a_created_log_that_was_not_adopted_is_opened_when_it_is_needed() -> None:
    disk = SimFiles()
    manager = manager_on(disk, "/a")
    created(manager, 1)
    manager.creation.discard()
    log = manager.get_or_create(TopicPartition("orders", 0))
    produce(log, 3)
    assert not created(manager, 1).created, "it exists"
    assert manager.get_or_create(TopicPartition("orders", 0)).log_end_offset == 3


def test_a_failed_creation_takes_its_directory_offline_and_another_one_is_used() -> None:
    disk = SimFiles()
    manager = manager_on(disk, "/a", "/b")
    plan = manager.creation.plan([NewLog(TopicPartition("orders", 0), LogConfig())])
    disk.fail_at(3)
    plan.run()
    disk.fail_at(None)
    manager.creation.take(plan)
    assert [state.path for state in manager.online_directories] == ["/b"]
    assert manager.get_or_create(TopicPartition("orders", 0)).log_directory.path == "/b"


def test_a_directory_that_was_removed_or_unmounted_goes_offline_and_is_not_created_again() -> None:
    disk = SimFiles()
    manager = manager_on(disk, "/a", "/b", "/c")
    for directory in ("/a", "/b"):
        disk.remove_tree(directory)
    disk.make_directory("/b")  # The mount point of a file system that was unmounted is empty.
    assert manager.get_or_create(TopicPartition("orders", 0)).log_directory.path == "/c"
    assert [state.path for state in manager.online_directories] == ["/c"]
    assert not disk.exists("/a")
    assert disk.list("/b") == []
    disk.remove_tree("/c")
    manager.checkpoints.write_high_watermarks({TopicPartition("orders", 0): 0})
    assert manager.online_directories == []
