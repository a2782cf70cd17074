"""`kctl tables maintain`: rows stay exact, and what no snapshot, version or record of a batch uses is removed."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import UsageError
from kctl.tables.compaction.bins import MaintainedStep
from kctl.tables.compaction.maintenance import MaintainRequest, maintain_export
from kctl.tables.exec.selection.column_layout import ColumnLayout
from kctl.tables.exec.targets.files import DiskFiles, Files
from kctl.tables.formats import iceberg
from kctl.tables.formats.iceberg_catalogs import MAX_AGE_MS, MIN_SNAPSHOTS
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans import following
from kctl.tables.plans.following import FollowState
from tests.unit.spark.changing_topic import CompactedTopic, read_rows, read_state, table_of
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import START_MS, Beginning, Cluster, run
from tests.unit.spark.stepped_port import crashing
from tests.unit.spark.test_current_state import upsert
from tests.unit.spark.test_tables import stepped_commits
from tests.unit.spark.test_verification import verify

TABLES = pytest.mark.parametrize("kind", [TableKind.ICEBERG, TableKind.DELTA])
HOUR_MS = 3_600_000
AHEAD_MS = 100 * 24 * HOUR_MS


class LaterClock:
    """A clock that is a hundred days ahead, so that all files are old."""

    def __init__(self, ahead_ms: int = AHEAD_MS) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic_ms(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def snapshots_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tables keep two snapshots, and exports expire none."""
    monkeypatch.delitem(iceberg.CREATED, MAX_AGE_MS)
    monkeypatch.setitem(iceberg.CREATED, MIN_SNAPSHOTS, "2")


def maintain(
    folder: Path, *, files: Files | None = None, ahead_ms: int = AHEAD_MS, **more: Any
) -> list[MaintainedStep]:
    request = MaintainRequest(**({"target_bytes": 1 << 20, "keep_ms": 24 * HOUR_MS} | more))
    return maintain_export(request, files or DiskFiles(folder), LaterClock(ahead_ms))


def exported(folder: Path, kind: TableKind, batches: int = 4) -> Cluster:
    cluster = Cluster(1)
    for _ in range(batches):
        cluster.append(0, 5)
        run(cluster, folder, table=TableOptions(kind=kind))
    return cluster


def offsets(folder: Path, kind: TableKind) -> list[int]:
    return sorted(row["offset"] for row in read_rows(folder, TableOptions(kind=kind)))


def data_files(folder: Path) -> set[str]:
    return {path.relative_to(folder / "orders").as_posix() for path in folder.glob("orders/data/*/*.parquet")}


def done(steps: list[MaintainedStep]) -> dict[str, int]:
    return {step.step: step.removed for step in steps if step.removed}


@TABLES
@pytest.mark.long
def test_files_are_merged_and_what_was_replaced_is_removed(tmp_path: Path, kind: TableKind) -> None:
    cluster = exported(tmp_path, kind)
    before = data_files(tmp_path)
    assert done(maintain(tmp_path, is_dry_run=True))["merge files"] == 3
    assert data_files(tmp_path) == before
    maintain(tmp_path)
    found = maintain(tmp_path)
    assert "merge files" not in done(found)
    cluster.append(0, 3)
    run(cluster, tmp_path, table=TableOptions(kind=kind))
    maintain(tmp_path)
    maintain(tmp_path)
    assert offsets(tmp_path, kind) == list(range(23))
    assert not before & data_files(tmp_path)
    assert verify(cluster, tmp_path).is_equal
    if kind is TableKind.ICEBERG:
        with iceberg.default_catalog(tmp_path) as catalog:
            assert len(catalog.load_table(("kafka", "orders")).snapshots()) == 2


@TABLES
@pytest.mark.long
def test_what_is_young_or_may_be_published_yet_stays(tmp_path: Path, kind: TableKind) -> None:
    exported(tmp_path, kind)
    data = tmp_path / "orders" / "data"
    some = next(data.glob("*/*.parquet"))
    kept = [
        data / "000000000009" / "next+p00000000.parquet",
        data / "000000000001" / "note.txt",
        tmp_path / "x.parquet",
    ]
    orphan = data / "000000000001" / "orphan+p00000000.parquet"
    for path in (*kept, orphan):
        path.parent.mkdir(exist_ok=True)
        shutil.copy(some, path)
    maintain(tmp_path, ahead_ms=0)
    assert orphan.exists()
    steps = maintain(tmp_path, is_dry_run=True)
    assert orphan.exists()
    assert any(step.step == "remove unused files" and step.removed for step in steps)
    maintain(tmp_path)
    assert not orphan.exists()
    assert all(path.exists() for path in kept)
    assert offsets(tmp_path, kind) == list(range(20))


