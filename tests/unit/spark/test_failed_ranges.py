"""Partitions that cannot be read do not hold up the others; corrupt batches are left out where that is asked for."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from crc32c import crc32c

from kctl.errors import KctlError
from kctl.tables.exec.outcome import Unreadable
from kctl.tables.exports.export import ExportReport
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.plan import OnCorruptBatch
from tests.unit.spark.crashing_files import Crash, CrashingFiles
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

KINDS = [TableOptions(kind=kind) for kind in TableKind]
SKIP: Mapping[str, Any] = {"on_corrupt_batch": OnCorruptBatch.SKIP}


def shared() -> Cluster:
    """Both partitions are in one file; batch 5 of partition 0 is corrupt."""
    cluster = filled()
    cluster.bytes_per_offset = 1
    cluster.ends = [9, 4]
    cluster.corrupt = {(0, 5)}
    return cluster


def cut() -> Cluster:
    """Partition 0 is in four files, of which the second one has the corrupt batch."""
    cluster = Cluster()
    cluster.bytes_per_offset = 1 << 20
    cluster.ends = [40, 7]
    cluster.corrupt = {(0, 15)}
    return cluster


def failure(report: ExportReport) -> str:
    return str(report.failed["orders"])


def healthy(cluster: Cluster, *ranges: tuple[int, int, int]) -> list[bytes]:
    return sorted(value(partition, offset) for partition, *span in ranges for offset in range(*span))


@pytest.mark.long
def test_a_corrupt_batch_holds_up_the_rest_of_its_partition_only(tmp_path: Path) -> None:
    for name, cluster, ranges in (
        ("shared", shared(), [(1, 0, 4)]),
        ("cut", cut(), [(0, 0, 10), (1, 0, 7)]),
    ):
        folder = tmp_path / name
        report = run(cluster, folder)
        assert failure(report).startswith("orders-0: the batch at offset "), name
        for _ in range(3):
            assert exported_values(folder) == healthy(cluster, *ranges), name
            assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")} == set(
                committed_files(folder)
            ), name
            cluster.append(1, 5)
            partition, start, end = ranges[-1]
            ranges[-1] = (partition, start, end + 5)
            assert "fails its checksum" in failure(run(cluster, folder)), name
        cluster.corrupt = set()
        run(cluster, folder)
        assert_exact(cluster, folder)


@pytest.mark.long
def test_partitions_that_share_a_file_with_a_corrupt_one_are_exported_by_the_same_run(tmp_path: Path) -> None:
    """After others of the batch were committed: a table gets two commits."""
    for table in KINDS:
        folder = tmp_path / table.kind.value
        cluster = Cluster(partitions=3)
        cluster.bytes_per_offset = 1
        cluster.ends = [20, 4, 4]
        cluster.corrupt = {(1, 0)}
        for end in (20, 23, 26):
            cluster.ends[0] = end
            report = run(cluster, folder, table=table)
            assert len(report.batches) == (2 if end == 20 else 1), table
            assert failure(report) == "orders-1: the batch at offset 0 fails its checksum", table
        cluster.corrupt = set()
        run(cluster, folder, table=table)
        files = f"{folder}/orders/**/*.parquet"
        rows = duckdb.execute(f"SELECT value FROM read_parquet('{files}') ORDER BY ALL").fetchall()
        assert [row[0] for row in rows] == healthy(cluster, (0, 0, 26), (1, 0, 4), (2, 0, 4)), table
        assert run(cluster, folder, table=table).batches == []


def test_corrupt_batches_are_left_out_named_and_counted(tmp_path: Path) -> None:
    for table in KINDS:
        folder = tmp_path / table.kind.value
        cluster = shared()
        run(cluster, folder, table=table)
        (batch,) = run(cluster, folder, table=table, **SKIP).batches
        (found,) = [range_ for outcome in batch.outcomes.values() for range_ in outcome.unreadable]
        assert found._replace(size=0) == Unreadable(
            batch.plan.ranges[0].tp, 5, 9, 0, "the batch at offset 5 fails its checksum"
        )
        assert sum(part.unreadable for outcome in batch.outcomes.values() for part in outcome.parts) == 4
        files = f"{folder}/orders/**/*.parquet"
        rows = duckdb.execute(f"SELECT value FROM read_parquet('{files}') ORDER BY ALL").fetchall()
        assert sorted(row[0] for row in rows) == healthy(cluster, (0, 0, 5), (1, 0, 4)), table
        assert run(cluster, folder, table=table).batches == []
    commit = json.loads(max((tmp_path / "parquet/_kctl/commits").iterdir()).read_text())
    assert commit["unreadable"] == [
        {"topic": "orders", "partition": 0, "start": 5, "end": 9, "bytes": found.size, "reason": found.reason}
    ]


def test_a_batch_with_a_valid_checksum_and_invalid_records_is_left_out_alone(tmp_path: Path) -> None:
    cluster = shared()
    batches, cluster.corrupt = cluster.batches, set()

    def broken(partition: int, start: int, end: int) -> bytes:
        data = bytearray(batches(partition, start, end))
        if partition == 0:
            second = len(batches(0, 0, 5))
            data[second + 61] = 0x7F  # the length of the first record
            data[second + 17 : second + 21] = crc32c(data[second + 21 :]).to_bytes(4)
        return bytes(data)

    cluster.batches = broken  # type: ignore[method-assign]
    run(cluster, tmp_path, **SKIP)
    assert exported_values(tmp_path) == healthy(cluster, (0, 0, 5), (1, 0, 4))


def test_nothing_is_written_again_and_again_for_a_partition_that_alone_cannot_be_read(tmp_path: Path) -> None:
    cluster = Cluster(partitions=1)
    cluster.append(0, 9)
    cluster.corrupt = {(0, 5)}
    for _ in range(3):
        with pytest.raises(Exception, match="fails its checksum"):
            run(cluster, tmp_path)
    assert [path.name for path in (tmp_path / "_kctl/plans").iterdir()] == ["000000000000.json"]
    run(cluster, tmp_path, **SKIP)
    assert exported_values(tmp_path) == healthy(cluster, (0, 0, 5))


@pytest.mark.long
def test_a_crash_at_any_step_of_a_partial_commit_is_recovered_from(tmp_path: Path) -> None:
    """Of the process, or of the machine."""
    folder = tmp_path / "lake"

    beginning = Beginning(folder, lambda folder: cut())
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
        if step % 4 < 2:
            files.lose_unsynced()
        if step % 2:
            with contextlib.suppress(KctlError):  # if nothing else was left
                run(cluster, folder)
            # A batch that waits for one file may have finished others, which are not committed.
            found = exported_values(folder)
            assert len(found) == len(set(found)), step
            assert set(found) >= set(healthy(cluster, (0, 0, 10), (1, 0, 7))), step
        cluster.corrupt = set()
        cluster.append(1, 1)
        run(cluster, folder)
        assert_exact(cluster, folder)
    assert step > 20
    assert exported_values(folder) == healthy(cluster, (0, 0, 10), (1, 0, 7))
    assert expected_values(cluster) != exported_values(folder)
