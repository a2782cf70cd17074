"""Snapshots of Iceberg tables that their properties do not keep, and the files that only they use."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.formats import iceberg
from kctl.tables.formats.iceberg_catalogs import EXPIRED_AT_ONCE_MAX, MAX_AGE_MS, MIN_SNAPSHOTS
from kctl.tables.formats.kinds import TableKind, TableOptions
from tests.unit.spark.scene import Cluster, StoppedClock, expected_values, run

ICEBERG = TableOptions(kind=TableKind.ICEBERG)
KEPT = 2


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster whose tables keep two snapshots."""
    monkeypatch.setitem(iceberg.CREATED, MAX_AGE_MS, "0")
    monkeypatch.setitem(iceberg.CREATED, MIN_SNAPSHOTS, str(KEPT))
    return Cluster()


def increments(cluster: Cluster, folder: Path, count: int) -> None:
    for _ in range(count):
        cluster.append(0, 5)
        run(cluster, folder, table=ICEBERG)


@contextlib.contextmanager
def table_in(folder: Path) -> Iterator[Table]:
    with contextlib.closing(iceberg.default_catalog(folder)) as catalog:
        yield catalog.load_table(("kafka", "orders"))


def values(table: Table, snapshot_id: int | None = None) -> list[bytes]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow().column("value").to_pylist())


def on_disk(folder: Path, suffix: str) -> set[str]:
    return {f"file://{path}" for path in (folder / "orders").rglob(f"*{suffix}")}


def used_manifests(table: Table) -> set[str]:
    lists = {snapshot.manifest_list for snapshot in table.snapshots()}
    return lists | {
        manifest.manifest_path for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)
    }


def test_an_export_expires_old_snapshots_and_removes_their_manifests(tmp_path: Path, cluster: Cluster) -> None:
    increments(cluster, tmp_path, 6)
    with table_in(tmp_path) as table:
        assert len(table.snapshots()) == KEPT
        assert values(table) == expected_values(cluster)
        assert on_disk(tmp_path, ".avro") == used_manifests(table)
    assert run(cluster, tmp_path, table=ICEBERG).batches == []


@pytest.mark.long
def test_data_files_that_a_compaction_replaced_are_removed_with_its_snapshot(tmp_path: Path, cluster: Cluster) -> None:
    increments(cluster, tmp_path, 3)
    compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path), StoppedClock())
    assert len(on_disk(tmp_path, ".parquet")) == 4
    increments(cluster, tmp_path, KEPT)
    with table_in(tmp_path) as table:
        assert values(table) == expected_values(cluster)
        named = set(table.inspect.files().column("file_path").to_pylist())
        assert on_disk(tmp_path, ".parquet") == named
        assert on_disk(tmp_path, ".avro") == used_manifests(table)
        assert len(named) == 1 + KEPT


def test_a_file_elsewhere_that_the_metadata_names_is_not_removed(tmp_path: Path, cluster: Cluster) -> None:
    target = tmp_path / "target"
    target.mkdir()
    increments(cluster, target, 1)
    outside = tmp_path / "precious.parquet"
    shutil.copy(next((target / "orders").rglob("*.parquet")), outside)
    with table_in(target) as table:
        table.add_files([f"file://{outside}", f"file://{target}/orders/../../precious.parquet"])
        added = [task.file for task in table.scan().plan_files() if "precious" in task.file.file_path]
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            for file in added:
                overwrite.delete_data_file(file)
    increments(cluster, target, KEPT + 1)
    with table_in(target) as table:
        assert len(table.snapshots()) == KEPT
        assert values(table) == expected_values(cluster)
    assert outside.exists()


def test_what_a_tag_names_can_be_read(tmp_path: Path, cluster: Cluster) -> None:
    increments(cluster, tmp_path, 1)
    with table_in(tmp_path) as table:
        tagged = table.snapshots()[0].snapshot_id
        table.manage_snapshots().create_tag(tagged, "first").commit()
    before = expected_values(cluster)
    increments(cluster, tmp_path, 1)
    compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path), StoppedClock())
    increments(cluster, tmp_path, 4)
    with table_in(tmp_path) as table:
        assert len(table.snapshots()) == KEPT + 1
        assert values(table, tagged) == before
        assert values(table) == expected_values(cluster)


def test_a_table_without_the_property_keeps_all_snapshots(tmp_path: Path, cluster: Cluster) -> None:
    increments(cluster, tmp_path, 1)
    with table_in(tmp_path) as table, table.transaction() as transaction:
        transaction.remove_properties(MAX_AGE_MS)
    increments(cluster, tmp_path, 3)
    with table_in(tmp_path) as table:
        assert len(table.snapshots()) == 4


def test_a_clock_that_was_set_back_leaves_a_table_that_java_can_load(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TableMetadata of Iceberg 1.10 refuses logs whose times go back by more than a minute."""
    monkeypatch.setitem(iceberg.CREATED, MIN_SNAPSHOTS, "6")
    increments(cluster, tmp_path, 1)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 86_400)
    increments(cluster, tmp_path, 2)
    compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path), StoppedClock())
    with table_in(tmp_path) as table:
        snapshots = [entry.timestamp_ms for entry in table.metadata.snapshot_log]
        updates = [entry.timestamp_ms for entry in table.metadata.metadata_log]
        assert len(snapshots) == 4
        for times in ([*snapshots, table.metadata.last_updated_ms], [*updates, table.metadata.last_updated_ms]):
            assert times == sorted(times)


def test_one_commit_expires_a_limited_number(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(iceberg.CREATED, MIN_SNAPSHOTS, "6")
    increments(cluster, tmp_path, 5)
    with table_in(tmp_path) as table, table.transaction() as transaction:
        transaction.set_properties({MIN_SNAPSHOTS: "1"})
    assert EXPIRED_AT_ONCE_MAX > 1
    monkeypatch.setattr("kctl.tables.formats.iceberg_catalogs.EXPIRED_AT_ONCE_MAX", 2)
    increments(cluster, tmp_path, 1)
    with table_in(tmp_path) as table:
        assert len(table.snapshots()) == 4
        assert values(table) == expected_values(cluster)
        assert on_disk(tmp_path, ".avro") == used_manifests(table)


def test_an_increment_does_not_read_the_manifests(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a line per data file, which takes a tenth of a millisecond."""
    increments(cluster, tmp_path, 1)
    monkeypatch.delattr(iceberg.IcebergTable, "_read_sizes")
    increments(cluster, tmp_path, 2)
    with table_in(tmp_path) as table:
        assert values(table) == expected_values(cluster)
