"""A part of an export's metadata is lost, restored from an older backup, or that of another export.

The next export is either right or refused; no data file that was published is deleted, and a refused export goes on
as soon as the part is back.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kctl.errors import ApiError, KctlError
from kctl.tables.commits.commit_log import BrokenExportFolder, CommitLog, LostRace
from kctl.tables.commits.inventory import UnknownFiles
from kctl.tables.compaction.folder import compact_folder
from kctl.tables.exec.selection.partitioning import DATE, Partitioning
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports.export import Listener
from kctl.tables.formats import delta, iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions, open_log
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import SILENT, Cluster, StoppedClock, expected_values, exporter, filled, run
from tests.unit.spark.stepped_port import SteppedPort

PARQUET = TableOptions()
SHARED = TableOptions(is_shared=True)
BY_DATE = TableOptions(partition_by=Partitioning(DATE))
ICEBERG = TableOptions(kind=TableKind.ICEBERG)
DELTA = TableOptions(kind=TableKind.DELTA)
LAST = "000000000002.json"
LAST_VERSION = "00000000000000000002.json"
PARTS = {
    PARQUET: ("_kctl", "_kctl/plans", "_kctl/commits", f"_kctl/plans/{LAST}", f"_kctl/commits/{LAST}", "_SUCCESS"),
    SHARED: ("_kctl", "_kctl/table", "_kctl/commits"),
    BY_DATE: ("_kctl", "_kctl/table", "_kctl/lists"),
    ICEBERG: ("_kctl", "_kctl/table", "_kctl/catalog.db", "orders/metadata", "orders/_published"),
    DELTA: ("_kctl", "_kctl/table", "orders/_delta_log", f"orders/_delta_log/{LAST_VERSION}", "orders/_published"),
}
REPLACEMENTS = ("gone", "after batch 1", "after batch 0", "of another export")
CASES = [
    pytest.param(table, part, replacement, id=f"{table.mark.removeprefix('--table ')}, {part} {replacement}")
    for table, parts in PARTS.items()
    for part in parts
    for replacement in REPLACEMENTS
]


class Lake:
    """An export of three batches, with copies of its target after each."""

    def __init__(self, folder: Path, table: TableOptions, counts: tuple[int, int] = (3, 5)) -> None:
        self.target = folder / "lake"
        self.table = table
        self.cluster = filled()
        self._copies = [folder / f"after-{batch}" for batch in range(3)]
        for copy, count in zip(self._copies, (*counts, 0), strict=True):
            self.run()
            shutil.copytree(self.target, copy)
            self.cluster.append(0, count)
        self._first_ends = list(self.cluster.ends)

    def run(self) -> None:
        """An export that may be refused."""
        run(self.cluster, self.target, table=self.table)

    def restored(self) -> None:
        """The target and the topic after the last batch."""
        shutil.rmtree(self.target)
        shutil.copytree(self._copies[-1], self.target)
        self.cluster.ends = list(self._first_ends)

    def remove(self, part: str) -> None:
        path = self.target / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def put(self, part: str, batch: int, of: Self | None = None) -> None:
        """A part as it was after a batch, here or in another export; missing if it was not there."""
        copy = (of or self)._copies[batch] / part
        if copy.is_dir():
            shutil.copytree(copy, self.target / part)
        elif copy.exists():
            shutil.copy(copy, self.target / part)

    def data_files(self) -> set[str]:
        return {path.relative_to(self.target).as_posix() for path in self.target.rglob("[!._]*.parquet")}

    def values(self) -> list[bytes]:
        """All values as a reader of the table or folder finds them."""
        match self.table.kind:
            case TableKind.PARQUET:
                paths = [str(path) for path in self.target.rglob("[!._]*.parquet")]
                found = [
                    value for path in paths for value in pq.read_table(path, partitioning=None)["value"].to_pylist()
                ]
            case TableKind.DELTA:
                found = DeltaTable(self.target / "orders").to_pyarrow_table()["value"].to_pylist()
            case TableKind.ICEBERG:
                with contextlib.closing(iceberg.default_catalog(self.target)) as catalog:
                    found = catalog.load_table(("kafka", "orders")).scan().to_arrow()["value"].to_pylist()
        return sorted(found)

    def assert_exact(self) -> None:
        assert self.values() == expected_values(self.cluster)


@pytest.fixture(scope="module")
def lake_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[TableOptions, bool], Lake]:
    """The export with certain options, or another one; made once."""
    lakes: dict[tuple[TableOptions, bool], Lake] = {}

    def lake(table: TableOptions, is_other: bool) -> Lake:
        if (table, is_other) not in lakes:
            counts = (4, 6) if is_other else (3, 5)
            lakes[table, is_other] = Lake(tmp_path_factory.mktemp("lake"), table, counts)
        return lakes[table, is_other]

    return lake


def refusal(lake: Lake) -> str | None:
    """Why an export is refused; None if it succeeds."""
    try:
        lake.run()
    except KctlError as error:
        return str(error)
    return None


@pytest.mark.long
@pytest.mark.parametrize(("table", "part", "replacement"), CASES)
def test_an_export_without_a_part_of_its_metadata_is_right_or_refused(
    lake_of: Callable[[TableOptions, bool], Lake], table: TableOptions, part: str, replacement: str
) -> None:
    check_right_or_refused(lake_of(table, False), lambda: lake_of(table, True), part, replacement)


def check_right_or_refused(lake: Lake, other: Callable[[], Lake], part: str, replacement: str) -> None:
    """Replaces a part of the metadata, and exports until the part is back."""
    lake.restored()
    published = lake.data_files()
    lake.cluster.append(1, 2)
    lake.remove(part)
    match replacement:
        case "gone":
            pass
        case "of another export":
            lake.put(part, 2, other())
        case _:
            lake.put(part, int(replacement[-1]))
    for _ in range(2):
        error = refusal(lake)
        if error is None:
            lake.assert_exact()
        else:
            assert re.search(r"restore|copied|copy|another", error), error
        assert lake.data_files() >= published
    with contextlib.suppress(FileNotFoundError):
        lake.remove(part)
    if set(lake.data_files()) == published:
        lake.put(part, 2)
        lake.run()
        lake.assert_exact()


def test_a_lost_option_file_does_not_mix_options(tmp_path: Path) -> None:
    lake = Lake(tmp_path, BY_DATE)
    lake.remove("_kctl/table")
    with pytest.raises(BrokenExportFolder, match=r"_kctl/table.*restore it, with the contents --table.*by date"):
        run(lake.cluster, lake.target)


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_a_table_of_one_batch_is_created_again_from_its_record(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    before = {path: path.stat().st_ino for path in tmp_path.rglob("*.parquet")}
    if table.kind is TableKind.DELTA:
        shutil.rmtree(tmp_path / "orders" / "_delta_log")
    else:
        (tmp_path / "_kctl" / "catalog.db").unlink()
    cluster.append(0, 3)
    # Records that the cluster no longer has are in the files.
    cluster.log_starts = [12, 7]
    run(cluster, tmp_path, table=table)
    assert _rows_of(tmp_path, table) == expected_values(cluster)
    assert {path: path.stat().st_ino for path in before} == before


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_a_table_of_one_batch_is_refused_without_its_options(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table)
    shutil.rmtree(tmp_path / "_kctl")
    shutil.rmtree(tmp_path / "orders" / "_delta_log", ignore_errors=True)
    for _ in range(2):
        with pytest.raises(BrokenExportFolder, match=f"_kctl/table is missing.*for example: {table.mark}"):
            run(cluster, tmp_path, table=table)
    (tmp_path / "_kctl").mkdir(exist_ok=True)
    (tmp_path / "_kctl" / "table").write_text(table.mark)
    run(cluster, tmp_path, table=table)
    assert _rows_of(tmp_path, table) == expected_values(cluster)


def _rows_of(folder: Path, table: TableOptions) -> list[bytes]:
    lake = Lake.__new__(Lake)
    lake.target, lake.table = folder, table
    return lake.values()


def interrupted(folder: Path, table: TableOptions) -> Cluster:
    """A cluster whose second export has ended just before the commit of its table."""
    cluster = filled()
    run(cluster, folder, table=table)
    cluster.append(0, 3)

    def crash(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iceberg.IcebergTable, "commit", crash)
        patch.setattr(delta.DeltaLakeTable, "commit", crash)
        with pytest.raises(Crash):
            run(cluster, folder, table=table)
    return cluster


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_an_interrupted_commit_is_repeated_before_the_topic_is_looked_for(tmp_path: Path, table: TableOptions) -> None:
    cluster = interrupted(tmp_path, table)
    expected = expected_values(cluster)
    cluster.exists = False
    with pytest.raises(ApiError, match="does not exist"):
        run(cluster, tmp_path, table=table)
    assert _rows_of(tmp_path, table) == expected


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_a_commit_that_another_exporter_has_begun_is_not_passed_over(tmp_path: Path, table: TableOptions) -> None:
    """Without a lock, it may begin after this exporter has completed interrupted ones."""
    cluster = interrupted(tmp_path, table)
    cluster.append(0, 3)
    late = open_log(table, DiskFiles(tmp_path), ["orders"])
    with late.lock():
        positions = late.positions()
        plan, _, _ = exporter(cluster, tmp_path, table=table).plan()
        assert plan is not None
        with pytest.raises(LostRace):
            late.write_commit(plan, {}, positions, now_ms=0)
    run(cluster, tmp_path, table=table)
    assert _rows_of(tmp_path, table) == expected_values(cluster)


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
@pytest.mark.long
def test_a_commit_that_another_exporter_was_too_late_for_is_not_taken_for_a_lost_one(
    tmp_path: Path, table: TableOptions
) -> None:
    """Its batch has a higher number, because it is of several tables."""
    cluster = filled()
    for topics in (["orders", "payments"], ["payments"], ["payments"]):
        cluster.topics = topics
        run(cluster, tmp_path, table=table)
        cluster.append(0, 3)

    def crash(*_: object) -> None:
        raise Crash

    def compete(*_: object) -> None:
        cluster.topics = ["orders", "payments"]
        late = exporter(cluster, tmp_path, files=without_lock(), table=table)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(iceberg.IcebergTable, "commit", crash)
            patch.setattr(delta.DeltaLakeTable, "commit", crash)
            with pytest.raises(Crash):
                late.run(SILENT)

    def without_lock() -> SteppedPort:
        return SteppedPort(DiskFiles(tmp_path), lambda step: None)

    cluster.topics = ["orders"]
    exporter(cluster, tmp_path, files=without_lock(), table=table).run(Listener(compete, lambda progress: None))
    assert len(list((tmp_path / "orders" / "_published").iterdir())) == 2
    for topics in (["orders"], ["orders"], ["orders", "payments"]):
        cluster.topics = topics
        cluster.append(1, 2)
        run(cluster, tmp_path, table=table)
        assert _rows_of(tmp_path, table) == expected_values(cluster)
    assert len(list((tmp_path / "orders" / "_published").iterdir())) == 1


@pytest.mark.parametrize("table", [ICEBERG, DELTA], ids=["iceberg", "delta"])
def test_files_of_earlier_versions_are_kept_although_nothing_records_them(tmp_path: Path, table: TableOptions) -> None:
    """Earlier versions of kctl recorded nothing; the names of their files lack `+p`."""
    cluster = filled()
    run(cluster, tmp_path, table=table)
    shutil.rmtree(tmp_path / "orders" / "_published")
    metadata = "orders/_delta_log" if table.kind is TableKind.DELTA else "_kctl/catalog.db"
    path = tmp_path / metadata
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for file in list(tmp_path.rglob("data/*/*.parquet")):
        file.rename(file.with_name(file.name.replace("+p", "+")))
    before = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(UnknownFiles, match=r"there is no table with orders/data/.*restore"):
        run(cluster, tmp_path, table=table)
    assert set(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize("is_pointer_old", [True, False])
def test_offsets_in_a_delta_checkpoint_are_found_without_its_pointer(tmp_path: Path, is_pointer_old: bool) -> None:
    """`_last_checkpoint` is optional, and may be older than the last checkpoint."""
    lake = Lake(tmp_path, DELTA)
    table = DeltaTable(lake.target / "orders")
    table.create_checkpoint()
    pointer = (lake.target / "orders" / "_delta_log" / "_last_checkpoint").read_bytes()
    table.optimize.compact()
    table.create_checkpoint()
    for version in range(3):
        lake.remove(f"orders/_delta_log/{version:020}.json")
    lake.remove("orders/_delta_log/_last_checkpoint")
    if is_pointer_old:
        lake.remove(f"orders/_delta_log/{2:020}.checkpoint.parquet")
        (lake.target / "orders" / "_delta_log" / "_last_checkpoint").write_bytes(pointer)
    lake.cluster.append(0, 2)
    run(lake.cluster, lake.target, table=DELTA)
    lake.assert_exact()


def test_a_gap_in_a_delta_log_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path, DELTA)
    lake.remove("orders/_delta_log/00000000000000000001.json")
    lake.cluster.append(0, 2)
    with pytest.raises(KctlError, match=r"0001\.json|orders"):
        run(lake.cluster, lake.target, table=DELTA)
    lake.put("orders/_delta_log/00000000000000000001.json", 1)
    run(lake.cluster, lake.target, table=DELTA)
    lake.assert_exact()


def compacted(tmp_path: Path) -> Lake:
    """A folder whose last batch is a compaction."""
    lake = Lake(tmp_path, PARQUET)
    files = DiskFiles(lake.target)
    log = CommitLog(files)
    compact_folder(files, log, target_bytes=1 << 20, compression="zstd", clock=StoppedClock(), is_dry_run=False)
    lake.assert_exact()
    return lake


def test_a_compaction_whose_commit_was_lost_is_not_abandoned(tmp_path: Path) -> None:
    lake = compacted(tmp_path)
    commit = lake.target / "_kctl" / "commits" / "000000000003.json"
    kept = commit.read_bytes()
    commit.unlink()
    before = lake.data_files()
    with pytest.raises(BrokenExportFolder, match=r"commits/000000000003\.json is missing.*restore"):
        run(lake.cluster, lake.target)
    assert lake.data_files() == before
    commit.write_bytes(kept)
    lake.cluster.append(0, 3)
    run(lake.cluster, lake.target)
    lake.assert_exact()


def test_files_that_a_compaction_replaced_are_kept_while_its_own_are_missing(tmp_path: Path) -> None:
    """Data files of an older backup, with the newest log."""
    lake = compacted(tmp_path)
    lake.remove("orders")
    lake.put("orders", 2)
    before = lake.data_files()
    run(lake.cluster, lake.target, on_data_loss=OnDataLoss.WARN)
    assert lake.data_files() == before


def test_a_plan_of_another_export_is_not_carried_out(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "one", PARQUET)
    other = Lake(tmp_path / "other", PARQUET, (4, 6))
    lake.remove(f"_kctl/commits/{LAST}")
    lake.remove(f"_kctl/plans/{LAST}")
    lake.put(f"_kctl/plans/{LAST}", 2, other)
    with pytest.raises(BrokenExportFolder, match="does not continue"):
        run(lake.cluster, lake.target)


@pytest.mark.long
def test_a_lost_catalogue_is_made_again_from_the_metadata_of_its_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path, ICEBERG)
    lake.remove("_kctl/catalog.db")
    message = refusal(lake)
    assert message is not None
    assert re.search(r"batch 2 was published in the table .*/orders, which is missing.*restore the newest", message)
    newest = max((lake.target / "orders" / "metadata").glob("*.metadata.json"))
    with contextlib.closing(iceberg.default_catalog(lake.target)) as catalog:
        catalog.create_namespace_if_not_exists("kafka")
        catalog.register_table("kafka.orders", f"file://{newest}")
    lake.cluster.append(0, 2)
    assert refusal(lake) is None
    lake.assert_exact()
