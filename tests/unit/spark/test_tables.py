"""Exports into Iceberg and Delta tables, with crashes and competitors at each step, read by the formats' libraries."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import TableProperties

from kctl.errors import KctlError, UsageError
from kctl.tables.commits.commit_log import LostRace
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.selection.partitioning import DATE, HOUR, NONE, Partitioning
from kctl.tables.exec.targets import outputs
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exec.targets.target import PackageMissing
from kctl.tables.exports.export import Listener
from kctl.tables.formats import delta, iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.formats.publications import Publications
from kctl.tables.formats.table import TableFailed
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import Beginning, Cluster, expected_values, exporter, run
from tests.unit.spark.stepped_port import SteppedPort, crashing

SILENT = Listener(lambda plan, again: None, lambda progress: None)
ICEBERG = TableOptions(kind=TableKind.ICEBERG)
DELTA = TableOptions(kind=TableKind.DELTA)


@pytest.fixture(params=[ICEBERG, DELTA], ids=["iceberg", "delta"])
def table(request: pytest.FixtureRequest) -> TableOptions:
    options: TableOptions = request.param
    return options


def filled() -> Cluster:
    cluster = Cluster()
    cluster.append(0, 12)
    cluster.append(1, 7)
    return cluster


def partly_exported(folder: Path, table: TableOptions, *counts: int) -> Cluster:
    """A target with one batch, and a cluster with so many more records in each partition."""
    cluster = filled()
    run(cluster, folder, table=table)
    for partition, count in enumerate(counts):
        cluster.append(partition, count)
    return cluster


def rows(folder: Path, table: TableOptions, directory: str = "orders") -> pa.Table:
    """The table as its library reads it."""
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        return DeltaTable(folder / directory).to_pyarrow_table()
    catalog = iceberg.default_catalog(folder)
    with contextlib.closing(catalog):
        return catalog.load_table(("kafka", directory or folder.name)).scan().to_arrow()


def data_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("data/*/*")}


def assert_exact(cluster: Cluster, folder: Path, table: TableOptions) -> None:
    """Checks that every record is in the table once, and that no file is outside of it."""
    assert sorted(rows(folder, table).column("value").to_pylist()) == expected_values(cluster)
    assert len(data_files(folder)) == len(_named_files(folder, table))


def _named_files(folder: Path, table: TableOptions) -> list[str]:
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        return DeltaTable(folder / "orders").file_uris()
    with contextlib.closing(iceberg.default_catalog(folder)) as catalog:
        files: list[str] = catalog.load_table(("kafka", "orders")).inspect.files().column("file_path").to_pylist()
        return files


def test_increments_add_up_to_everything(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    for count in (0, 3, 10):
        cluster.append(0, count)
        run(cluster, tmp_path, table=table)
        assert_exact(cluster, tmp_path, table)
    assert run(cluster, tmp_path, table=table).batches == []
    assert not (tmp_path / "_kctl" / "commits").exists()
    assert not (tmp_path / "_kctl" / "plans").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["real/../lake", "link/lake", "my {lä+ke}"])
def test_published_files_are_kept_in_a_folder_with_any_path(tmp_path: Path, table: TableOptions, name: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    target = tmp_path / name
    cluster = filled()
    for _ in range(2):
        run(cluster, target, table=table)
        assert run(cluster, target, table=table).batches == []
        assert_exact(cluster, target, table)
        cluster.append(0, 3)
    # The same folder by another path.
    run(cluster, target.resolve(), table=table)
    run(cluster, target, table=table)
    assert_exact(cluster, target, table)


def test_nothing_is_deleted_unless_the_table_has_the_files_of_its_record(
    tmp_path: Path, table: TableOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a library named its files in a way that is not expected."""
    cluster = filled()
    run(cluster, tmp_path, table=table)
    with monkeypatch.context() as patch:
        patch.setattr(delta.DeltaLakeTable, "paths", lambda self: set())
        patch.setattr(iceberg.IcebergTable, "paths", lambda self: set())
        assert run(cluster, tmp_path, table=table).batches == []
    assert_exact(cluster, tmp_path, table)


