"""Which log directories share a file system, and free space that is counted once."""

from __future__ import annotations

import pytest

from kctl.admin.placement.balance import plan_disks
from kctl.admin.placement.log_dirs import LogDir, LogDirReplica, file_systems_of, usable_bytes
from kctl.errors import ErrorCode, KctlError
from kctl.model import TopicPartition

GB = 1 << 30


def log_dir(broker: int, path: str, free: int | None, total: int | None = 1000 * GB, *sizes: int) -> LogDir:
    replicas = tuple(LogDirReplica(TopicPartition(path.strip("/"), at), size, 0) for at, size in enumerate(sizes))
    return LogDir(broker, path, ErrorCode.NONE, replicas, free, total)


def test_directories_of_one_broker_with_the_same_size_and_free_space_share_a_file_system() -> None:
    for what, found, paths, free in (
        ("equal", [log_dir(1, "/a", 9 * GB), log_dir(1, "/b", 9 * GB)], [("/a", "/b")], {1: 9 * GB}),
        (
            "written to in between, around any rounding",
            [log_dir(1, "/a", 64 << 20), log_dir(1, "/b", (64 << 20) - 1), log_dir(1, "/c", (64 << 20) + 1)],
            [("/a", "/b", "/c")],
            {1: (64 << 20) - 1},
        ),
        ("two disks", [log_dir(1, "/a", 9 * GB), log_dir(1, "/b", 8 * GB)], [("/a",), ("/b",)], {1: 17 * GB}),
        ("two sizes", [log_dir(1, "/a", GB, 5 * GB), log_dir(1, "/b", GB, 6 * GB)], [("/a",), ("/b",)], {1: 2 * GB}),
        ("small disks", [log_dir(1, "/a", 900, 1000), log_dir(1, "/b", 800, 1000)], [("/a",), ("/b",)], {1: 1700}),
        ("two brokers", [log_dir(1, "/a", GB), log_dir(2, "/a", GB)], [("/a",), ("/a",)], {1: GB, 2: GB}),
        ("not reported by all", [log_dir(1, "/a", GB), log_dir(1, "/b", None, None)], [("/a",)], {}),
        (
            "one is offline",
            [log_dir(1, "/a", GB), LogDir(1, "/b", ErrorCode.KAFKA_STORAGE_ERROR)],
            [("/a",)],
            {1: GB},
        ),
    ):
        assert [one.paths for one in file_systems_of(found)] == paths, what
        assert usable_bytes(found) == free, what


def test_directories_that_share_a_file_system_receive_no_more_than_is_free_on_it() -> None:
    """Each of two directories has space for one of the replicas, and they have it together."""
    drained = log_dir(1, "/from", 500 * GB, 2000 * GB, 6 * GB, 6 * GB)
    moved = {(1, replica.tp) for replica in drained.replicas}
    shared = [drained, log_dir(1, "/a", 7 * GB), log_dir(1, "/b", 7 * GB)]
    with pytest.raises(KctlError, match="no other log directory has space for it"):
        plan_disks(shared, drained=[(1, "/from")], movable=moved)
    apart = [drained, log_dir(1, "/a", 7 * GB), log_dir(1, "/b", 9 * GB)]
    assert len(plan_disks(apart, drained=[(1, "/from")], movable=moved)) == 2
