"""`--one-table` of plain Parquet: the files of all topics in one folder."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from uuid import UUID

import duckdb
import pytest

from kctl.errors import UsageError
from kctl.tables.commits.layout import shared_path, topic_directory, topic_part
from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.formats.kinds import TableOptions
from kctl.tables.plans.plan import Compression, OnDataLoss
from tests.rows import for_rows
from tests.unit.spark.crashing_files import Crash, CrashingFiles
from tests.unit.spark.scene import SILENT, Cluster, StoppedClock, assert_exact, exporter, filled, run
from tests.unit.spark.test_typed_exports import LENIENT, with_bad_records
from tests.unit.spark.test_verification import verify

SHARED = TableOptions(is_shared=True)
BY_DATE = TableOptions(is_shared=True, partition_by=Partitioning("date"))


def rows(folder: Path, columns: str) -> list[tuple[object, ...]]:
    """Columns of all rows, as DuckDB reads the folder."""
    query = f"SELECT {columns} FROM read_parquet('{folder}/data/**/*.parquet', union_by_name = true) ORDER BY ALL"
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


def everything(cluster: Cluster) -> list[tuple[str, int, int]]:
    return [("orders", partition, offset) for partition, end in enumerate(cluster.ends) for offset in range(end)]


@pytest.mark.parametrize("keeps_contents", [True, False])
@pytest.mark.parametrize("table", [SHARED, BY_DATE], ids=lambda table: table.partition_by.by)
@pytest.mark.long
def test_after_a_crash_at_any_step_each_record_is_there_once(
    tmp_path: Path, table: TableOptions, keeps_contents: bool
) -> None:
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        cluster = filled()
        cluster.hours_per_offset = 5
        files = CrashingFiles(folder, step)
        with contextlib.suppress(Crash):
            exporter(cluster, folder, files=files, table=table).run(SILENT)
        if files.steps < step:
            break
        if not keeps_contents and folder.exists():
            files.lose_unsynced()
        cluster.append(1, 3)
        run(cluster, folder, table=table)
        assert rows(folder, 'topic, partition, "offset"') == everything(cluster)
        assert run(cluster, folder, table=table).batches == []
        assert not list(folder.rglob(".*.tmp"))
    assert step > 20


def test_an_export_is_compared_merged_and_continued(tmp_path: Path) -> None:
    cluster = filled()
    for _ in range(4):
        run(cluster, tmp_path, table=SHARED)
        cluster.append(0, 5)
    assert verify(cluster, tmp_path).is_equal
    request = CompactRequest(target_bytes=1 << 20, compression=Compression.ZSTD)
    (compacted,) = compact_export(request, DiskFiles(tmp_path), StoppedClock())
    assert (compacted.table, compacted.files_after) == ("data", 1)
    run(cluster, tmp_path, table=SHARED)
    assert rows(tmp_path, 'topic, partition, "offset"') == everything(cluster)
    found = verify(cluster, tmp_path)
    assert (found.is_equal, found.warnings) == (True, [])


def test_records_of_a_recreated_topic_are_told_apart_by_a_column(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=SHARED)
    cluster.topic_id = UUID(int=2)
    cluster.ends = [3, 0]
    run(cluster, tmp_path, table=SHARED, on_data_loss=OnDataLoss.WARN)
    found = rows(tmp_path, 'topic, partition, "offset", coalesce(incarnation, 0)')
    assert found.count(("orders", 0, 2, 0)) == found.count(("orders", 0, 2, 1)) == 1
    assert len(found) == len(set(found)) == 19 + 3
    assert verify(cluster, tmp_path).is_equal


def test_records_that_cannot_be_decoded_are_compared_too(tmp_path: Path) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    run(cluster, tmp_path, table=SHARED, decoding=LENIENT)
    assert list(tmp_path.glob("_dead_letters/data/orders+*.parquet"))
    assert verify(cluster, tmp_path).is_equal


def test_a_folder_keeps_its_kind(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path / "shared", table=SHARED)
    with pytest.raises(UsageError, match="--table parquet --one-table"):
        run(cluster, tmp_path / "shared")
    run(cluster, tmp_path / "own")
    with pytest.raises(UsageError, match="contains an export with --table parquet:"):
        run(cluster, tmp_path / "own", table=SHARED)
    assert_exact(cluster, tmp_path / "own")


@for_rows("topic", ["orders", "_orders", "__orders", ".orders", "orders-1", "a.b_c-d"])
def test_the_name_of_a_file_tells_its_topic(topic: str) -> None:
    for name in ("3+00-09", "0-57+6f1c", "3+00-09+r1", "compacted-000000000007-0"):
        path = shared_path(f"{topic_directory(topic)}+r1/{topic_directory(topic)}+{name}.parquet")
        assert topic_part(path) == topic_directory(topic)
