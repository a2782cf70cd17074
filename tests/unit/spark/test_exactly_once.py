"""An export has every record once, after any interruption and with concurrent exporters."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kctl.errors import KctlError
from kctl.tables.commits.commit_log import BrokenExportFolder
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.targets.files import Locked
from kctl.tables.exports.export import Listener, Origin
from kctl.tables.exports.summary import rows_of
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.crashing_files import Crash, CrashingFiles, SteppedFiles, UnlockedFiles
from tests.unit.spark.scene import (
    SILENT,
    Beginning,
    Cluster,
    assert_exact,
    committed_files,
    expected_values,
    exported_values,
    exporter,
    filled,
    run,
    value,
)

pytestmark = pytest.mark.long


def shared() -> Cluster:
    """Two partitions that share a file."""
    cluster = Cluster()
    cluster.bytes_per_offset = 1
    cluster.append(0, 3)
    cluster.append(1, 4)
    return cluster


def test_increments_add_up_to_everything(tmp_path: Path) -> None:
    cluster = filled()
    for count in (0, 3, 10):
        cluster.append(0, count)
        run(cluster, tmp_path)
        assert_exact(cluster, tmp_path)


def test_a_run_without_new_records_writes_nothing(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert run(cluster, tmp_path).batches == []
    assert sorted(tmp_path.rglob("*")) == before


def test_planning_touches_nothing(tmp_path: Path) -> None:
    plan, is_pending, _ = exporter(filled(), tmp_path / "new").plan()
    assert plan is not None
    assert plan.offset_count == 19
    assert not is_pending
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make_cluster", [filled, shared])
@pytest.mark.parametrize("loses_unsynced", [False, True], ids=["process killed", "power cut"])
def test_a_crash_at_any_step_is_recovered_from_by_the_next_run(
    tmp_path: Path, loses_unsynced: bool, make_cluster: Callable[[], Cluster]
) -> None:
    """In the second batch, so that there are files to damage; more records arrive before the recovery."""

    def begin(folder: Path) -> Cluster:
        cluster = make_cluster()
        run(cluster, folder)
        cluster.append(0, 6)
        cluster.append(1, 4 if cluster.bytes_per_offset else 11)
        return cluster

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = CrashingFiles(folder, step)
        files.keep_all()
        try:
            exporter(cluster, folder, files=files).run(SILENT)
        except Crash:
            pass
        else:
            break
        if loses_unsynced:
            files.lose_unsynced()
        cluster.append(1, 4)
        run(cluster, folder)
        assert_exact(cluster, folder)
    assert step > (12 if cluster.bytes_per_offset else 15)


def test_crashes_in_a_row_are_recovered_from(tmp_path: Path) -> None:
    """The recovery crashes too, one step later each time."""
    cluster = filled()
    for step in range(1, 60):
        files = CrashingFiles(tmp_path, step)
        files.keep_all()
        try:
            exporter(cluster, tmp_path, files=files).run(SILENT)
        except Crash:
            files.lose_unsynced()
        cluster.append(step % 2, 1)
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)


def test_an_interrupted_plan_is_carried_out_as_it_was_planned(tmp_path: Path) -> None:
    """A new plan would leave the finished files of the old plan in the folder."""
    cluster = filled()
    planned = _interrupt_before_commit(cluster, tmp_path)
    cluster.append(0, 100)
    report = run(cluster, tmp_path)
    assert [batch.origin for batch in report.batches] == [Origin.INTERRUPTED, Origin.NEW]
    assert {file.path for range_ in report.batches[0].plan.ranges for file in range_.files} == planned
    assert_exact(cluster, tmp_path)


def test_files_that_were_finished_are_not_written_again(tmp_path: Path) -> None:
    cluster = filled()
    paths = _interrupt_before_commit(cluster, tmp_path)
    inodes = {path: (tmp_path / path).stat().st_ino for path in paths}
    report = run(cluster, tmp_path)
    assert all(outcome.is_reused for outcome in report.batches[0].outcomes.values())
    assert {path: (tmp_path / path).stat().st_ino for path in paths} == inodes
    assert sum(outcome.records for outcome in report.batches[0].outcomes.values()) == 19


def test_a_second_exporter_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    cluster = filled()
    refused: list[bool] = []

    def meanwhile(_: object, __: object) -> None:
        with pytest.raises(Locked, match="another export"):
            run(cluster, tmp_path)
        refused.append(True)

    exporter(cluster, tmp_path).run(Listener(meanwhile, lambda progress: None))
    assert refused == [True]
    assert_exact(cluster, tmp_path)


@pytest.mark.parametrize("start", ["new", "settled", "pending"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["second completes", "second is killed"])
def test_without_locks_two_exporters_still_write_every_record_once(tmp_path: Path, start: str, is_killed: bool) -> None:
    """The second exporter runs, completely or up to its commit, while the first is at its n-th step, for every n."""

    def begin(folder: Path) -> Cluster:
        cluster = filled()
        if start == "pending":
            _interrupt_before_commit(cluster, folder)
        elif start == "settled":
            run(cluster, folder)
        cluster.append(0, 9)
        return cluster

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1):
        cluster = beginning.restored()
        second = _SecondExporter(cluster, folder, step, is_killed=is_killed)
        files = UnlockedFiles(folder, second.at_step)
        with contextlib.suppress(KctlError, OSError):  # one of the two may fail with LostRace
            exporter(cluster, folder, files=files, on_data_loss=OnDataLoss.WARN).run(SILENT)
        if not second.has_run:
            break
        run(cluster, folder)
        assert_exact(cluster, folder)
    assert step > 15


class _SecondExporter:
    """Runs when the first exporter reaches a certain operation."""

    def __init__(self, cluster: Cluster, folder: Path, step: int, *, is_killed: bool) -> None:
        self.has_run = False
        self._is_killed = is_killed
        self._cluster = cluster
        self._folder = folder
        self._step = step

    def at_step(self, step: int) -> None:
        if step != self._step:
            return
        self.has_run = True
        self._cluster.append(1, 2)
        files = _CrashAtCommit(self._folder) if self._is_killed else UnlockedFiles(self._folder)
        with contextlib.suppress(Crash):
            exporter(self._cluster, self._folder, files=files).run(SILENT)


def test_files_of_failed_tasks_are_removed_even_without_new_records(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    (tmp_path / "orders" / ".orders+0.parquet.abc.tmp").write_bytes(b"half")
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)


def test_files_of_retried_tasks_are_removed(tmp_path: Path) -> None:
    cluster = filled()

    def leave(*_: object) -> None:
        (tmp_path / "orders").mkdir()
        (tmp_path / "orders" / ".orders+0.parquet.abc.tmp").write_bytes(b"half")

    exporter(cluster, tmp_path).run(Listener(leave, lambda progress: None))
    assert_exact(cluster, tmp_path)


def test_a_failed_task_leaves_the_batch_pending(tmp_path: Path) -> None:
    cluster = filled()
    obstacle = tmp_path / "orders" / "orders+1+00000000000000000000-00000000000000000007.parquet"

    def put_in_the_way(*_: object) -> None:
        obstacle.parent.mkdir()
        obstacle.write_bytes(b"not ours")

    with pytest.raises(KctlError, match="is in the way"):
        exporter(cluster, tmp_path).run(Listener(put_in_the_way, lambda progress: None))
    assert committed_files(tmp_path) == []
    obstacle.unlink()
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)


def test_losses_stop_a_run_before_anything_is_planned(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.append(0, 8)
    cluster.log_starts[0] = 15
    with pytest.raises(DataLoss):
        run(cluster, tmp_path)
    assert len(list((tmp_path / "_kctl" / "plans").iterdir())) == 1
    report = run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    assert report.batches[0].lost == 3
    gone = {b'{"partition": 0, "offset": %d}' % offset for offset in range(12, 15)}
    assert exported_values(tmp_path) == [v for v in expected_values(cluster) if v not in gone]


def test_losses_since_an_interrupted_run_do_not_hold_up_its_other_partitions(tmp_path: Path) -> None:
    """Finished files need no records any more."""
    cluster = filled()
    cluster.append(0, 18)
    cluster.bytes_per_offset = 1
    paths = _interrupt_before_commit(cluster, tmp_path)
    last = max(path for path in paths if "orders+0" in path)
    (tmp_path / last).unlink()
    cluster.log_starts[0] = 20
    assert run(cluster, tmp_path).batches[0].lost == 0

    (tmp_path / "_kctl" / "commits" / "000000000000.json").unlink()
    (tmp_path / last).unlink()
    cluster.log_starts[0] = 21
    report = run(cluster, tmp_path)
    assert isinstance(report.failed["orders"], DataLoss)
    assert str(report.failed["orders"]) == "orders-0: offsets 20 to 20 are gone, the log starts at 21 now"
    assert sorted(committed_files(tmp_path)) == sorted(set(paths) - {last})
    run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    assert exported_values(tmp_path) == sorted(set(expected_values(cluster)) - {value(0, 20)})


def test_losses_while_spark_starts_are_reported_before_the_plan_is_written(tmp_path: Path) -> None:
    cluster = filled()

    def expire() -> None:
        cluster.log_starts[1] = 2

    cluster.on_start = expire
    report = run(cluster, tmp_path)
    assert str(report.failed["orders"]) == "orders-1: offsets 0 to 1 are gone, the log starts at 2 now"
    assert [range_.tp.partition for batch in report.batches for range_ in batch.plan.ranges] == [0]


def test_a_recreated_topic_is_exported_beside_the_former_one(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.topic_id = UUID(int=2)
    with pytest.raises(DataLoss):
        run(cluster, tmp_path)
    run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    assert exported_values(tmp_path) == sorted(2 * expected_values(cluster))


def test_lost_offsets_in_a_shared_file_lose_no_other_records(tmp_path: Path) -> None:
    cluster = shared()
    cluster.gone_after_reads = 1
    report = run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    (batch,) = report.batches
    assert batch.lost == 4
    assert report.warnings == ["orders-1 does not exist any more"]
    assert [row.records for row in rows_of(report)] == [3, 0]
    assert len(exported_values(tmp_path)) == 3


def test_plans_without_their_commits_are_noticed(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.append(0, 5)
    run(cluster, tmp_path)
    for commit in (tmp_path / "_kctl" / "commits").iterdir():
        commit.unlink()
    with pytest.raises(BrokenExportFolder, match=r"commits/000000000000.json is missing"):
        run(cluster, tmp_path)


def test_a_damaged_commit_is_noticed(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    (tmp_path / "_kctl" / "commits" / "000000000000.json").write_text("{}")
    with pytest.raises(BrokenExportFolder, match="not a log entry"):
        run(cluster, tmp_path)


def test_large_partitions_become_several_files(tmp_path: Path) -> None:
    cluster = filled()
    cluster.append(0, 88)
    cluster.bytes_per_offset = 16 << 20
    run(cluster, tmp_path)
    assert len(committed_files(tmp_path)) == 11
    assert_exact(cluster, tmp_path)


def _interrupt_before_commit(cluster: Cluster, folder: Path) -> set[str]:
    """All files are written but not committed; returns their paths."""
    with pytest.raises(Crash):
        exporter(cluster, folder, files=_CrashAtCommit(folder)).run(SILENT)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


class _CrashAtCommit(UnlockedFiles):
    def create(self, path: str, data: bytes) -> bool:
        if path.startswith("_kctl/commits/"):
            raise Crash
        return super().create(path, data)


def test_the_simulated_disk_loses_unsynced_writes(tmp_path: Path) -> None:
    files = SteppedFiles(tmp_path)
    assert files.create("named", b"content")
    assert not files.create("named", b"other")
    (tmp_path / "unsynced").write_bytes(b"x")
    files.lose_unsynced()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"named": b"content"}