@pytest.mark.parametrize(("name", "unusable"), [("100%", "'%'"), ("two\nlines", "control characters")])
def test_a_folder_whose_path_the_library_cannot_use_is_refused(
    tmp_path: Path, table: TableOptions, name: str, unusable: str
) -> None:
    target = tmp_path / name
    with pytest.raises(UsageError, match=f"tables of kind {table.kind} need a folder without {unusable}"):
        run(filled(), target, table=table)
    assert not target.exists()


def test_duckdb_finds_every_offset_once(tmp_path: Path, table: TableOptions) -> None:
    import duckdb  # noqa: PLC0415

    cluster = filled()
    for _ in range(3):
        run(cluster, tmp_path, table=table)
        cluster.append(1, 5)
    with duckdb.connect() as connection:
        connection.register("orders", rows(tmp_path, table))
        columns = '"partition", count(*), count(distinct "offset"), min("offset"), max("offset")'
        found = connection.sql(f"select {columns} from orders group by 1 order by 1").fetchall()
    assert found == [(0, 12, 12, 0, 11), (1, 17, 17, 0, 16)]


@pytest.mark.parametrize("other", [ICEBERG, DELTA, TableOptions()], ids=["iceberg", "delta", "parquet"])
def test_files_of_a_copy_without_its_logs_are_neither_exported_again_nor_deleted(
    tmp_path: Path, table: TableOptions, other: TableOptions
) -> None:
    cluster = filled()
    run(cluster, tmp_path / "lake", table=table)
    cluster.append(0, 5)
    run(cluster, tmp_path / "lake", table=table)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "lake", copy, ignore=shutil.ignore_patterns("_*", "metadata"))
    before = data_files(copy)
    assert len(before) == 3
    cluster.append(1, 5)
    with pytest.raises(UnknownFiles, match=r"no commit names orders/data/.* \(and 2 more\).*export to another folder$"):
        run(cluster, copy, table=other)
    with pytest.raises(UnknownFiles):
        run(cluster, copy, table=other, adopts=True)
    assert data_files(copy) == before
    assert [path.name for path in copy.iterdir()] == ["orders"]


@pytest.mark.long
@pytest.mark.parametrize("has_batch", [True, False])
def test_a_crash_at_any_step_is_recovered_from_by_the_next_run(
    tmp_path: Path, table: TableOptions, has_batch: bool
) -> None:
    """More records arrive before the recovery, so that the files are cut differently."""
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: partly_exported(folder, table, 6, 11) if has_batch else filled())
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = crashing(DiskFiles(folder), step)
        try:
            with stepped_commits(files):
                exporter(cluster, folder, files=files, table=table).run(SILENT)
        except Crash:
            pass
        else:
            break
        cluster.append(1, 4)
        run(cluster, folder, table=table)
        assert_exact(cluster, folder, table)
    assert step > 9


@pytest.mark.parametrize("has_batch", [True, False])
@pytest.mark.long
def test_of_two_exporters_at_once_one_publishes(tmp_path: Path, table: TableOptions, has_batch: bool) -> None:
    """The second exporter runs completely while the first is at its n-th step, for every n."""
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: partly_exported(folder, table, 9, 0) if has_batch else filled())
    for step in itertools.count(1):
        cluster = beginning.restored()
        second = SecondExporter(cluster, folder, table, step)
        files = SteppedPort(DiskFiles(folder), second.at_step)
        with contextlib.suppress(KctlError), stepped_commits(files):
            exporter(cluster, folder, files=files, table=table).run(SILENT)
        if not second.has_run:
            break
        run(cluster, folder, table=table)
        assert sorted(rows(folder, table).column("value").to_pylist()) == expected_values(cluster)
    assert step > 7


