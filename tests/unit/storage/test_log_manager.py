"""All logs of a broker: directories, identity, checkpoints, deletion, start and stop."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from kctl.errors import ApiError, ConfigError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.config import LogConfig
from kctl.storage.log import Log
from kctl.storage.log_directories import LogDirectoryLocked
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.log_builder import NOW_MS, read_records

TP = TopicPartition("orders", 0)
CLUSTER = "d0053poFTbGwSWThjV1DEg"


def manager_on(disk: SimFiles, *log_dirs: str, clock: ManualClock | None = None, **more: object) -> LogManager:
    manager = LogManager(
        log_dirs or ["/data"],
        files=disk,
        clock=clock or ManualClock(start_ms=NOW_MS),
        random=random.Random(1),
        **more,  # type: ignore[arg-type]
    )
    manager.load()
    return manager


def produce(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(build_batch([Record(0, NOW_MS, b"k", b"v")]), leader_epoch=0, now_ms=NOW_MS)


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
def test_a_directory_that_tells_nonsense_of_itself_is_refused(text: bytes) -> None:
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


def test_a_partition_in_two_directories_is_refused() -> None:
    disk = SimFiles()
    disk.make_directory("/one/orders-0")
    disk.make_directory("/two/orders-0")
    with pytest.raises(ConfigError, match="orders-0"):
        manager_on(disk, "/one", "/two")


def test_new_logs_go_where_the_fewest_are() -> None:
    manager = manager_on(SimFiles(), "/one", "/two", "/three")
    for partition in range(9):
        manager.get_or_create(TopicPartition("orders", partition))
    counts = [log.log_directory.path for log in manager.logs.values()]
    assert {at: counts.count(at) for at in counts} == {"/one": 3, "/two": 3, "/three": 3}


@pytest.mark.parametrize("with_threads", [False, True])
def test_all_logs_come_back(with_threads: bool) -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    for partition in range(20):
        produce(manager.get_or_create(TopicPartition("orders-x", partition)), partition)
    manager.clean_shutdown({TopicPartition("orders-x", 7): 5})
    with ThreadPoolExecutor(2) as executor:
        again = manager_on(disk, executor=executor if with_threads else None)
        assert {tp.partition: log.log_end_offset for tp, log in again.logs.items()} == {n: n for n in range(20)}
        assert again.high_watermarks == {TopicPartition("orders-x", 7): 5}


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
    manager.remove_due_files(clock.now_ms())
    assert disk.exists(f"/data/{name}")
    clock.advance(1000)
    manager.remove_due_files(clock.now_ms())
    assert not disk.exists(f"/data/{name}")
    manager.release()
    disk.kill()
    assert manager_on(disk).logs[TP].log_start_offset == 0, "no checkpoint of the old log hits the new one"


def test_what_waited_for_removal_is_removed_after_a_restart() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    manager.get_or_create(TP)
    manager.delete(TP)
    manager.clean_shutdown()
    again = manager_on(disk)
    again.remove_due_files(NOW_MS)
    assert [entry.name for entry in disk.list("/data") if entry.is_directory] == []


def test_strange_directories_are_left_alone() -> None:
    disk = SimFiles()
    for name in ("nodash", "orders-x", "__cluster_metadata-0", "lost+found", f"orders-1.{'0' * 32}-future", "-5"):
        disk.make_directory(f"/data/{name}")
    manager = manager_on(disk)
    assert dict(manager.logs) == {}
    assert len([entry for entry in disk.list("/data") if entry.is_directory]) == 6


DAMAGE = pytest.mark.parametrize(
    "text", [b"0\n1\n", b"7\n0\n", b"0\n1\norders zero 5\n", b"0\n1\norders 0\n", b"\xff", b"\0" * 20]
)


@DAMAGE
@pytest.mark.parametrize("name", ["recovery-point", "cleaner"])
def test_a_damaged_checkpoint_of_what_can_be_found_out_again_costs_time_but_no_records(name: str, text: bytes) -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    produce(manager.get_or_create(TP), 5)
    manager.clean_shutdown({TP: 5})
    disk.write_atomically(f"/data/{name}-offset-checkpoint", text)
    again = manager_on(disk)
    assert len(read_records(again.logs[TP], 0)) == 5


@DAMAGE
@pytest.mark.parametrize("name", ["replication", "log-start"])
def test_a_damaged_checkpoint_of_what_nothing_else_says_takes_its_directory_offline(
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
    assert line.startswith(f"Log directory /one goes offline: {path} at position ")
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


def test_a_broker_without_a_directory_whose_checkpoints_can_be_believed_does_not_start() -> None:
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


def test_checkpoints_say_what_segments_do_not() -> None:
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


def test_a_directory_that_cannot_be_used_is_offline_from_the_start() -> None:
    disk = SimFiles()
    disk.fail_at(1)
    with pytest.raises(LogDirFailure, match="/data"):
        manager_on(disk)


def test_the_clean_shutdown_mark_is_gone_while_the_broker_runs() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    manager.get_or_create(TP)
    manager.clean_shutdown()
    assert disk.exists("/data/.kafka_cleanshutdown")
    manager_on(disk)
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_retention_and_flushes_go_over_all_logs() -> None:
    disk = SimFiles()
    config = LogConfig(segment_bytes=100, retention_ms=10, file_delete_delay_ms=0)
    manager = manager_on(disk, default_config=config)
    for partition in range(3):
        produce(manager.get_or_create(TopicPartition("orders", partition)), 4)
    plans = manager.plan_flushes(NOW_MS)
    assert len(plans) == 3
    for log, plan in plans:
        plan.run()
        log.flushed(plan, NOW_MS)
    assert manager.plan_flushes(NOW_MS) == []
    assert manager.apply_retention(NOW_MS + 11, lambda tp: tp.partition) == 3
    assert len(manager.plan_removals(NOW_MS + 11)) > 3


def test_a_copy_that_is_of_no_use_is_left_alone() -> None:
    disk = SimFiles()
    first, second = (f"orders-0.{digit * 32}-future" for digit in "01")
    for path in ("/one/orders-0", f"/one/{first}", f"/two/{second}", f"/three/{first}"):
        disk.make_directory(path)
    manager = manager_on(disk, "/one", "/two", "/three")
    assert manager.logs[TP].directory == "/one/orders-0"
    assert [copy.directory for copy in manager.futures.logs.values()] in ([f"/two/{second}"], [])
    assert disk.exists(f"/three/{first}")
    assert disk.exists(f"/one/{first}")


def test_of_a_partition_in_two_directories_the_one_that_was_replaced_goes() -> None:
    for marked, log_dirs in (("/one", ("/one", "/two")), ("/two", ("/one", "/two")), ("/one", ("/two", "/one"))):
        disk = SimFiles()
        disk.make_directory("/one/orders-0")
        disk.make_directory("/two/orders-0")
        disk.write_atomically(f"{marked}/orders-0/replaced", b"/elsewhere\n")
        manager = manager_on(disk, *log_dirs)
        assert manager.logs[TP].log_directory.path != marked
        assert not disk.exists(f"{marked}/orders-0")


class SyncedFiles(SimFiles):
    """Notes what is synced."""

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
    """Most logs of a broker with thousands of replicas have not changed: syncing them took longer than all else."""
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
    assert disk.synced_of(elected) == {"leader-epoch-checkpoint", ""}
    assert disk.synced_of(written) >= {f"{0:020}.log", f"{0:020}.index", f"{0:020}.timeindex", f"{4:020}.snapshot", ""}


def test_a_stop_syncs_the_indexes_of_a_log_that_was_cut() -> None:
    """Else the entries of what is gone could be there again after a power failure."""
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


def test_a_stop_at_which_one_log_cannot_be_synced_leaves_no_mark_and_releases_all() -> None:
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
