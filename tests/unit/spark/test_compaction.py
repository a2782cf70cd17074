"""`kctl tables compact`: crashes at each step, exports and second compactions at each step, for each kind of table."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import KctlError
from kctl.tables.commits.commit_log import BrokenExportFolder, CommitLog, LostRace
from kctl.tables.compaction.bins import CompactedTable, NotCompactable, SourceFile, bins_of
from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import DiskFiles, Files, Locked
from kctl.tables.formats import delta, iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.formats.table import Conflict, Replacement, TableFailed
from tests.unit.spark.crashing_files import Crash, CrashingFiles, UnlockedFiles
from tests.unit.spark.scene import SILENT, Beginning, Cluster, StoppedClock, exporter, filled, run
from tests.unit.spark.stepped_port import SteppedPort, crashing
from tests.unit.spark.test_row_filter import EVEN, JSON, even, orders
from tests.unit.spark.test_tables import rows
from tests.unit.spark.test_typed_exports import LENIENT, read
from tests.unit.spark.test_verification import verify

PARQUET = TableOptions()
DATE = TableOptions(partition_by=Partitioning("date"))
KINDS = [TableOptions(kind=kind) for kind in TableKind]
TABLES = [TableOptions(kind=kind) for kind in (TableKind.ICEBERG, TableKind.DELTA)]


def compact(folder: Path, files: Files | None = None, **options: object) -> list[CompactedTable]:
    request = CompactRequest(target_bytes=1 << 20, **options)  # type: ignore[arg-type]
    return compact_export(request, files or DiskFiles(folder), StoppedClock())


def increments(folder: Path, table: TableOptions, count: int = 3) -> Cluster:
    """An export of several small batches."""
    cluster = filled()
    for _ in range(count):
        run(cluster, folder, table=table)
        cluster.append(0, 3)
        cluster.append(1, 2)
    run(cluster, folder, table=table)
    return cluster


def everything(cluster: Cluster) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, end in enumerate(cluster.ends) for offset in range(end)]


def of_files(folder: Path, paths: list[str]) -> list[tuple[int, int]]:
    found = [pq.read_table(folder / path, partitioning=None, columns=["partition", "offset"]) for path in paths]
    return sorted((row["partition"], row["offset"]) for table in found for row in table.to_pylist())


def listed(folder: Path) -> list[tuple[int, int]]:
    """What readers find that list the folder."""
    return of_files(
        folder, [path.relative_to(folder).as_posix() for path in (folder / "orders").rglob("[!.]*.parquet")]
    )


def logged(folder: Path) -> list[tuple[int, int]]:
    """What readers of the commit log find."""
    return of_files(folder, sorted(CommitLog(DiskFiles(folder)).committed_paths()))


def exported(folder: Path, table: TableOptions) -> list[tuple[int, int]]:
    if table.kind is TableKind.PARQUET:
        return listed(folder)
    return sorted((row["partition"], row["offset"]) for row in rows(folder, table).to_pylist())


@pytest.mark.long
@pytest.mark.parametrize("table", [*KINDS, DATE], ids=["parquet", "iceberg", "delta", "date"])
def test_files_are_merged_and_exports_continue(tmp_path: Path, table: TableOptions) -> None:
    cluster = increments(tmp_path, table)
    (planned,) = compact(tmp_path, is_dry_run=True)
    assert planned.status == "planned"
    (found,) = compact(tmp_path)
    assert (found.files_before, found.files_after, found.status) == (8, 1, "compacted")
    assert exported(tmp_path, table) == everything(cluster)
    (again,) = compact(tmp_path)
    assert (again.files_before, again.files_after, again.status) == (1, 1, "nothing to do")
    assert run(cluster, tmp_path, table=table).batches == []
    cluster.append(0, 4)
    run(cluster, tmp_path, table=table)
    assert exported(tmp_path, table) == everything(cluster)
    verified = verify(cluster, tmp_path)
    assert verified.is_equal
    assert verified.warnings == []


@pytest.mark.parametrize(
    "table", [DATE, *(TableOptions(kind=options.kind, partition_by=Partitioning("date")) for options in TABLES)]
)
@pytest.mark.long
def test_files_are_merged_within_their_partition(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.hours_per_offset = 8
    for _ in range(3):
        run(cluster, tmp_path, table=table)
        cluster.append(0, 5)
    (found,) = compact(tmp_path)
    assert found.files_after == 8
    assert found.files_before > 8
    cluster.append(0, -5)
    assert exported(tmp_path, table) == everything(cluster)
    assert verify(cluster, tmp_path).is_equal
    if table.kind is TableKind.ICEBERG:
        with contextlib.closing(iceberg.default_catalog(tmp_path)) as catalog:
            scan = catalog.load_table(("kafka", "orders")).scan("timestamp < '2026-11-02T00:00:00+00:00'")
            assert (scan.to_arrow().num_rows, len(list(scan.plan_files()))) == (6, 1)


@pytest.mark.parametrize("keeps_unsynced", [True, False], ids=["process", "power"])
@pytest.mark.parametrize("next_run", ["export", "compact"])
@pytest.mark.long
def test_a_crash_at_any_step_of_the_compaction_of_a_folder(tmp_path: Path, keeps_unsynced: bool, next_run: str) -> None:
    """At each step the log names each record once; the next run leaves each record once for all readers."""
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: increments(folder, PARQUET, 2))
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = CrashingFiles(folder, step)
        files.keep_all()
        with contextlib.suppress(Crash):
            compact(folder, files)
        if files.steps < step:
            break
        if not keeps_unsynced:
            files.lose_unsynced()
        assert logged(folder) == everything(cluster)
        assert set(listed(folder)) == set(everything(cluster))
        assert verify(cluster, folder).is_equal
        if next_run == "export":
            cluster.append(0, 2)
            run(cluster, folder)
        else:
            compact(folder)
        assert listed(folder) == logged(folder) == everything(cluster)
        assert run(cluster, folder).batches == []
    assert step > 10


@pytest.mark.parametrize("other", ["export", "compact"])
@pytest.mark.long
def test_without_locks_another_run_at_any_step_loses_and_doubles_nothing(tmp_path: Path, other: str) -> None:
    """The other runs completely while the first compaction is at its n-th step, for every n."""
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: increments(folder, PARQUET, 2))
    for step in itertools.count(1):
        cluster = beginning.restored()
        cluster.append(0, 2)
        unlocked = UnlockedFiles(folder)
        second = (
            partial(exporter(cluster, folder, files=unlocked).run, SILENT)
            if other == "export"
            else partial(compact, folder, unlocked)
        )
        files = UnlockedFiles(folder, partial(_at, step, second))
        with contextlib.suppress(KctlError, OSError):  # the other has abandoned or preceded it
            compact(folder, files)
        if files.steps < step:
            break
        run(cluster, folder)
        assert listed(folder) == logged(folder) == everything(cluster)
    assert step > 10


def _at(step: int, work: Callable[[], object], number: int) -> None:
    if number == step:
        with contextlib.suppress(LostRace):
            work()


@pytest.mark.long
def test_a_compaction_at_any_step_of_an_export_without_locks(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: increments(folder, PARQUET, 2))
    for step in itertools.count(1):
        cluster = beginning.restored()
        cluster.append(0, 2)
        files = UnlockedFiles(folder, partial(_compact_at, step, folder))
        with contextlib.suppress(KctlError, OSError):
            exporter(cluster, folder, files=files).run(SILENT)
        if files.steps < step:
            break
        run(cluster, folder)
        assert listed(folder) == logged(folder) == everything(cluster)
    assert step > 5


def _compact_at(step: int, folder: Path, number: int) -> None:
    if number == step:
        with contextlib.suppress(NotCompactable, LostRace):
            compact(folder, UnlockedFiles(folder))


@pytest.mark.parametrize("table", TABLES, ids=["iceberg", "delta"])
@pytest.mark.long
def test_a_crash_at_any_step_of_the_compaction_of_a_table(tmp_path: Path, table: TableOptions) -> None:
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: increments(folder, table, 2))
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = crashing(DiskFiles(folder), step)
        try:
            with _stepped_replacements(files):
                compact(folder, files)
        except Crash:
            assert exported(folder, table) == everything(cluster)
        else:
            break
        cluster.append(0, 2)
        run(cluster, folder, table=table)
        compact(folder)
        assert exported(folder, table) == everything(cluster)
    assert step > 1


@pytest.mark.parametrize("table", TABLES, ids=["iceberg", "delta"])
@pytest.mark.long
def test_an_export_at_any_step_of_the_compaction_of_a_table(tmp_path: Path, table: TableOptions) -> None:
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: increments(folder, table, 2))
    for step in itertools.count(1):
        cluster = beginning.restored()
        cluster.append(0, 2)
        second = partial(exporter(cluster, folder, table=table).run, SILENT)
        files = SteppedPort(DiskFiles(folder), partial(_at, step, second))
        with _stepped_replacements(files):
            compact(folder, files)
        if files.steps < step:
            break
        assert exported(folder, table) == everything(cluster)
    assert step > 1


@contextlib.contextmanager
def _stepped_replacements(files: SteppedPort) -> Iterator[None]:
    """Makes the replacement of files in tables a step before and after it."""

    def stepped(method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            files.step()
            result = method(*arguments)
            files.step()
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iceberg.IcebergTable, "replace", stepped(iceberg.IcebergTable.replace))
        patch.setattr(delta.DeltaLakeTable, "replace", stepped(delta.DeltaLakeTable.replace))
        yield


@pytest.mark.parametrize("table", TABLES, ids=["iceberg", "delta"])
@pytest.mark.long
def test_of_two_compactions_of_the_same_files_one_is_refused(tmp_path: Path, table: TableOptions) -> None:
    """The second one at each step of the first."""
    refused = []
    folder = tmp_path / "lake"
    beginning = Beginning(folder, lambda folder: increments(folder, table, 2))
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = SteppedPort(DiskFiles(folder), partial(_at, step, partial(compact, folder)))
        try:
            with _stepped_replacements(files):
                compact(folder, files)
        except NotCompactable as error:
            refused.append(str(error))
        if files.steps < step:
            break
        assert exported(folder, table) == everything(cluster)
    name = "kafka.orders" if table.kind is TableKind.ICEBERG else "orders"
    assert set(refused) == {f"another program has replaced files of table {name}; repeat this"}


@pytest.mark.parametrize("table", TABLES, ids=["iceberg", "delta"])
def test_a_compaction_of_a_table_whose_response_was_lost_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: TableOptions
) -> None:
    """A client of a catalogue repeats such a commit, and is then told that the table has changed."""
    cluster = increments(tmp_path, table)
    library = iceberg.IcebergTable if table.kind is TableKind.ICEBERG else delta.DeltaLakeTable
    replace = library.replace

    def replace_twice(self: Any, replacements: list[Replacement]) -> None:
        replace(self, replacements)
        raise Conflict

    monkeypatch.setattr(library, "replace", replace_twice)
    (found,) = compact(tmp_path)
    assert (found.files_after, found.status) == (1, "compacted")
    assert exported(tmp_path, table) == everything(cluster)


def test_a_delta_table_with_features_that_are_not_known_here_is_not_compacted(tmp_path: Path) -> None:
    increments(tmp_path, TABLES[1])
    DeltaTable(tmp_path / "orders").alter.add_feature(
        [TableFeatures.RowTracking], allow_protocol_versions_increase=True
    )
    with pytest.raises(TableFailed, match=r"table orders has features .* compacted with Spark: .*rowTracking"):
        compact(tmp_path)


@pytest.mark.long
def test_filtered_and_decoded_exports_are_verified_after_a_compaction(tmp_path: Path) -> None:
    for kind in TableKind:
        folder = tmp_path / kind
        table = TableOptions(kind=kind, rows=EVEN)
        cluster = orders()
        for _ in range(2):
            run(cluster, folder, table=table, decoding=JSON)
            cluster.append(0, 4)
        run(cluster, folder, table=table, decoding=JSON)
        compact(folder)
        assert exported(folder, table) == even(cluster)
        assert verify(cluster, folder).is_equal


def with_later_columns(partition: int, offset: int) -> bytes:
    """Samples of the first run lack what the samples of the second one have."""
    late = {"id": f"x{offset}", "tags": [1, "a"], "late": {"x": offset, "y": "q"}, "never": 2**70}
    if offset < 3:
        late = {"id": offset, "tags": [offset]}
    elif offset >= 8:
        late = {"id": f"x{offset}", "tags": [offset], "late": {"x": offset}}
    return json.dumps(late).encode()


@pytest.mark.parametrize("table", KINDS, ids=lambda table: table.kind)
@pytest.mark.parametrize("target_bytes", [1, 1 << 20], ids=["large files", "small files"])
@pytest.mark.long
def test_rows_get_the_columns_of_later_files(tmp_path: Path, table: TableOptions, target_bytes: int) -> None:
    """What has no column there either stays in the rest."""
    cluster = Cluster(1)
    cluster.value = with_later_columns
    for count in (8, 3):
        cluster.append(0, count)
        run(cluster, tmp_path, table=table, decoding=LENIENT)
    request = CompactRequest(target_bytes=target_bytes)
    (row,) = compact_export(request, DiskFiles(tmp_path), StoppedClock())
    assert (row.status, row.files_after) == ("compacted", 2 if target_bytes == 1 else 1)
    found = {row["offset"]: row for row in read(tmp_path, table)}
    for offset in range(3, 8):
        value = {name: member for name, member in found[offset]["value"].items() if member is not None}
        assert value == {"id__string": f"x{offset}", "tags": [1, None], "late": {"x": offset}}
        rest = {"tags": [1, "a"], "late": {"y": "q"}, "never": 2**70}
        assert json.loads(found[offset]["value_rest"]) == rest
    assert [found[offset]["value"]["id"] for offset in range(3)] == [0, 1, 2]
    assert verify(cluster, tmp_path).is_equal
    (row,) = compact_export(request, DiskFiles(tmp_path), StoppedClock())
    assert row.status == "nothing to do"
    cluster.append(0, 4)
    run(cluster, tmp_path, table=table, decoding=LENIENT)
    assert verify(cluster, tmp_path).is_equal


def test_a_compacted_folder_can_be_adopted(tmp_path: Path) -> None:
    cluster = increments(tmp_path, PARQUET)
    compact(tmp_path)
    for path in (tmp_path / "_kctl").rglob("*.json"):
        path.unlink()
    cluster.append(0, 3)
    run(cluster, tmp_path, adopts=True)
    assert listed(tmp_path) == logged(tmp_path) == everything(cluster)


def test_an_interrupted_export_is_completed_first(tmp_path: Path) -> None:
    cluster = increments(tmp_path, PARQUET)
    cluster.append(0, 3)
    files = CrashingFiles(tmp_path, 12)
    with pytest.raises(Crash):
        exporter(cluster, tmp_path, files=files).run(SILENT)
    with pytest.raises(NotCompactable, match="batch 4 was interrupted or is running"):
        compact(tmp_path)
    run(cluster, tmp_path)
    compact(tmp_path)
    assert listed(tmp_path) == everything(cluster)


def test_a_running_export_refuses_a_compaction(tmp_path: Path) -> None:
    increments(tmp_path, PARQUET)
    with CommitLog(DiskFiles(tmp_path)).lock(), pytest.raises(Locked):
        compact(tmp_path)


def test_a_missing_file_stops_a_compaction(tmp_path: Path) -> None:
    increments(tmp_path, PARQUET)
    next((tmp_path / "orders").iterdir()).unlink()
    with pytest.raises(DataLoss):
        compact(tmp_path)


@pytest.mark.parametrize("table", KINDS[:2], ids=lambda table: table.kind)
@pytest.mark.parametrize("length", [0, 100, 700])
def test_a_damaged_file_stops_a_compaction_and_is_named(tmp_path: Path, table: TableOptions, length: int) -> None:
    increments(tmp_path, table, count=1)
    damaged = min((tmp_path / "orders").rglob("[!.]*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:length])
    before = {path: path.stat().st_size for path in tmp_path.rglob("*.parquet")}
    named = rf"{re.escape(damaged.name)}( is damaged|, which batch 0 wrote, has .* bytes? instead of .*)"
    with pytest.raises(DataLoss, match=f"{named}: restore it from a backup"):
        compact(tmp_path)
    damaged.write_bytes(b"PAR1" + bytes(length) + damaged.read_bytes()[-8:])
    with pytest.raises(DataLoss, match=named):
        compact(tmp_path)
    damaged.unlink()
    with pytest.raises(DataLoss, match=rf"{re.escape(damaged.name)}.*restore"):
        compact(tmp_path)
    assert {path: path.stat().st_size for path in tmp_path.rglob("*.parquet")}.items() <= before.items()


@pytest.mark.long
def test_damage_anywhere_in_a_file_is_found_or_named(tmp_path: Path) -> None:
    cluster = increments(tmp_path, PARQUET, count=1)
    damaged = min((tmp_path / "orders").rglob("[!.]*.parquet"))
    data = damaged.read_bytes()
    chance = random.Random(15)
    messages = []
    for _ in range(60):
        other = bytearray(data)
        for _ in range(chance.choice([1, 4, 40])):
            other[chance.randrange(len(data))] = chance.randrange(256)
        damaged.write_bytes(other)
        for command in (partial(verify, cluster, tmp_path), partial(compact, tmp_path, is_dry_run=True)):
            try:
                command()
            except KctlError as error:
                messages.append(str(error))
    assert len(messages) > 60
    assert [text for text in messages if damaged.name not in text or "\n" in text] == []


def test_a_compaction_is_read_by_no_earlier_kctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    increments(tmp_path, PARQUET)
    compact(tmp_path)
    monkeypatch.setattr("kctl.tables.commits.commit_log.READABLE_VERSIONS", (1, 2, 3))
    with pytest.raises(BrokenExportFolder, match="has version 4"):
        run(filled(), tmp_path)


@given(st.lists(st.tuples(st.integers(1, 200), st.sampled_from("ab")), max_size=30))
def test_bins_have_small_files_of_one_group_up_to_the_target(files: list[tuple[int, str]]) -> None:
    sources = [SourceFile(f"{number}", size, group) for number, (size, group) in enumerate(files)]
    bins = bins_of(sources, 100)
    merged = [source for held in bins for source in held]
    assert len(set(merged)) == len(merged)
    for held in bins:
        assert len(held) > 1
        assert len({source.group for source in held}) == 1
        assert all(source.size < 75 for source in held)
        assert sum(source.size for source in held) <= 100
        assert held == sorted(held, key=lambda source: int(source.path))