class SecondExporter:
    """Runs when the first exporter reaches a certain operation."""

    def __init__(self, cluster: Cluster, folder: Path, table: TableOptions, step: int) -> None:
        self.has_run = False
        self._cluster = cluster
        self._folder = folder
        self._table = table
        self._step = step

    def at_step(self, step: int) -> None:
        if step != self._step or self.has_run:
            return
        self.has_run = True
        self._cluster.append(1, 2)
        unlocked = SteppedPort(DiskFiles(self._folder), lambda step: None)
        exporter(self._cluster, self._folder, files=unlocked, table=self._table).run(SILENT)


@contextlib.contextmanager
def stepped_commits(files: SteppedPort) -> Iterator[None]:
    """Makes the commits of tables steps of `files`: before, after, and where a commit needs several calls."""
    with pytest.MonkeyPatch.context() as patch:
        for cls, names in (
            (iceberg.IcebergTable, ("commit", "_create")),
            (delta.DeltaLakeTable, ("commit", "_add_columns")),
        ):
            for name in names:
                patch.setattr(cls, name, _stepped(getattr(cls, name), files))
        yield


def _stepped(method: Callable[..., object], files: SteppedPort) -> Callable[..., object]:
    def stepped(*arguments: object) -> object:
        files.step()
        result = method(*arguments)
        files.step()
        return result

    return stepped