@TABLES
@pytest.mark.long
def test_a_crash_at_any_step_leaves_the_rows(tmp_path: Path, kind: TableKind) -> None:
    def begin(folder: Path) -> Cluster:
        cluster = exported(folder, kind)
        maintain(folder)
        cluster.append(0, 6)
        run(cluster, folder, table=TableOptions(kind=kind))
        return cluster

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1, 5):
        cluster = beginning.restored()
        files = crashing(DiskFiles(folder), step)
        try:
            with stepped_commits(files):
                maintain(folder, files=files)
        except Crash:
            pass
        else:
            break
        assert offsets(folder, kind) == list(range(26))
        cluster.append(0, 2)
        run(cluster, folder, table=TableOptions(kind=kind))
        maintain(folder)
        assert offsets(folder, kind) == list(range(28))
        assert verify(cluster, folder).is_equal
    assert step > 5


@TABLES
@pytest.mark.long
def test_old_rows_are_removed_with_their_files(tmp_path: Path, kind: TableKind) -> None:
    cluster = Cluster(1)
    cluster.hours_per_offset = 24
    table = TableOptions(kind=kind, layout=ColumnLayout(rename=(("timestamp", "sent_at"),)))
    for _ in range(4):
        cluster.append(0, 5)
        run(cluster, tmp_path, table=table)
    ahead = START_MS + 12 * 24 * HOUR_MS - time.time_ns() // 1_000_000
    assert done(maintain(tmp_path, ahead_ms=ahead, rows_ms=24 * HOUR_MS, is_dry_run=True))["delete rows"] == 2
    found = done(maintain(tmp_path, ahead_ms=ahead, rows_ms=24 * HOUR_MS))
    assert found["delete rows"] == 2
    # The file with offsets 10 to 14 has a row that is not older than a day.
    assert offsets(tmp_path, kind) == list(range(10, 20))
    cluster.append(0, 5)
    run(cluster, tmp_path, table=table)
    assert offsets(tmp_path, kind) == list(range(10, 25))
    assert verify(cluster, tmp_path).is_equal


def test_folders_and_current_states_keep_their_rows(tmp_path: Path) -> None:
    exported(tmp_path / "folder", TableKind.PARQUET)
    topic = CompactedTopic(seed=2)
    topic.append(0, 20)
    table = table_of(TableKind.DELTA)
    for _ in range(3):
        upsert(topic, tmp_path / "state", table)
        topic.append(0, 9)
    topic.ends[0] -= 9
    for folder in ("folder", "state"):
        with pytest.raises(UsageError, match="--delete-rows-after is an option of Iceberg and Delta tables"):
            maintain(tmp_path / folder, rows_ms=HOUR_MS)
    assert done(maintain(tmp_path / "folder")) == {"merge files": 3}
    assert len(list((tmp_path / "folder").glob("orders/*.parquet"))) == 1
    assert done(maintain(tmp_path / "state")).keys() == {"remove unused files"}
    assert read_state(tmp_path / "state", table) == topic.state()


def test_files_of_a_commit_that_was_interrupted_are_not_removed(tmp_path: Path) -> None:
    """The record of a batch names files that no version has yet, and which the next run publishes."""
    cluster = exported(tmp_path, TableKind.DELTA, 2)
    cluster.append(0, 4)
    copy = tmp_path.with_name(f"{tmp_path.name}-log")
    shutil.copytree(tmp_path / "orders" / "_delta_log", copy)
    run(cluster, tmp_path, table=TableOptions(kind=TableKind.DELTA))
    shutil.rmtree(tmp_path / "orders" / "_delta_log")
    shutil.copytree(copy, tmp_path / "orders" / "_delta_log")
    maintain(tmp_path)
    run(cluster, tmp_path, table=TableOptions(kind=TableKind.DELTA))
    assert offsets(tmp_path, TableKind.DELTA) == list(range(14))


def test_maintenance_is_due_after_its_time_and_not_after_a_failed_round() -> None:
    state = following.started(FollowState(every_ms=1000), 5_000)
    assert not following.is_maintenance_due(state, 3_000, 7_999)
    assert following.is_maintenance_due(state, 3_000, 8_000)
    later = following.maintained(following.started(state, 8_000), 8_500)
    assert not following.is_maintenance_due(later, 3_000, 11_499)
    assert not following.is_maintenance_due(following.failed(later, "no broker", 12_000), 3_000, 12_000)


def test_the_age_of_a_file_is_that_of_its_last_modification(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    os.utime(tmp_path / "a", ns=(0, 5_123_000_000))
    assert DiskFiles(tmp_path).modified_ms("a") == 5_123
    assert DiskFiles(tmp_path).modified_ms("b") is None
