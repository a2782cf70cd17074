"""Loading of the log directories at the start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kctl.errors import ConfigError, LogDirFailure
from kctl.model import TopicPartition
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.manager_builder import TP, manager_on, produce


def test_a_partition_in_two_directories_is_refused() -> None:
    disk = SimFiles()
    disk.make_directory("/one/orders-0")
    disk.make_directory("/two/orders-0")
    with pytest.raises(ConfigError, match="orders-0"):
        manager_on(disk, "/one", "/two")


@pytest.mark.parametrize("with_threads", [False, True])
def test_all_logs_are_loaded(with_threads: bool) -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    for partition in range(20):
        produce(manager.get_or_create(TopicPartition("orders-x", partition)), partition)
    manager.clean_shutdown({TopicPartition("orders-x", 7): 5})
    with ThreadPoolExecutor(2) as executor:
        again = manager_on(disk, executor=executor if with_threads else None)
        assert {tp.partition: log.log_end_offset for tp, log in again.logs.items()} == {n: n for n in range(20)}
        assert again.high_watermarks == {TopicPartition("orders-x", 7): 5}


def test_unknown_directories_are_ignored() -> None:
    disk = SimFiles()
    for name in ("nodash", "orders-x", "__cluster_metadata-0", "lost+found", f"orders-1.{'0' * 32}-future", "-5"):
        disk.make_directory(f"/data/{name}")
    manager = manager_on(disk)
    assert dict(manager.logs) == {}
    assert len([entry for entry in disk.list("/data") if entry.is_directory]) == 6


def test_the_clean_shutdown_file_is_absent_while_the_broker_runs() -> None:
    disk = SimFiles()
    manager = manager_on(disk)
    manager.get_or_create(TP)
    manager.clean_shutdown()
    assert disk.exists("/data/.kafka_cleanshutdown")
    manager_on(disk)
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_directory_that_cannot_be_used_is_offline_from_the_start() -> None:
    disk = SimFiles()
    disk.fail_at(1)
    with pytest.raises(LogDirFailure, match="/data"):
        manager_on(disk)


def test_an_unusable_copy_is_ignored() -> None:
    disk = SimFiles()
    first, second = (f"orders-0.{digit * 32}-future" for digit in "01")
    for path in ("/one/orders-0", f"/one/{first}", f"/two/{second}", f"/three/{first}"):
        disk.make_directory(path)
    manager = manager_on(disk, "/one", "/two", "/three")
    assert manager.logs[TP].directory == "/one/orders-0"
    assert [copy.directory for copy in manager.futures.logs.values()] in ([f"/two/{second}"], [])
    assert disk.exists(f"/three/{first}")
    assert disk.exists(f"/one/{first}")


def test_the_replaced_log_of_a_partition_in_two_directories_is_removed() -> None:
    for marked, log_dirs in (("/one", ("/one", "/two")), ("/two", ("/one", "/two")), ("/one", ("/two", "/one"))):
        disk = SimFiles()
        disk.make_directory("/one/orders-0")
        disk.make_directory("/two/orders-0")
        disk.write_atomically(f"{marked}/orders-0/replaced", b"/elsewhere\n")
        manager = manager_on(disk, *log_dirs)
        assert manager.logs[TP].log_directory.path != marked
        assert not disk.exists(f"{marked}/orders-0")
