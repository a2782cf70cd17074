"""Data files of any batch are gone or have lost bytes: the next export and `kctl tables status` name them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.client.settings import ClientSettings
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.commits.inventory import Inventory
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.selection.partitioning import DATE, Partitioning
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports.status import State, export_status
from kctl.tables.formats.delta import DeltaLakeTable
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.formats.table import lost_files
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.fake_broker import FakeBroker
from tests.unit.spark.scene import Cluster, expected_values, exported_values, exporter, filled, run

KINDS = [
    TableOptions(),
    TableOptions(is_shared=True),
    TableOptions(partition_by=Partitioning(DATE)),
    TableOptions(kind=TableKind.ICEBERG),
    TableOptions(kind=TableKind.DELTA, partition_by=Partitioning(DATE)),
    TableOptions(kind=TableKind.DELTA, is_shared=True),
]


def increments(folder: Path, table: TableOptions) -> Cluster:
    """An export of three batches."""
    cluster = filled()
    for _ in range(3):
        run(cluster, folder, table=table)
        cluster.append(0, 5)
    return cluster


def first_file(folder: Path) -> Path:
    """A file of the first batch."""
    return min(folder.rglob("[!.]*.parquet"), key=lambda path: (path.parent.name, path.name))


@pytest.mark.long
@pytest.mark.parametrize("table", KINDS, ids=lambda table: table.mark or "parquet")
def test_a_file_of_an_earlier_batch_that_is_gone_or_damaged_is_named(tmp_path: Path, table: TableOptions) -> None:
    cluster = increments(tmp_path, table)
    path = first_file(tmp_path)
    name = path.relative_to(tmp_path).as_posix()
    whole = path.read_bytes()
    for damaged in (b"", whole[:-100], whole + bytes(1), None):
        path.unlink()
        what = "is gone"
        if damaged is not None:
            path.write_bytes(damaged)
            what = f"has {len(damaged):,} bytes instead of {len(whole):,}"
        expected = f"{name}, which batch 0 wrote, {what}: restore it from a backup"
        with pytest.raises(DataLoss, match=f"^{re.escape(expected)}$"):
            exporter(cluster, tmp_path, table=table).plan()
        assert ExistingExport(DiskFiles(tmp_path)).state().losses == {"orders": expected}
        path.write_bytes(whole)
    path.write_bytes(b"")
    before = {path: path.stat().st_size for path in tmp_path.rglob("*.parquet")}
    with pytest.raises(DataLoss):
        run(cluster, tmp_path, table=table)
    assert {path: path.stat().st_size for path in tmp_path.rglob("*.parquet")} == before
    assert len(run(cluster, tmp_path, table=table, on_data_loss=OnDataLoss.WARN).warnings) == 1
    path.write_bytes(whole)
    run(cluster, tmp_path, table=table)
    assert ExistingExport(DiskFiles(tmp_path)).state().losses == {}
    assert exported_values(tmp_path) == expected_values(cluster)


def test_the_state_of_a_topic_with_a_damaged_file(tmp_path: Path) -> None:
    increments(tmp_path, TableOptions())
    first_file(tmp_path).write_bytes(b"")
    state = ExistingExport(DiskFiles(tmp_path)).state()
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), FakeBroker())
    found = run_blocking(export_status(client, state, 0))
    assert {row.state for row in found} == {State.DAMAGED}


@pytest.mark.long
def test_folders_of_a_kctl_that_did_not_summarize_sizes_are_checked_after_their_next_batch(tmp_path: Path) -> None:
    by_date = TableOptions(partition_by=Partitioning(DATE))
    for folder, table in ((tmp_path / "plain", TableOptions()), (tmp_path / "by-date", by_date)):
        cluster = increments(folder, table)
        for commit in (folder / "_kctl" / "commits").glob("*.json"):
            document = json.loads(commit.read_text())
            del document["all_sizes"]
            for file in document["files"]:
                file.pop("sizes", None)
            commit.write_text(json.dumps(document))
        path = first_file(folder)
        whole = path.read_bytes()
        if table is by_date:
            run(cluster, folder, table=table)
            path.write_bytes(b"")
            run(cluster, folder, table=table)  # no commit has the size of this file
        else:
            path.write_bytes(b"")
            run(cluster, folder, table=table)
            with pytest.raises(DataLoss, match="has 0 bytes instead of"):
                run(cluster, folder, table=table)
        path.write_bytes(whole)
        run(cluster, folder, table=table)


def test_files_that_another_program_replaces_and_removes_meanwhile_are_not_missed(tmp_path: Path) -> None:
    increments(tmp_path, TableOptions(kind=TableKind.DELTA))
    files = DiskFiles(tmp_path)
    table = DeltaLakeTable(files, "orders")
    assert table.state()
    other = DeltaTable(tmp_path / "orders")
    other.optimize.compact()
    other.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not any((tmp_path / "orders" / path).exists() for path in table.paths())
    assert lost_files(files, "orders", table, lambda directory: DeltaLakeTable(files, directory)) == Inventory()