def test_a_commit_based_on_a_former_state_is_refused(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    cluster.append(0, 3)

    def compete(*_: object) -> None:
        files = SteppedPort(DiskFiles(tmp_path), lambda step: None)
        cluster.append(1, 1)
        exporter(cluster, tmp_path, files=files, table=table).run(SILENT)

    with pytest.raises(LostRace, match=r"orders.* at the same time"):
        exporter(cluster, tmp_path, table=table).run(Listener(compete, lambda progress: None))
    run(cluster, tmp_path, table=table)
    assert_exact(cluster, tmp_path, table)


def test_commits_of_other_programs_do_not_stop_an_export(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    cluster.append(0, 3)

    def change_table(*_: object) -> None:
        if table.kind is TableKind.DELTA:
            from deltalake import DeltaTable  # noqa: PLC0415

            DeltaTable(tmp_path / "orders").optimize.compact()
        else:
            with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
                catalog.load_table(("kafka", "orders")).delete("offset = 5 and partition = 0")

    exporter(cluster, tmp_path, table=table).run(Listener(change_table, lambda progress: None))
    run(cluster, tmp_path, table=table)
    found = rows(tmp_path, table).column("value").to_pylist()
    assert len(found) == len(set(found)) == 22 - (table.kind is TableKind.ICEBERG)


@pytest.mark.long
def test_positions_survive_checkpoints_and_the_expiry_of_history(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    for _ in range(3):
        run(cluster, tmp_path, table=table)
        cluster.append(0, 3)
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        DeltaTable(tmp_path / "orders").create_checkpoint()
        for version in range(2):
            (tmp_path / "orders" / "_delta_log" / f"{version:020}.json").unlink()
    else:
        with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
            loaded = catalog.load_table(("kafka", "orders"))
            old = [snapshot.snapshot_id for snapshot in loaded.snapshots()[:-1]]
            loaded.maintenance.expire_snapshots().by_ids(old).commit()
    run(cluster, tmp_path, table=table)
    assert_exact(cluster, tmp_path, table)


def test_the_batch_and_the_offsets_are_in_the_commit(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        loaded = DeltaTable(tmp_path / "orders")
        assert loaded.transaction_version("kctl") == 0
        assert loaded.transaction_version(f"kctl/cluster-a/orders/{UUID(int=1)}/0/1") == 7
        assert loaded.history(1)[0]["kctl.cluster-id"] == "cluster-a"
        return
    with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
        snapshot = catalog.load_table(("kafka", "orders")).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        positions = json.loads(snapshot.summary["kctl.positions"] or "")
    assert positions["orders"]["topic_id"] == str(UUID(int=1))
    assert positions["orders"]["partitions"] == {"0": [12, 0], "1": [7, 0]}


def test_headers_are_added_as_a_column(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    cluster.append(0, 3)
    run(cluster, tmp_path, table=table, include_headers=True)
    assert_exact(cluster, tmp_path, table)
    # pyiceberg reads a null list as an empty one.
    assert not any(rows(tmp_path, table).column("headers").to_pylist())
    cluster.append(0, 3)
    with pytest.raises(UsageError, match="--include-headers"):
        run(cluster, tmp_path, table=table)


@pytest.mark.long
def test_a_topic_that_cannot_be_read_does_not_stop_the_tables_of_others(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.topics = ["orders", "payments", "refunds"]
    run(cluster, tmp_path, table=table)
    cluster.append(0, 3)
    cluster.unreadable = {"payments"}
    report = run(cluster, tmp_path, table=table)
    assert {topic: str(error) for topic, error in report.failed.items()} == {
        "payments": "payments-0 does not exist any more"
    }
    assert [sorted(batch.plan.topics) for batch in report.batches] == [["orders", "refunds"]]
    assert [rows(tmp_path, table, topic).num_rows for topic in cluster.topics] == [22, 19, 22]
    cluster.append(1, 2)
    cluster.unreadable = set()
    assert not run(cluster, tmp_path, table=table).failed
    for topic in cluster.topics:
        assert sorted(rows(tmp_path, table, topic).column("value").to_pylist()) == expected_values(cluster)
    assert not list(tmp_path.glob("payments/data/000000000001/*"))
    cluster.append(1, 2)
    cluster.unreadable = set(cluster.topics)
    with pytest.raises(DataLoss, match="orders-1 does not exist any more"):
        run(cluster, tmp_path, table=table)


def test_a_table_that_cannot_be_committed_does_not_stop_the_others(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.topics = ["orders", "payments"]

    class FullDisk(DiskFiles):
        def create(self, path: str, data: bytes) -> bool:
            if path.startswith("orders/_published"):
                raise TableFailed("no space left")
            return super().create(path, data)

    report = run(cluster, tmp_path, files=FullDisk(tmp_path), table=table)
    assert list(report.failed) == ["orders"]
    for topic in cluster.topics:
        assert not run(cluster, tmp_path, table=table).failed
        assert rows(tmp_path, table, topic).num_rows == 19


def test_files_with_other_columns_are_not_reused(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    files = SteppedPort(DiskFiles(tmp_path), lambda step: None)

    def crash(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publications, "write", crash)
        with pytest.raises(Crash):
            exporter(cluster, tmp_path, files=files, table=table).run(SILENT)
    assert len(data_files(tmp_path)) == 2
    report = run(cluster, tmp_path, table=table, include_headers=True)
    assert not any(outcome.is_reused for outcome in report.batches[0].outcomes.values())
    assert "headers" in rows(tmp_path, table).column_names
    assert_exact(cluster, tmp_path, table)


def test_a_topic_created_again_is_marked_by_a_column(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    cluster.topic_id = UUID(int=2)
    with pytest.raises(DataLoss, match="created again"):
        run(cluster, tmp_path, table=table)
    run(cluster, tmp_path, table=table, on_data_loss=OnDataLoss.WARN)
    cluster.append(0, 2)
    run(cluster, tmp_path, table=table)
    found = rows(tmp_path, table)
    keys = {tuple(row.values()) for row in found.select(["partition", "offset", "incarnation"]).to_pylist()}
    assert len(keys) == found.num_rows == 19 + 21
    assert found.column("incarnation").null_count == 19


def test_one_table_for_all_topics_is_at_the_target(tmp_path: Path, table: TableOptions) -> None:
    shared = TableOptions(kind=table.kind, is_shared=True)
    cluster = filled()
    folder = tmp_path / "lake"
    for _ in range(2):
        run(cluster, folder, table=shared)
        cluster.append(0, 3)
    assert rows(folder, table, "").num_rows == 22
    with pytest.raises(UsageError, match="--one-table"):
        run(cluster, folder, table=table)


@pytest.mark.parametrize("first", [TableKind.PARQUET, TableKind.ICEBERG, TableKind.DELTA])
@pytest.mark.parametrize("second", [TableKind.PARQUET, TableKind.ICEBERG, TableKind.DELTA])
def test_a_target_keeps_its_kind(tmp_path: Path, first: TableKind, second: TableKind) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=TableOptions(kind=first))
    before = sorted(tmp_path.rglob("*"))
    expected = contextlib.nullcontext() if first == second else pytest.raises(UsageError, match=f"--table {first}")
    with expected:
        run(cluster, tmp_path, table=TableOptions(kind=second))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_table_that_is_no_export_is_refused(tmp_path: Path, table: TableOptions) -> None:
    schema = pa.schema([("a", pa.int32())])
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        DeltaTable.create(tmp_path / "orders", schema)
    else:
        (tmp_path / "_kctl").mkdir()
        with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
            catalog.create_namespace("kafka")
            catalog.create_table(("kafka", "orders"), schema, location=f"file://{tmp_path}/orders")
    with pytest.raises(UsageError, match="not created by an export"):
        run(filled(), tmp_path, table=table)


def test_planning_touches_nothing(tmp_path: Path, table: TableOptions) -> None:
    plan, is_pending, _ = exporter(filled(), tmp_path / "new", table=table).plan()
    assert plan is not None
    assert not is_pending
    assert all(path.startswith("orders/data/000000000000/orders+") for path in plan.shares())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "package"), [(ICEBERG, "pyiceberg"), (DELTA, "deltalake")], ids=["iceberg", "delta"]
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, options: TableOptions, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PackageMissing, match=rf"{package} missing: pip install 'kctl-kafka\[{options.kind}\]'"):
        run(filled(), tmp_path / "new", table=options)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("by", [DATE, HOUR])
def test_a_file_of_a_partitioned_table_has_records_of_one_time(tmp_path: Path, table: TableOptions, by: str) -> None:
    partitioned = TableOptions(kind=table.kind, partition_by=Partitioning(by))
    cluster = filled()
    cluster.hours_per_offset = 5
    for _ in range(2):
        run(cluster, tmp_path, table=partitioned)
        cluster.append(0, 3)
    run(cluster, tmp_path, table=partitioned)
    assert_exact(cluster, tmp_path, table)
    divisor_us = partitioned.partition_by.unit_us
    for path in data_files(tmp_path):
        timestamps = pq.read_table(tmp_path / path, columns=["timestamp"]).column(0).cast(pa.int64()).to_pylist()
        assert len({timestamp // divisor_us for timestamp in timestamps}) == 1
    if table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        loaded = DeltaTable(tmp_path / "orders")
        found = loaded.to_pyarrow_table(columns=["offset", "date"]).to_pylist()
        assert {(row["offset"], str(row["date"])) for row in found if row["offset"] in {4, 5}} == {
            (4, "2026-11-01"),
            (5, "2026-11-02"),
        }
        assert loaded.metadata().partition_columns == list(partitioned.partition_by.columns)
    else:
        with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
            loaded_table = catalog.load_table(("kafka", "orders"))
            assert [field.name for field in loaded_table.spec().fields] == [f"timestamp_{by}"]
            scan = loaded_table.scan("timestamp < '2026-11-02T00:00:00+00:00'")
            assert scan.to_arrow().num_rows == 10
            assert len(list(scan.plan_files())) < len(data_files(tmp_path))


@pytest.mark.long
def test_a_crash_at_any_step_of_a_partitioned_export_is_recovered_from(tmp_path: Path, table: TableOptions) -> None:
    partitioned = TableOptions(kind=table.kind, partition_by=Partitioning(DATE))
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        cluster = filled()
        cluster.hours_per_offset = 7
        files = crashing(DiskFiles(folder), step)
        try:
            with stepped_commits(files):
                exporter(cluster, folder, files=files, table=partitioned).run(SILENT)
        except Crash:
            pass
        else:
            break
        if step % 2:
            cluster.append(0, 2)
        run(cluster, folder, table=partitioned)
        assert_exact(cluster, folder, table)
    assert step > 15


def test_more_open_files_than_a_task_may_have_are_refused(
    tmp_path: Path, table: TableOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "EXPORT_OPEN_FILES_PER_TASK_MAX", 3)
    monkeypatch.setattr(outputs, "GATHERED_BYTES_MAX", 0)
    cluster = filled()
    cluster.hours_per_offset = 20
    partitioned = TableOptions(kind=table.kind, partition_by=Partitioning(DATE))
    with pytest.raises(KctlError, match=r"too many partitions.*smaller --target-file-size"):
        run(cluster, tmp_path, table=partitioned)
    monkeypatch.undo()
    run(cluster, tmp_path, table=partitioned)
    assert_exact(cluster, tmp_path, table)


def test_a_table_keeps_its_partitions(tmp_path: Path, table: TableOptions) -> None:
    run(filled(), tmp_path, table=table)
    with pytest.raises(UsageError, match=f"with --table {table.kind}:"):
        run(filled(), tmp_path, table=TableOptions(kind=table.kind, partition_by=Partitioning(DATE)))


@pytest.mark.parametrize("by", [NONE, DATE, HOUR])
def test_timestamps_beyond_the_calendar_are_exported(tmp_path: Path, table: TableOptions, by: str) -> None:
    """A producer that gives microseconds for milliseconds writes records of the year 58,000."""
    cluster = filled()
    cluster.hours_per_offset = 50_000_000
    run(cluster, tmp_path, table=TableOptions(kind=table.kind, partition_by=Partitioning(by)))
    found = rows(tmp_path, table).select(["partition", "offset"])
    assert found.num_rows == 19


@pytest.mark.long
@pytest.mark.parametrize("partition_by", [NONE, "shop"])
def test_manifests_of_iceberg_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: str) -> None:
    """An export reads all manifests, each of which takes several milliseconds."""
    monkeypatch.setitem(iceberg.MERGING, TableProperties.MANIFEST_MIN_MERGE_COUNT, "3")
    cluster = Cluster()
    cluster.value = lambda _, offset: b'{"shop": "%d"}' % (offset % 2)
    table_options = TableOptions(kind=TableKind.ICEBERG, partition_by=Partitioning(partition_by))
    decoding = DecodingOptions(value=FieldOptions(name="value", format=Format.JSON))
    for _ in range(7):
        cluster.append(0, 5)
        run(cluster, tmp_path, table=table_options, decoding=decoding)
    with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
        table = catalog.load_table(("kafka", "orders"))
        snapshot = table.current_snapshot()
        assert snapshot
        assert len(snapshot.manifests(table.io)) <= 3
        assert len(table.scan().to_arrow()) == 35


def test_the_metadata_of_a_transaction_is_computed_once_per_update(tmp_path: Path) -> None:
    run(filled(), tmp_path, table=ICEBERG)
    with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
        table = catalog.load_table(("kafka", "orders"))
        ours, theirs = iceberg.ExportTransaction(table), table.transaction()
        before = ours.table_metadata
        assert ours.table_metadata is before
        for transaction in (ours, theirs):
            transaction.set_properties({"a": "b"})
        assert ours.table_metadata.properties == theirs.table_metadata.properties == {**before.properties, "a": "b"}
