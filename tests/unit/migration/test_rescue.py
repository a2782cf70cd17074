"""Logs that Kafka 4 has renamed to -stray get their names back, and nothing is deleted."""

from __future__ import annotations

import pytest

from kctl.migration.rescue import plan_rescue, rescue
from kctl.testing.sim_files import SimFiles
from tests.unit.migration.stored_cluster import CLUSTER_ID, contents, disk, inventories

STRAY = f".{'0' * 32}-stray"


def _strayed() -> SimFiles:
    """The disk after 4.x was started on it."""
    files = disk()
    for name in ("orders-0", "old-0"):
        files.rename(f"/a/{name}", f"/a/{name}{STRAY}")
    files.make_directory("/a/__cluster_metadata-0")
    files.write_atomically("/a/__cluster_metadata-0/quorum-state", b"{}")
    files.write_atomically("/a/meta.properties", f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n".encode())
    return files


def test_logs_and_the_identity_are_put_back_and_the_metadata_log_is_kept() -> None:
    before, files = disk(), _strayed()
    rescue(files, plan_rescue(files, "/a"))
    after = contents(files)
    assert {path for path in after if path.startswith("/a/") and "rescued" not in path} == {
        path for path in contents(before) if path.startswith("/a/")
    }
    assert after["/a/kctl-rescued.__cluster_metadata-0.quorum-state"] == b"{}"
    assert [node.node_id for node in inventories(files)] == [1, 2]
    assert plan_rescue(files, "/a") == []


def test_a_rescue_is_completed_after_an_interruption_at_each_operation() -> None:
    files = _strayed()
    start = files.operations
    rescue(files, plan_rescue(files, "/a"))
    count = files.operations - start
    expected = contents(files)
    assert count > 10
    for number in range(1, count + 1):
        files = _strayed()
        files.fail_at(number)
        with pytest.raises(OSError):
            rescue(files, plan_rescue(files, "/a"))
        files.kill()
        rescue(files, plan_rescue(files, "/a"))
        assert {path: data for path, data in contents(files).items() if not path.endswith(".tmp")} == expected, number


def test_a_partition_that_4_has_created_again_is_left() -> None:
    files = _strayed()
    files.make_directory("/a/orders-0")
    before = contents(files)
    renamings = plan_rescue(files, "/a")
    problems = {renaming.name: renaming.problem for renaming in renamings if renaming.problem}
    assert problems.keys() == {f"orders-0{STRAY}"}
    assert "orders-0 exists" in str(problems.values())
    rescue(files, renamings)
    assert f"/a/orders-0{STRAY}/{'0' * 20}.log" in contents(files)
    assert set(before.values()) <= set(contents(files).values())


def test_a_directory_without_stray_logs_is_left_as_it_is() -> None:
    assert plan_rescue(disk(), "/a") == []
