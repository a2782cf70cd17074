"""The files in the folder are compared with the commit log before an export; a lost log is rebuilt on request."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from kctl.errors import ApiError, ClusterUnreachable
from kctl.tables.commits.commit_log import BrokenExportFolder
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.engines.session import SparkFailed
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports.export import Origin
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import (
    SILENT,
    Cluster,
    assert_exact,
    committed_files,
    expected_values,
    exported_values,
    exporter,
    filled,
    run,
)


def small_partitions() -> Cluster:
    """Small enough to share a file."""
    cluster = Cluster(partitions=4)
    cluster.bytes_per_offset = 1
    for partition in range(4):
        cluster.append(partition, 2)
    return cluster


def without_log(folder: Path) -> None:
    shutil.rmtree(folder / "_kctl")
    (folder / "_SUCCESS").unlink()


def data_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


def test_files_without_a_commit_log_are_not_exported_again(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    without_log(tmp_path)
    before = data_files(tmp_path)
    with pytest.raises(UnknownFiles, match=r"no commit names orders/.* \(and 1 more\).*--adopt"):
        run(cluster, tmp_path)
    with pytest.raises(UnknownFiles):
        exporter(cluster, tmp_path).plan()
    assert data_files(tmp_path) == before
    assert not (tmp_path / "_kctl").exists()


def test_a_log_that_is_older_than_the_files_is_refused(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    shutil.copytree(tmp_path / "_kctl", tmp_path / "older")
    cluster.append(0, 5)
    run(cluster, tmp_path)
    shutil.rmtree(tmp_path / "_kctl")
    (tmp_path / "older").rename(tmp_path / "_kctl")
    with pytest.raises(UnknownFiles, match="00012-00000000000000000017"):
        run(cluster, tmp_path)
    with pytest.raises(UnknownFiles, match="older than the files"):
        run(cluster, tmp_path, adopts=True)


def test_a_new_topic_is_not_exported_beside_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "part-0.parquet").write_bytes(b"not ours")
    with pytest.raises(UnknownFiles, match=r"orders/part-0\.parquet"):
        run(filled(), tmp_path)
    with pytest.raises(UnknownFiles, match=r"part-0\.parquet is no Parquet file"):
        run(filled(), tmp_path, adopts=True)


@pytest.mark.parametrize("make_cluster", [filled, small_partitions])
def test_adopting_rebuilds_the_log_from_the_files_and_goes_on(tmp_path: Path, make_cluster: object) -> None:
    cluster: Cluster = make_cluster()  # type: ignore[operator]
    for _ in range(3):
        run(cluster, tmp_path)
        cluster.append(0, 5)
        cluster.append(1, 1)
    inodes = {path: path.stat().st_ino for path in tmp_path.rglob("*.parquet")}
    without_log(tmp_path)
    report = run(cluster, tmp_path, adopts=True)
    assert [batch.origin for batch in report.batches] == [Origin.ADOPTED, Origin.NEW]
    assert_exact(cluster, tmp_path)
    assert {path: path.stat().st_ino for path in inodes} == inodes
    cluster.append(1, 4)
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)


def test_planning_an_adoption_shows_the_files_that_are_there(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    without_log(tmp_path)
    cluster.append(0, 5)
    plan, _, _ = exporter(cluster, tmp_path, adopts=True).plan()
    assert plan is not None
    assert set(plan.shares()) == data_files(tmp_path)


def test_adopting_reads_offsets_again_that_are_in_no_file(tmp_path: Path) -> None:
    cluster = filled()
    for _ in range(3):
        run(cluster, tmp_path)
        cluster.append(0, 5)
    without_log(tmp_path)
    (tmp_path / "orders" / "orders+0+00000000000000000012-00000000000000000017.parquet").unlink()
    run(cluster, tmp_path, adopts=True)
    assert_exact(cluster, tmp_path)


def test_adopting_takes_over_a_topic_that_was_created_again(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.topic_id = UUID(int=2)
    run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    without_log(tmp_path)
    report = run(cluster, tmp_path, adopts=True)
    assert [batch.origin for batch in report.batches] == [Origin.ADOPTED, Origin.ADOPTED]
    cluster.append(0, 5)
    run(cluster, tmp_path)
    assert data_files(tmp_path) == set(committed_files(tmp_path))
    assert len(exported_values(tmp_path)) == 2 * 19 + 5


def test_an_interrupted_adoption_is_finished_by_the_next_run(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    without_log(tmp_path)

    class CrashAtCommit(DiskFiles):
        def create(self, path: str, data: bytes) -> bool:
            if path.startswith("_kctl/commits/"):
                raise Crash
            return super().create(path, data)

    with pytest.raises(Crash):
        exporter(cluster, tmp_path, files=CrashAtCommit(tmp_path), adopts=True).run(SILENT)
    cluster.append(0, 5)
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)


def test_files_of_two_exports_are_not_adopted(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path / "a")
    cluster.append(0, 5)
    run(cluster, tmp_path / "b")
    shutil.copytree(tmp_path / "a" / "orders", tmp_path / "b" / "orders", dirs_exist_ok=True)
    without_log(tmp_path / "b")
    with pytest.raises(BrokenExportFolder, match="hold the same offsets"):
        run(cluster, tmp_path / "b", adopts=True)


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    run(cluster, tmp_path)
    name = "orders/orders+1+00000000000000000000-00000000000000000007.parquet"
    (tmp_path / name).rename(tmp_path / "kept")
    for attempt in (lambda: run(cluster, tmp_path), lambda: exporter(cluster, tmp_path).plan()):
        with pytest.raises(DataLoss) as raised:
            attempt()
        assert str(raised.value) == f"{name}, which batch 0 wrote, is gone: restore it from a backup"
    cluster.append(0, 5)
    report = run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    assert report.warnings == [str(raised.value)]
    (tmp_path / "kept").rename(tmp_path / name)
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)


def test_only_the_last_commit_is_read_while_all_files_are_there(tmp_path: Path) -> None:
    cluster = filled()
    for _ in range(5):
        run(cluster, tmp_path)
        cluster.append(0, 5)

    class CountingFiles(DiskFiles):
        reads: list[str] = []  # noqa: RUF012 - one instance

        def read(self, path: str) -> bytes:
            self.reads.append(path)
            return super().read(path)

    run(cluster, tmp_path, files=CountingFiles(tmp_path))
    assert [path for path in CountingFiles.reads if "commits" in path] == ["_kctl/commits/000000000004.json"]


def test_exports_of_the_former_layout_go_on(tmp_path: Path) -> None:
    """Version 1 had no summary of the files in its commits, and one range per file."""
    cluster = filled()
    run(cluster, tmp_path)
    commit = tmp_path / "_kctl" / "commits" / "000000000000.json"
    document = json.loads(commit.read_text())
    document["version"] = 1
    del document["all_files"]
    for file in document["files"]:
        (only,) = file.pop("ranges")
        file.update(only)
    commit.write_text(json.dumps(document))
    cluster.append(0, 5)
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)
    (tmp_path / committed_files(tmp_path)[0]).unlink()
    with pytest.raises(DataLoss, match="which batch 0 wrote, is gone"):
        run(cluster, tmp_path)


def test_files_of_a_topic_created_again_in_the_former_layout_stay_where_they_are(tmp_path: Path) -> None:
    """Version 1 kept all incarnations in one folder."""
    cluster = filled()
    run(cluster, tmp_path)
    cluster.topic_id = UUID(int=2)
    run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    newer = f"orders+r1+{cluster.topic_id}"
    commit = tmp_path / "_kctl" / "commits" / "000000000001.json"
    document = json.loads(commit.read_text().replace(f"{newer}/", "orders/"))
    document["version"] = 1
    del document["all_files"]
    commit.write_text(json.dumps(document))
    for path in (tmp_path / newer).iterdir():
        path.rename(tmp_path / "orders" / path.name)
    cluster.append(0, 5)
    run(cluster, tmp_path)
    assert len(exported_values(tmp_path)) == 2 * 19 + 5
    assert [path.name for path in (tmp_path / newer).iterdir()] == [
        "orders+0+00000000000000000012-00000000000000000017+r1.parquet"
    ]


def test_an_offset_occurs_once_in_each_folder_of_a_topic_that_was_created_again(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.topic_id = UUID(int=2)
    run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    assert exported_values(tmp_path / "orders") == expected_values(cluster)
    assert exported_values(tmp_path / f"orders+r1+{cluster.topic_id}") == expected_values(cluster)


@pytest.mark.parametrize("problem", ["is_reachable", "exists", "spark_starts"])
def test_a_run_that_cannot_start_leaves_no_folder_behind(tmp_path: Path, problem: str) -> None:
    cluster = filled()
    setattr(cluster, problem, False)
    with pytest.raises((ClusterUnreachable, ApiError, SparkFailed)):
        run(cluster, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_nothing_is_planned_before_spark_has_started(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.append(0, 5)
    cluster.spark_starts = False
    with pytest.raises(SparkFailed):
        run(cluster, tmp_path)
    assert [path.name for path in (tmp_path / "_kctl" / "plans").iterdir()] == ["000000000000.json"]


@pytest.mark.parametrize("files_are_written", [True, False])
def test_a_plan_whose_topic_was_deleted_meanwhile_does_not_block_the_folder(
    tmp_path: Path, files_are_written: bool
) -> None:
    cluster = filled()
    run(cluster, tmp_path)
    cluster.append(0, 5)
    stop_at = "commits" if files_are_written else "orders"

    class StopsAt(DiskFiles):
        def scratch(self, path: str) -> Path:
            if f"/{path}".split("/")[-2] == stop_at:
                raise Crash
            return super().scratch(path)

    with pytest.raises(Crash):
        exporter(cluster, tmp_path, files=StopsAt(tmp_path)).run(SILENT)
    cluster.exists = False
    if not files_are_written:
        with pytest.raises(DataLoss, match="does not exist any more"):
            run(cluster, tmp_path)
    for _ in range(2):
        with pytest.raises(ApiError, match="topic orders does not exist"):
            run(cluster, tmp_path, on_data_loss=OnDataLoss.WARN)
    assert len(list((tmp_path / "_kctl" / "commits").iterdir())) == 2
    assert len(exported_values(tmp_path)) == (24 if files_are_written else 19)
    cluster.exists = True
    run(cluster, tmp_path)
    assert data_files(tmp_path) == set(committed_files(tmp_path))
