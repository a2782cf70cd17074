"""A table is set back: its folder is restored from a backup, or another program restores an earlier version of it.

Where its own metadata has the older offsets, the records after them are exported again; where the rows are older than
the offsets, the export is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport
from kctl.client.settings import ClientSettings
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports.importing import ImportRequest, NotImportable, import_export
from kctl.tables.formats import iceberg
from kctl.tables.formats.kinds import TableOptions
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.scene import expected_values, run
from tests.unit.spark.test_lost_metadata import DELTA, ICEBERG, Lake

METADATA = {
    DELTA: ("orders/_delta_log", "orders/_published"),
    ICEBERG: ("orders/metadata", "orders/_published", "_kctl/catalog.db"),
}
FOLDERS = {DELTA: ("orders",), ICEBERG: ("orders", "_kctl")}
KINDS = pytest.mark.parametrize("table", [DELTA, ICEBERG], ids=lambda table: table.kind)


def set_back(lake: Lake, parts: tuple[str, ...], batch: int) -> None:
    for part in parts:
        lake.remove(part)
        lake.put(part, batch)


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("parts", [METADATA, FOLDERS], ids=["metadata", "folder"])
def test_records_after_the_offsets_of_a_restored_table_are_exported_again(
    tmp_path: Path, table: TableOptions, parts: dict[TableOptions, tuple[str, ...]]
) -> None:
    lake = Lake(tmp_path, table)
    set_back(lake, parts[table], 0)
    for _ in range(2):
        lake.cluster.append(1, 2)
        run(lake.cluster, lake.target, table=table)
        lake.assert_exact()


@KINDS
def test_files_are_kept_if_the_cluster_no_longer_has_the_records_after_a_restored_table(
    tmp_path: Path, table: TableOptions
) -> None:
    lake = Lake(tmp_path, table)
    set_back(lake, METADATA[table], 0)
    published = lake.data_files()
    lake.cluster.log_starts = list(lake.cluster.ends)
    lake.cluster.append(0, 2)
    with pytest.raises(DataLoss, match="offsets 12 to"):
        run(lake.cluster, lake.target, table=table)
    for _ in range(3):
        run(lake.cluster, lake.target, table=table, on_data_loss=OnDataLoss.WARN)
        lake.cluster.append(0, 2)
    assert lake.data_files() >= published


def restore_version(target: Path, batch: int) -> Callable[[], object]:
    table = DeltaTable(target / "orders")
    newest = table.version()
    table.restore(batch)
    return lambda: table.restore(newest)


def roll_back(target: Path, batch: int) -> Callable[[], object]:
    with contextlib.closing(iceberg.default_catalog(target)) as catalog:
        table = catalog.load_table(("kafka", "orders"))
        snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        with table.manage_snapshots() as change:
            change.rollback_to_snapshot(snapshots[batch])

    def forward() -> None:
        with (
            contextlib.closing(iceberg.default_catalog(target)) as catalog,
            catalog.load_table(("kafka", "orders")).manage_snapshots() as change,
        ):
            change.set_current_snapshot(snapshots[-1])

    return forward


ROLLBACKS = {DELTA: restore_version, ICEBERG: roll_back}


@KINDS
def test_a_table_whose_rows_are_older_than_its_offsets_is_refused(tmp_path: Path, table: TableOptions) -> None:
    lake = Lake(tmp_path, table)
    forward = ROLLBACKS[table](lake.target, 1)
    lake.cluster.append(1, 2)
    published = lake.data_files()
    with pytest.raises(DataLoss, match=r"lake/orders was set back to a state before batch 2.*set it forward"):
        run(lake.cluster, lake.target, table=table)
    assert lake.data_files() == published
    forward()
    run(lake.cluster, lake.target, table=table)
    lake.assert_exact()


@KINDS
def test_a_table_that_was_set_back_is_not_imported(tmp_path: Path, table: TableOptions) -> None:
    lake = Lake(tmp_path, table)
    ROLLBACKS[table](lake.target, 1)
    files = DiskFiles(lake.target)
    request = ImportRequest(topic="orders", transaction_timeout_ms=1000)
    client = ClusterClient(ClientSettings((("127.0.0.1", 1),)), BlockingTransport())
    with pytest.raises(NotImportable, match="the table of orders was set back"):
        asyncio.run(import_export(client, files, ExistingExport(files), request, lambda rows: None))


@KINDS
def test_an_export_may_continue_without_the_rows_of_a_table_that_was_set_back(
    tmp_path: Path, table: TableOptions
) -> None:
    lake = Lake(tmp_path, table)
    rows = lake.values()
    ROLLBACKS[table](lake.target, 1)
    left = lake.values()
    assert len(left) < len(rows)
    lake.cluster.append(1, 2)
    report = run(lake.cluster, lake.target, table=table, on_data_loss=OnDataLoss.WARN)
    assert ["was set back" in warning for warning in report.warnings] == [True]
    assert len(lake.values()) == len(left) + 2
    lake.cluster.append(0, 1)
    assert run(lake.cluster, lake.target, table=table).warnings == []


@pytest.mark.parametrize("parameters", [{"timestamp": "2026-11-23", "version": None}, {"version": "null"}, {}])
def test_a_table_restored_to_a_time_is_taken_for_an_older_one(
    tmp_path: Path, parameters: dict[str, str | None]
) -> None:
    """As Spark writes it: without a version, which may also be the text `null`."""
    lake = Lake(tmp_path, DELTA)
    restore_version(lake.target, 1)
    commit = lake.target / "orders" / "_delta_log" / f"{3:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (information,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    information["operationParameters"] = parameters
    commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(DataLoss, match="was set back"):
        run(lake.cluster, lake.target, table=DELTA)


def test_a_table_restored_to_a_version_after_the_last_batch_is_continued(tmp_path: Path) -> None:
    lake = Lake(tmp_path, DELTA)
    table = DeltaTable(lake.target / "orders")
    batch_version = table.version()
    table.delete("offset >= 0")
    assert lake.values() == []
    table.restore(batch_version)
    table.optimize.compact()
    lake.cluster.append(1, 2)
    run(lake.cluster, lake.target, table=DELTA)
    assert lake.values() == expected_values(lake.cluster)
